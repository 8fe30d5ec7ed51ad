use proptest::prelude::*;
use serde_json::{Map, Value};

use super::counts::Field;
use super::*;

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream; charset=utf-8";

fn read(content_type: &str, body: &str) -> Reported {
    read_pieces(content_type, body.as_bytes().chunks(body.len().max(1)))
}

fn read_pieces<'a>(content_type: &str, pieces: impl Iterator<Item = &'a [u8]>) -> Reported {
    let mut usage = Usage::for_response(content_type, None);
    pieces.for_each(|piece| usage.push(piece));
    usage.finish()
}

/// The numbers in the order input, output, cached, written.
fn reported(model: &str, numbers: [u64; 4]) -> Reported {
    let [input_tokens, output_tokens, cached_input_tokens, cache_write_tokens] = numbers;
    Reported {
        model: model.to_owned(),
        input_tokens,
        output_tokens,
        cached_input_tokens,
        cache_write_tokens,
        is_reported: true,
    }
}

fn unreported(model: &str) -> Reported {
    Reported { model: model.to_owned(), ..Reported::default() }
}

#[test]
fn both_shapes_are_read_in_a_json_body() {
    for (body, expected) in [
        (
            r#"{"id": "1", "model": "m-1", "choices": [{"message": {"content": "hi"}}],
                "usage": {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107,
                          "prompt_tokens_details": {"cached_tokens": 40}}}"#,
            reported("m-1", [60, 7, 40, 0]),
        ),
        (
            r#"{"model":"m-2","output":[],"usage":{"input_tokens":100,"output_tokens":7,"input_tokens_details":{"cached_tokens":40},
                "output_tokens_details":{"reasoning_tokens":5}}}"#,
            reported("m-2", [60, 7, 40, 0]),
        ),
        (
            r#"{"type":"message","model":"m-3","content":[],"usage":{"input_tokens":100,"output_tokens":7,
                "cache_read_input_tokens":40,"cache_creation_input_tokens":20}}"#,
            reported("m-3", [100, 7, 40, 20]),
        ),
        (
            r#"{"usage":{"input_tokens":100,"output_tokens":7},"model":"m-4"}"#,
            reported("m-4", [100, 7, 0, 0]),
        ),
        (r#"{"usage":{"prompt_tokens":8,"total_tokens":8}}"#, reported("", [8, 0, 0, 0])),
        (
            r#"{"usage":{"prompt_tokens":8,"completion_tokens":1,"prompt_tokens_details":null,"cache_read_input_tokens":null}}"#,
            reported("", [8, 1, 0, 0]),
        ),
    ] {
        assert_eq!(read(JSON, body), expected, "{body}");
    }
}

#[test]
fn both_shapes_are_read_in_a_stream_of_events() {
    let chunks = "data: {\"model\":\"m-1\",\"choices\":[],\"usage\":null}\n\n\
        data: {\"model\":\"m-1\",\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":3}}\n\n\
        data: [DONE]\n\n";
    let messages = "event: message_start\r\n\
        data: {\"type\":\"message_start\",\"message\":{\"model\":\"m-2\",\"usage\":{\"input_tokens\":25,\"output_tokens\":1,\
        \"cache_read_input_tokens\":4,\"cache_creation_input_tokens\":2}}}\r\n\r\n\
        : comment\r\n\r\n\
        event: message_delta\r\n\
        data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":15}}\r\n\r\n";
    let responses = "event: response.created\rdata:{\"response\":{\"model\":\"m-3\",\"usage\":null}}\r\r\
        event: response.completed\rid: 7\rdata:{\"response\":{\"model\":\"m-3\",\r\
        data: \"usage\":{\"input_tokens\":10,\"input_tokens_details\":{\"cached_tokens\":4},\"output_tokens\":3}}}";
    for (body, expected) in [
        (chunks, reported("m-1", [10, 3, 0, 0])),
        (messages, reported("m-2", [25, 15, 4, 2])),
        (responses, reported("m-3", [6, 3, 4, 0])),
    ] {
        assert_eq!(read(EVENTS, body), expected, "{body}");
    }
}

#[test]
fn the_greatest_number_of_several_reports_counts() {
    let event = |output| format!("data: {{\"usage\":{{\"input_tokens\":5,\"output_tokens\":{output}}}}}\n\n");
    let body = [event(3), event(9), event(4)].concat();
    assert_eq!(read(EVENTS, &body), reported("", [5, 9, 0, 0]));
}

#[test]
fn a_report_after_many_megabytes_is_read() {
    let text = "x\\\"{[".repeat(1024 * 1024);
    let usage = r#""usage":{"input_tokens":5,"output_tokens":9}"#;
    let body = format!(r#"{{"model":"m","content":[{{"text":"{text}"}}],{usage}}}"#);
    assert_eq!(read(JSON, &body), reported("m", [5, 9, 0, 0]));
    let body = format!("data: {{\"response\":{{\"output\":\"{text}\",{usage}}}}}\n\n");
    assert_eq!(read(EVENTS, &body), reported("", [5, 9, 0, 0]));
}

#[test]
fn what_a_model_writes_is_no_report() {
    let real = r#""usage":{"input_tokens":50,"output_tokens":90}"#;
    let forged = r#"{"usage":{"input_tokens":1099511627776,"output_tokens":-1},"model":"forged"}"#;
    let quoted = serde_json::to_string(forged).unwrap();
    for content in [
        format!(r#"[{{"type":"tool_use","input":{forged}}}]"#),
        format!(r#"{{"message":{forged},"response":{forged}}}"#),
        format!("[{forged}, {quoted}]"),
        quoted.clone(),
    ] {
        for body in [
            format!(r#"{{"model":"m","content":{content},{real}}}"#),
            format!(r#"{{{real},"model":"m","message":{{"content":{content}}},"response":[{content}]}}"#),
            format!(r#"{{"message":{{"x":{content},{real},"model":"m","message":{forged}}}}}"#),
        ] {
            assert_eq!(read(JSON, &body), reported("m", [50, 90, 0, 0]), "{body}");
        }
    }
    let lines = format!(
        "event: {forged}\n: data: {forged}\nid: data: {forged}\ndatum: {forged}\ndata: {{{real}}}\n\n"
    );
    assert_eq!(read(EVENTS, &lines), reported("", [50, 90, 0, 0]));
}

#[test]
fn numbers_that_are_not_tokens_make_the_response_unreported() {
    let good = "data: {\"model\":\"m\",\"usage\":{\"input_tokens\":5}}\n\n";
    for number in ["-1", "1.5", "1e3", "1099511627777", "18446744073709551616", "\"7\"", "{}", "true", "[7]"]
    {
        for usage in [
            format!(r#"{{"input_tokens":5,"output_tokens":{number}}}"#),
            format!(r#"{{"prompt_tokens":5,"prompt_tokens_details":{{"cached_tokens":{number}}}}}"#),
            format!(r#"{{"input_tokens":5,"cache_creation_input_tokens":{number}}}"#),
        ] {
            let body = format!("{good}data: {{\"usage\":{usage}}}\n\n{good}");
            assert_eq!(read(EVENTS, &body), unreported("m"), "{usage}");
        }
    }
    let most = r#"{"usage":{"input_tokens":1099511627776,"output_tokens":0}}"#;
    assert_eq!(read(JSON, most), reported("", [1 << 40, 0, 0, 0]));
}

#[test]
fn more_cached_tokens_than_tokens_leave_none() {
    let body = r#"{"usage":{"prompt_tokens":5,"prompt_tokens_details":{"cached_tokens":9}}}"#;
    assert_eq!(read(JSON, body), reported("", [0, 0, 9, 0]));
}

#[test]
fn responses_without_a_report_say_so() {
    for body in [
        "",
        "{}",
        "null",
        "[]",
        "}}}]]]",
        r#"{"usage":null}"#,
        r#"{"usage":{}}"#,
        r#"{"usage":"none"}"#,
        r#"{"usage":[1]}"#,
        r#"{"usage":{"cached_tokens":1}}"#,
        r#"{"usage":{"input_tokens":5}"#.trim_end_matches('}'),
        r#"[{"usage":{"input_tokens":5}}]"#,
        r#"{"message":"no such model","response":"text"}"#,
    ] {
        assert_eq!(read(JSON, body), unreported(""), "{body}");
    }
    assert_eq!(read(EVENTS, r#"{"usage":{"input_tokens":5}}"#), unreported(""));
    let long = format!(r#"{{"usage":{{"input_tokens":5,"x":"{}"}}}}"#, "x".repeat(16 * 1024));
    assert_eq!(read(JSON, &long), unreported(""));
}

#[test]
fn an_event_does_not_reach_into_the_next_one() {
    let body = "data: {\"open\":\"\n\ndata: {\"usage\":{\"input_tokens\":5}}\n\n";
    assert_eq!(read(EVENTS, body), reported("", [5, 0, 0, 0]));
}

#[test]
fn the_last_event_ends_a_stream_once_it_is_whole() {
    let is_over = |body: &str| {
        let mut usage = Usage::for_response(EVENTS, None);
        body.as_bytes().iter().for_each(|byte| usage.push(&[*byte]));
        usage.is_over()
    };
    for (body, expected) in [
        ("data: [DONE]\n\n", true),
        ("data:[DONE]\r\n\r\n", true),
        ("data: {\"type\":\"message_stop\"}\n\n", true),
        ("data: {\"type\":\"response.completed\",\"response\":{\"usage\":{}}}\n\n", true),
        ("data: [DONE]\n", false),
        ("data: [DONE] \u{7}\n\n", false),
        ("data: {\"type\":\"message_delta\"}\n\n", false),
        ("data: {\"delta\":{\"type\":\"message_stop\"}}\n\n", false),
        ("data: {\"text\":\"[DONE]\"}\n\n: [DONE]\n\n", false),
    ] {
        assert_eq!(is_over(body), expected, "{body}");
    }
    let mut json = Usage::for_response(JSON, None);
    json.push(b"{\"type\":\"message_stop\"}");
    assert!(!json.is_over());
}

#[test]
fn a_body_that_is_cut_off_reports_what_was_complete() {
    let body = "data: {\"message\":{\"usage\":{\"input_tokens\":5,\"output_tokens\":1}}}\n\ndata: {\"usage\":{\"outp";
    assert_eq!(read(EVENTS, body), reported("", [5, 1, 0, 0]));
}

#[test]
fn only_plain_bodies_of_known_types_are_read() {
    let body = br#"{"usage":{"input_tokens":5}}"#;
    for (content_type, encoding, is_reported) in [
        ("application/json", None, true),
        ("Application/JSON ; charset=utf-8", Some("identity"), true),
        ("application/vnd.example+json", Some(""), true),
        ("application/x-ndjson", Some(" Identity "), true),
        ("application/json", Some("gzip"), false),
        ("application/json", Some("identity, br"), false),
        ("text/html", None, false),
        ("", None, false),
    ] {
        let mut usage = Usage::for_response(content_type, encoding);
        usage.push(body);
        assert_eq!(usage.finish().is_reported, is_reported, "{content_type} {encoding:?}");
    }
}

#[test]
fn a_model_has_a_short_visible_name() {
    let long = "m".repeat(200);
    let quoted = format!("\"{long}\"");
    for (name, expected) in [
        (r#""m/1.5:x@y""#, "m/1.5:x@y"),
        (r#""m\u002d1""#, "m-1"),
        (r#""m 1""#, ""),
        (r#""m\n1""#, ""),
        ("\"m\u{e9}\"", ""),
        ("7", ""),
        ("null", ""),
        ("{}", ""),
        (quoted.as_str(), &long[..128]),
    ] {
        assert_eq!(read(JSON, &format!("{{\"model\":{name}}}")), unreported(expected), "{name}");
    }
    let first = r#"{"model":"first","response":{"model":"second"}}"#;
    assert_eq!(read(JSON, first), unreported("first"));
}

/// A JSON value, often with the fields that are read.
fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        (-1_i64..50).prop_map(|number| number.to_string()),
        "[a-z{}\\[\\],:\" \\\\]{0,12}".prop_map(|text| serde_json::to_string(&text).unwrap()),
    ];
    leaf.prop_recursive(4, 40, 4, |inner| {
        let names = ["usage", "model", "message", "response", "input_tokens", "output_tokens", "a"];
        let name = prop::sample::select(names.to_vec());
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|values| format!("[{}]", values.join(","))),
            prop::collection::btree_map(name, inner, 0..5).prop_map(|fields| {
                let fields: Vec<_> =
                    fields.iter().map(|(name, value)| format!("\"{name}\" : {value}")).collect();
                format!("{{{}}}", fields.join(", "))
            }),
        ]
    })
}

/// Reads a JSON text with a parser that keeps all of it.
fn read_whole(body: &str) -> Reported {
    let mut counts = Counts::default();
    if let Ok(Value::Object(fields)) = serde_json::from_str(body) {
        add_fields(&fields, true, &mut counts);
    }
    counts.reported()
}

fn add_fields(fields: &Map<String, Value>, is_outermost: bool, counts: &mut Counts) {
    for (name, value) in fields {
        let text = value.to_string();
        match (name.as_str(), value) {
            ("usage", _) => counts.add(Field::Usage, Some(text.as_bytes())),
            ("model", _) => counts.add(Field::Model, Some(text.as_bytes())),
            ("message" | "response", Value::Object(inner)) if is_outermost => {
                add_fields(inner, false, counts);
            }
            _ => {}
        }
    }
}

proptest! {
    #[test]
    fn the_report_is_the_same_as_of_a_parser_that_keeps_all(body in value()) {
        prop_assert_eq!(read(JSON, &body), read_whole(&body), "{}", body);
    }

    #[test]
    fn any_division_reports_the_same(
        body in prop::collection::vec(value(), 1..4),
        is_stream in any::<bool>(),
        size in 1_usize..9,
    ) {
        let (content_type, body) = if is_stream {
            (EVENTS, body.iter().map(|value| format!("data: {value}\r\n\r\n")).collect::<Vec<_>>().concat())
        } else {
            (JSON, body.concat())
        };
        prop_assert_eq!(read_pieces(content_type, body.as_bytes().chunks(size)), read(content_type, &body));
    }

    #[test]
    fn no_bytes_are_too_odd(bytes in prop::collection::vec(any::<u8>(), 0..200), is_stream in any::<bool>()) {
        let content_type = if is_stream { EVENTS } else { JSON };
        let whole = read_pieces(content_type, std::iter::once(&bytes[..]));
        prop_assert_eq!(read_pieces(content_type, bytes.chunks(1)), whole);
    }

    #[test]
    fn a_report_is_found_beside_any_other_field(
        others in prop::collection::vec(value(), 0..4),
        input in 0_u64..=1 << 40,
        output in 0_u64..=1 << 40,
    ) {
        let others: Vec<_> = others.iter().map(|value| format!("\"content\": {value},")).collect();
        let others = others.concat();
        let body = format!(r#"{{{others}"usage":{{"input_tokens":{input},"output_tokens":{output}}}}}"#);
        prop_assert_eq!(read(JSON, &body), reported("", [input, output, 0, 0]));
    }
}
