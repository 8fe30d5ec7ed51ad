use serde_json::{Value, json};
use timestamp::UnixMillis;

use super::{Form, MAX_LISTED, News, body};
use crate::board::Notice;

const RUN: &str = "0198a1b2-0000-7000-8000-00000000aaaa";

fn notice(nr: usize) -> Notice {
    Notice {
        approval_id: format!("0198a1b2-0000-7000-8000-0000000000{nr:02}"),
        run_id: RUN.into(),
        operation: "write".into(),
        profile: "review".into(),
        risk: "high",
        requested_by: "uid:1000".into(),
        expires_at: UnixMillis(100_000),
        preview: "<!channel> *x* [y](https://evil.example)\u{202e}\u{1b}[2J the-secret-argument".into(),
    }
}

fn made(form: Form, count: usize, details: bool) -> Value {
    let news = News {
        run_id: RUN.into(),
        new: (0..count).map(notice).collect(),
        ended: vec![("0198a1b2-0000-7000-8000-00000000bbbb".into(), "DENIED")],
        waiting: 7,
    };
    let link = |id: &str| format!("https://console.example.org/approvals/{id}");
    body(form, &news, details, &link, UnixMillis(40_000))
}

/// Every text in a body, with the key that it is under.
fn texts<'v>(key: &'v str, value: &'v Value, found: &mut Vec<(&'v str, &'v str)>) {
    match value {
        Value::String(text) => found.push((key, text)),
        Value::Array(items) => items.iter().for_each(|item| texts(key, item, found)),
        Value::Object(fields) => fields.iter().for_each(|(key, value)| texts(key, value, found)),
        _ => {}
    }
}

#[test]
fn a_standard_message_has_what_may_leave_the_host_and_no_more() {
    let expected = json!({
        "type": "approval.waiting",
        "timestamp_ms": 40_000,
        "data": {
            "run_id": RUN,
            "approvals": [{
                "approval_id": "0198a1b2-0000-7000-8000-000000000000",
                "operation": "write",
                "profile": "review",
                "risk": "high",
                "expires_at_ms": 100_000,
                "left_s": 60,
                "link": "https://console.example.org/approvals/0198a1b2-0000-7000-8000-000000000000",
            }],
            "more": 0,
            "ended": [{ "approval_id": "0198a1b2-0000-7000-8000-00000000bbbb", "state": "DENIED" }],
            "waiting_in_all": 7,
        },
    });
    assert_eq!(made(Form::Standard, 1, false), expected);
}

#[test]
fn arguments_leave_the_host_only_on_request_and_are_never_markup() {
    for form in [Form::Standard, Form::Slack, Form::Teams] {
        let without = made(form, 2, false).to_string();
        assert!(!without.contains("the-secret-argument") && !without.contains("uid:1000"), "{without}");
        let with = made(form, 2, true);
        let text = with.to_string();
        assert!(text.contains("the-secret-argument"), "{text}");
        assert!(!text.contains('\u{202e}') && !text.contains("\\u001b"), "{text}");
        let mut found = Vec::new();
        texts("", &with, &mut found);
        for (key, _) in found.iter().filter(|(_, text)| text.contains("<!channel>")) {
            assert_eq!(*key, if form == Form::Standard { "preview" } else { "text" });
        }
        assert!(!found.iter().any(|(_, text)| matches!(*text, "mrkdwn" | "TextBlock")), "{text}");
    }
    // The text beside the blocks is the only one that Slack reads as markup.
    assert_eq!(made(Form::Slack, 1, true)["text"], "Cofferdam: a call of run 0000aaaa waits for approval");
}

#[test]
fn a_long_list_is_cut_and_counted() {
    let many = MAX_LISTED + 3;
    let standard = made(Form::Standard, many, true);
    assert_eq!(standard["data"]["approvals"].as_array().unwrap().len(), MAX_LISTED);
    assert_eq!(standard["data"]["more"], 3);
    let slack = made(Form::Slack, many, true);
    // Slack takes at most 50 blocks, and 3,000 characters in each.
    assert_eq!(slack["blocks"].as_array().unwrap().len(), 1 + MAX_LISTED + 2);
    for form in [Form::Slack, Form::Teams] {
        let text = made(form, many, true).to_string();
        assert!(text.contains("and 3 more") && text.contains("0000bbbb denied"), "{text}");
        assert!(text.len() < 28 * 1024, "Teams takes 28 KB: {}", text.len());
    }
    assert_eq!(made(Form::Standard, 0, false)["type"], "approval.ended");
}
