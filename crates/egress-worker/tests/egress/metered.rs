//! Requests whose tokens count: what the daemon hears of them before they go out, and when they end.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use wire::worker::v1::connection_ended::Cause;
use wire::worker::v1::from_egress::Body as From;
use wire::worker::v1::inspect::Scheme;
use wire::worker::v1::model_usage::Extent;
use wire::worker::v1::request_answer::Decision;
use wire::worker::v1::{ModelAsked, ModelUsage, RequestGrant};

use crate::http::response;
use crate::support::{DEADLINE, Egress, Script, server};

const NAME: &str = "model.example.org";
const TO: &str = "11.0.0.8:8080";
const EVENTS: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
const START: &str = r#"data: {"type":"message_start","message":{"model":"big-1","usage":{"input_tokens":7,"output_tokens":1}}}"#;

fn metered(server: SocketAddr) -> Egress {
    let mut script = Script::new(16).rule(8080, Scheme::Http, NAME, Some(server));
    let rule = script.ports.get_mut(&8080).unwrap();
    let inspect = rule.inspect.as_mut().unwrap();
    (inspect.ask, inspect.meter) = (true, true);
    rule.decision = Some(Decision::Grant(RequestGrant::default()));
    Egress::start(script)
}

fn usage(egress: &mut Egress, request: u64) -> ModelUsage {
    let message = egress.wait(
        "the usage",
        |message| matches!(&message.body, Some(From::Usage(usage)) if usage.request == request),
    );
    let Some(From::Usage(usage)) = message.body else { unreachable!() };
    usage
}

fn post(stream: &mut TcpStream, content_type: &str, body: &str) {
    let length = body.len();
    write!(
        stream,
        "POST /v1 HTTP/1.1\r\nHost: {NAME}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
}

/// Reads a request with a body of this length.
fn read_request(stream: &mut TcpStream, body: usize) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
        if let Some(end) = end
            && bytes.len() >= end + body
        {
            return String::from_utf8(bytes).ok();
        }
        let mut piece = [0; 4096];
        match stream.read(&mut piece).ok()? {
            0 => return None,
            read => bytes.extend_from_slice(&piece[..read]),
        }
    }
}

#[test]
fn a_body_is_read_before_the_question_and_arrives_as_it_was() {
    let arrived = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&arrived);
    let body = format!(r#"{{"model":"big-1","max_tokens":70,"text":"{}"}}"#, "x".repeat(300_000));
    let length = body.len();
    let server = server(move |mut stream| {
        while let Some(request) = read_request(&mut stream, length) {
            kept.lock().push(request);
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").unwrap();
        }
    });
    let mut egress = metered(server);
    let mut stream = egress.connect(TO);
    for content_type in ["application/json", "text/plain"] {
        post(&mut stream, content_type, &body);
        assert_eq!(response(&mut stream), (200, "{}".to_owned()));
    }
    let asked = |number: u64| {
        let mut all = egress.messages().into_iter().filter_map(|message| match message.body {
            Some(From::Asked(asked)) if asked.request.as_ref().unwrap().number == number => Some(asked),
            _ => None,
        });
        all.next().unwrap().model.unwrap()
    };
    let body_bytes = u64::try_from(length).unwrap();
    let model = "big-1".to_owned();
    let read = ModelAsked { body_bytes, max_tokens: 70, model, ..ModelAsked::default() };
    let unread = ModelAsked { body_bytes, is_unread: true, ..ModelAsked::default() };
    assert_eq!((asked(1), asked(2)), (read, unread));
    for request in arrived.lock().iter() {
        assert!(request.ends_with(&body));
    }
    let reported = usage(&mut egress, 2);
    assert_eq!((reported.extent(), reported.body_bytes, reported.is_reported), (Extent::Whole, 2, false));
}

#[test]
fn a_program_that_leaves_a_stream_is_reported_at_once() {
    let server = server(|mut stream| {
        read_request(&mut stream, 2).unwrap();
        stream.write_all(format!("{EVENTS}{START}\n\n").as_bytes()).unwrap();
        let began = Instant::now();
        while began.elapsed() < DEADLINE && write!(stream, "data: {{}}\n\n").is_ok() {
            thread::sleep(Duration::from_millis(20));
        }
    });
    let mut egress = metered(server);
    let mut stream = egress.connect(TO);
    post(&mut stream, "application/json", "{}");
    let (mut received, mut piece) = (String::new(), [0; 512]);
    while !received.contains("message_start") {
        let read = stream.read(&mut piece).unwrap();
        received.push_str(std::str::from_utf8(&piece[..read]).unwrap());
    }
    drop(stream);
    let left = Instant::now();
    let reported = usage(&mut egress, 1);
    assert!(left.elapsed() < DEADLINE / 3, "{:?}", left.elapsed());
    assert_eq!((reported.extent(), reported.input_tokens, reported.output_tokens), (Extent::Cut, 7, 1));
    assert!(reported.body_bytes > 20, "{reported:?}");
    assert_eq!(egress.cause(), Cause::Reset);
}

#[test]
fn a_reset_is_reported_although_the_server_is_silent() {
    let server = server(|mut stream| {
        read_request(&mut stream, 2).unwrap();
        stream.write_all(format!("{EVENTS}{START}\n\n").as_bytes()).unwrap();
        // Until the connection ends.
        let _ = stream.read(&mut [0]);
    });
    let mut egress = metered(server);
    let mut stream = egress.connect(TO);
    post(&mut stream, "application/json", "{}");
    // The kernel resets a connection that is closed with unread bytes.
    stream.peek(&mut [0]).unwrap();
    drop(stream);
    let left = Instant::now();
    assert_eq!(usage(&mut egress, 1).extent(), Extent::Cut);
    assert!(left.elapsed() < DEADLINE / 3, "{:?}", left.elapsed());
}

#[test]
fn the_last_event_of_a_stream_is_its_end() {
    for last in [r#"{"type":"message_stop"}"#, "[DONE]"] {
        let server = server(move |mut stream| {
            read_request(&mut stream, 2).unwrap();
            let body = format!("{START}\n\ndata: {last}\n\n");
            let head = EVENTS.replace("\r\n\r\n", "\r\nTransfer-Encoding: chunked\r\n\r\n");
            write!(stream, "{head}{:x}\r\n{body}\r\n", body.len()).unwrap();
            // The response has not ended.
            let _ = stream.read(&mut [0]);
        });
        let mut egress = metered(server);
        let mut stream = egress.connect(TO);
        post(&mut stream, "application/json", "{}");
        let reported = usage(&mut egress, 1);
        assert_eq!((reported.extent(), reported.is_reported), (Extent::Whole, true), "{last}");
        assert!(egress.messages().iter().all(|message| !matches!(message.body, Some(From::Ended(_)))));
    }
}

#[test]
fn a_request_without_an_answer_of_a_model_says_why() {
    let server = server(|mut stream| {
        let request = read_request(&mut stream, 2).unwrap();
        if request.contains("text/plain") {
            stream.write_all(b"HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nno").unwrap();
        }
    });
    for (content_type, extent) in [("text/plain", Extent::Refused), ("application/json", Extent::Unanswered)]
    {
        let mut egress = metered(server);
        let mut stream = egress.connect(TO);
        post(&mut stream, content_type, "{}");
        assert_eq!(usage(&mut egress, 1).extent(), extent);
    }
}
