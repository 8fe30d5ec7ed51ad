//! The use of models by runs, and budgets.

use std::time::Duration;

use harness::{Daemon, requests, v1};
use serde_json::{Value, json};

use super::server::Server;
use super::{daemon, shell};
use crate::cli::{json as printed, out};

/// Waits until so many tokens of requests are counted, and returns the use that the command prints.
async fn counted(daemon: &Daemon, line: &[&str], input: &str) -> Value {
    let mut shown = Value::Null;
    for _ in 0..1_200 {
        shown = printed(daemon, line).await;
        if shown["total"]["inputTokens"] == input {
            return shown;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("{input} tokens are never counted: {shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn n160_the_use_of_models_is_counted_bounded_shown_and_outlives_the_daemon() {
    let model = Server::model().await;
    let port = model.port;
    let mut daemon = daemon(&format!(
        "{{ networks: [\"127.0.0.0/8\"], budget: {{ run: {{ requests: 3 }}, day: {{ tokens: 1000 }} }}, rules: [\
         {{ host: files.example.org, ports: [{port}], scheme: http, meter: tokens, decision: allow }}] }}"
    ))
    .await;
    let mut run = daemon.run_on(requests::managed("out")).await;
    let id = run.id().to_owned();
    for _ in 0..3 {
        let (code, said) = shell(&mut run, &format!("wget -qO- http://files.example.org:{port}/v1")).await;
        assert_eq!(code, Some(0), "{said}");
    }
    let shown = counted(&daemon, &["usage", "--run", &id], "60").await;
    let use_of_model =
        json!({ "requests": "3", "inputTokens": "60", "outputTokens": "30", "unpricedTokens": "90" });
    assert_eq!(shown["total"], use_of_model, "{shown}");
    assert_eq!(shown["groups"], json!([{ "name": "small-1", "counts": use_of_model }]));
    assert_eq!(
        shown["bounds"][0],
        json!({ "scope": "RUN", "unit": "REQUESTS", "used": "3", "limit": "3" }),
        "{shown}"
    );
    assert_eq!((&shown["bounds"][1]["scope"], &shown["bounds"][1]["used"]), (&"DAY".into(), &"90".into()));

    let script = format!(
        "printf 'GET /v1 HTTP/1.1\\r\\nHost: files.example.org:{port}\\r\\nConnection: close\\r\\n\\r\\n' \
         | nc -w 5 files.example.org {port}"
    );
    let (_, said) = shell(&mut run, &script).await;
    assert!(said.starts_with("HTTP/1.1 403 ") && said.contains("\"budget_exceeded\""), "{said}");
    assert!(said.contains("3 of 3 requests by this run"), "{said}");
    assert!(!said.to_lowercase().contains("retry-after"), "{said}");

    let facts = out(&daemon, &["run", "show", &id]).await;
    assert!(
        facts.contains("3 requests, 90 tokens") && facts.contains("0 of 3 requests for the run"),
        "{facts}"
    );
    let mut other = daemon.run_on(requests::managed("out")).await;
    let (code, said) = shell(&mut other, &format!("wget -qO- http://files.example.org:{port}/v1")).await;
    assert_eq!(code, Some(0), "another run has a budget of its own: {said}");
    counted(&daemon, &["usage"], "80").await;

    daemon.stop().await;
    daemon.launch().await;
    let shown = printed(&daemon, &["usage", "--by", "principal", "--days", "2"]).await;
    assert_eq!((&shown["total"]["requests"], &shown["total"]["outputTokens"]), (&"4".into(), &"40".into()));
    assert_eq!(shown["groups"][0]["name"], "uid:0", "{shown}");
    let request = v1::GetUsageRequest { run_id: id, ..Default::default() };
    let mut client = v1::usage_service_client::UsageServiceClient::new(daemon.connect().await.channel);
    let of_run = client.get_usage(request).await.unwrap().into_inner();
    assert_eq!(of_run.total.unwrap().requests, 3, "{of_run:?}");
}
