//! The door to a model: usage on record, and budgets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use harness::requests;
use tokio::task::JoinSet;

use super::super::{details, shell};
use super::{Keys, Origin, ok};

fn door(port: u16) -> String {
    format!(
        "{{ host: model.example.org, ports: [80], scheme: http, upstream: \"https://files.example.org:{port}/base\", \
         inject: {{ header: x-api-key, value: \"${{secret:model}}\" }}, paths: [\"/v1/*\"], meter: tokens, decision: allow }}"
    )
}

const COMPLETION: &str = "{\"model\":\"m-1\",\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":7,\"prompt_tokens_details\":{\"cached_tokens\":4}}}";

/// Events of a message, with usage at both ends.
const EVENTS: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"m-2\",\
    \"usage\":{\"input_tokens\":100,\"output_tokens\":1,\"cache_read_input_tokens\":50}}}\n\n\
    event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":20}}\n\n";

#[tokio::test(flavor = "multi_thread")]
async fn s9_usage_of_both_shapes_is_on_record_by_model() {
    let keys = Keys::make();
    let origin = Origin::start(Some(&keys.certificates), |request| {
        if request.contains("/messages") {
            ok("text/event-stream", EVENTS)
        } else {
            ok("application/json", COMPLETION)
        }
    })
    .await;
    let daemon = keys.daemon(&[door(origin.port)], "").await;
    let mut run = daemon.run_on(requests::managed("out")).await;
    let (code, said) = shell(
        &mut run,
        "wget -qO- --post-data '{}' http://model.example.org/v1/chat; wget -qO- --post-data '{}' http://model.example.org/v1/messages",
    )
    .await;
    assert_eq!((code, said), (Some(0), format!("{COMPLETION}{EVENTS}")));
    assert!(origin.requests()[0].starts_with("POST /base/v1/chat HTTP/1.1\r\n"), "{:?}", origin.requests());

    let receipts = details(&mut run, "egress_receipt", 2).await;
    let of = |model: &str| {
        let mut found = receipts.iter().flat_map(|receipt| receipt["usage"].as_array().unwrap());
        let found = found.find(|usage| usage["model"] == model);
        found.unwrap_or_else(|| panic!("no usage of {model}: {receipts:?}")).clone()
    };
    let (one, other) = (of("m-1"), of("m-2"));
    assert_eq!(
        (&one["input_tokens"], &one["output_tokens"], &one["cached_input_tokens"]),
        (&7.into(), &7.into(), &4.into())
    );
    assert_eq!(
        (&other["input_tokens"], &other["output_tokens"], &other["cached_input_tokens"]),
        (&100.into(), &20.into(), &50.into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn s10_a_budget_of_requests_is_exact_when_many_race_for_it() {
    const MOST: usize = 20;
    let keys = Keys::make();
    let served = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&served);
    let origin = Origin::start(Some(&keys.certificates), move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        ok("application/json", COMPLETION)
    })
    .await;
    let budget = format!(", budget: {{ run: {{ requests: {MOST} }} }}");
    let daemon = keys.daemon(&[door(origin.port)], &budget).await;
    let run = daemon.run_on(requests::managed("out")).await;
    let mut asked = JoinSet::new();
    for _ in 0..4 {
        let mut run = run.clone();
        asked.spawn(async move {
            let script = "for i in $(seq 15); do wget -qO- --post-data x http://model.example.org/v1/a >/dev/null 2>&1 && echo yes; done; true";
            shell(&mut run, script).await.1.lines().count()
        });
    }
    let passed: usize = asked.join_all().await.into_iter().sum();
    assert_eq!((passed, served.load(Ordering::SeqCst)), (MOST, MOST as u64));
    let mut run = run;
    let script = "printf 'POST /v1/a HTTP/1.1\\r\\nHost: model.example.org\\r\\nContent-Length: 0\\r\\nConnection: close\\r\\n\\r\\n' | nc -w 5 model.example.org 80";
    let (_, said) = shell(&mut run, script).await;
    assert!(said.starts_with("HTTP/1.1 403") && said.contains("budget_exceeded"), "{said}");
    assert!(!said.to_ascii_lowercase().contains("retry-after"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_a_budget_of_tokens_is_refused_beyond_and_warned_of_before() {
    let keys = Keys::make();
    let origin = Origin::start(Some(&keys.certificates), |_| ok("application/json", COMPLETION)).await;
    // 18 tokens a request: the fifth begins at 72, and the sixth would begin at 90.
    let daemon = keys.daemon(&[door(origin.port)], ", budget: { run: { tokens: 80 } }").await;
    let mut run = daemon.run_on(requests::managed("out")).await;
    let script = "for i in 1 2 3 4 5 6; do wget -qO- --header 'Content-Type: application/json' --post-data '{}' http://model.example.org/v1/a >/dev/null 2>&1 && echo yes; sleep 0.3; done; true";
    let (_, said) = shell(&mut run, script).await;
    assert_eq!(said.lines().count(), 5, "{said}");
    assert_eq!(origin.requests().len(), 5);
    let refused = details(&mut run, "egress_refused", 1).await;
    assert!(refused.iter().any(|refused| refused.to_string().contains("tokens")), "{refused:?}");
    // A body that could hide how much it allows its answer.
    let script = "printf 'POST /v1/a HTTP/1.1\\r\\nHost: model.example.org\\r\\nContent-Type: text/plain\\r\\nContent-Length: 2\\r\\nConnection: close\\r\\n\\r\\n{}' | nc -w 5 model.example.org 80";
    let (_, said) = shell(&mut run, script).await;
    assert!(said.starts_with("HTTP/1.1 403") && said.contains("body_unreadable"), "{said}");
}
