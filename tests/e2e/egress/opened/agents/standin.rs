//! A stand-in for the servers of models: it answers in the two common shapes, and knows what it has counted.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

use super::super::{head_end, header, ok};

/// Requests and tokens that a stand-in has answered.
#[derive(Debug, Default)]
pub(super) struct Counted {
    pub(super) requests: AtomicU64,
    pub(super) input: AtomicU64,
    pub(super) output: AtomicU64,
}

impl Counted {
    /// Returns the requests, and the tokens of input and output.
    pub(super) fn all(&self) -> [u64; 3] {
        [&self.requests, &self.input, &self.output].map(|count| count.load(Ordering::SeqCst))
    }
}

/// The next step of an answer: a tool with its arguments, or a text.
enum Step {
    Tool(&'static str, Value),
    Text(&'static str),
}

/// Answers a request to a model, whole or as a stream of events.
pub(super) fn answer(counted: &Counted, request: &str) -> String {
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let body: Value = serde_json::from_str(body).unwrap();
    let number = counted.requests.fetch_add(1, Ordering::SeqCst);
    let (input, output) = (100 + number % 89, 10 + number % 7);
    counted.input.fetch_add(input, Ordering::SeqCst);
    counted.output.fetch_add(output, Ordering::SeqCst);
    let (step, streams) = (next_step(&body["messages"]), body["stream"] == true);
    let events = if head.contains("/chat/completions ") {
        chat(&step, [input, output], streams)
    } else {
        message(&step, [input, output], streams)
    };
    match &events[..] {
        [whole] if !streams => ok("application/json", &whole.to_string()),
        events => ok("text/event-stream", &stream_of(events)),
    }
}

/// Repairs the function in four steps, and answers other questions with a word.
fn next_step(messages: &Value) -> Step {
    let messages = messages.as_array().unwrap();
    let text = |message: &Value| message["content"].to_string();
    if !messages.iter().any(|message| text(message).contains("Repair")) {
        return Step::Text("fine");
    }
    let is_result = |message: &Value| message["role"] == "tool" || text(message).contains("\"tool_result\"");
    let results: Vec<&Value> = messages.iter().filter(|message| is_result(message)).collect();
    match results.as_slice() {
        [] => Step::Tool("read_file", json!({ "path": "sums.py" })),
        [read] if text(read).contains("return a - b") => {
            let edit = json!({ "path": "sums.py", "old": "a - b", "new": "a + b" });
            Step::Tool("edit_file", edit)
        }
        [_, _] => Step::Tool("run_tests", json!({})),
        [.., ran] if text(ran).contains("passed") => Step::Text("repaired"),
        _ => Step::Text("not repaired"),
    }
}

fn chat(step: &Step, [input, output]: [u64; 2], streams: bool) -> Vec<Value> {
    let usage = json!({
        "prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output,
    });
    let (mut said, why) = match step {
        Step::Tool(name, arguments) => {
            let function = json!({ "name": name, "arguments": arguments.to_string() });
            let call = json!({ "index": 0, "id": "call_1", "type": "function", "function": function });
            (json!({ "tool_calls": [call] }), "tool_calls")
        }
        Step::Text(text) => (json!({ "content": text }), "stop"),
    };
    said["role"] = "assistant".into();
    let one = |kind: &str, choices: Value, usage: &Value| {
        let mut one = json!({ "id": "c-1", "object": kind, "created": 1, "model": "chat-1" });
        (one["choices"], one["usage"]) = (choices, usage.clone());
        one
    };
    if !streams {
        let choice = json!({ "index": 0, "message": said, "finish_reason": why });
        return vec![one("chat.completion", json!([choice]), &usage)];
    }
    let choice = |delta: &Value, why: Value| json!([{ "index": 0, "delta": delta, "finish_reason": why }]);
    let chunk = |choices, usage: &Value| one("chat.completion.chunk", choices, usage);
    vec![
        chunk(choice(&said, Value::Null), &Value::Null),
        chunk(choice(&json!({}), why.into()), &Value::Null),
        chunk(json!([]), &usage),
    ]
}

fn message(step: &Step, [input, output]: [u64; 2], streams: bool) -> Vec<Value> {
    let (block, begun, delta, why) = match step {
        Step::Tool(name, arguments) => {
            let block =
                |input: &Value| json!({ "type": "tool_use", "id": "toolu_1", "name": name, "input": input });
            let delta = json!({ "type": "input_json_delta", "partial_json": arguments.to_string() });
            (block(arguments), block(&json!({})), delta, "tool_use")
        }
        Step::Text(text) => {
            let block = |text: &str| json!({ "type": "text", "text": text });
            (block(text), block(""), json!({ "type": "text_delta", "text": text }), "end_turn")
        }
    };
    let message = |content: Value, why: Value, output: u64| {
        json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "message-1", "content": content,
            "stop_reason": why, "stop_sequence": null,
            "usage": { "input_tokens": input, "output_tokens": output },
        })
    };
    if !streams {
        return vec![message(json!([block]), why.into(), output)];
    }
    vec![
        json!({ "type": "message_start", "message": message(json!([]), Value::Null, 1) }),
        json!({ "type": "content_block_start", "index": 0, "content_block": begun }),
        json!({ "type": "content_block_delta", "index": 0, "delta": delta }),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({
            "type": "message_delta", "delta": { "stop_reason": why, "stop_sequence": null },
            "usage": { "output_tokens": output },
        }),
        json!({ "type": "message_stop" }),
    ]
}

fn stream_of(events: &[Value]) -> String {
    let mut text = String::new();
    for event in events {
        if let Some(kind) = event["type"].as_str() {
            writeln!(text, "event: {kind}").unwrap();
        }
        write!(text, "data: {event}\n\n").unwrap();
    }
    if events.iter().all(|event| event["type"].is_null()) {
        text.push_str("data: [DONE]\n\n");
    }
    text
}

/// Starts a server whose streams go on for ten seconds, an event each 50 ms. Returns its port, and the number of its requests.
pub(super) async fn endless() -> (u16, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let requests = Arc::<AtomicU64>::default();
    let count = Arc::clone(&requests);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(go_on(stream, Arc::clone(&count)));
        }
    });
    (port, requests)
}

async fn go_on(mut stream: TcpStream, count: Arc<AtomicU64>) {
    let mut bytes = Vec::new();
    let Some(end) = head_end(&mut stream, &mut bytes).await else { return };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let length: usize = header(&head, "content-length").unwrap().parse().unwrap();
    while bytes.len() < end + length {
        if tokio::io::AsyncReadExt::read_buf(&mut stream, &mut bytes).await.unwrap_or(0) == 0 {
            return;
        }
    }
    count.fetch_add(1, Ordering::SeqCst);
    let step = Step::Text("word");
    let events = if head.contains("/chat/completions ") {
        chat(&step, [100, 1], true)
    } else {
        message(&step, [100, 1], true)
    };
    let (first, next) = if events.len() == 3 {
        (stream_of(&events[..1]), stream_of(&events[..1]))
    } else {
        (stream_of(&events[..2]), stream_of(&events[2..3]))
    };
    let (first, next) = (first.replace("data: [DONE]\n\n", ""), next.replace("data: [DONE]\n\n", ""));
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
    let mut text = format!("{head}{first}");
    for _ in 0..200 {
        if stream.write_all(text.as_bytes()).await.is_err() {
            return;
        }
        text.clone_from(&next);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
