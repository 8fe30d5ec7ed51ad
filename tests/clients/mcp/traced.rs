//! Traces of MCP clients: a request has its context in `_meta`.

use harness::record;

use super::http::{INITIALIZE, bearer, daemon, post, session_of};
use super::run_with_token;

#[tokio::test(flavor = "multi_thread")]
async fn the_context_of_a_request_is_kept_in_the_record() {
    let (daemon, port) = daemon("").await;
    let workspace = daemon.workspace("w", &[]);
    let (mut run, token) = run_with_token(&daemon, "open", &workspace).await;
    let bearer = bearer(&token);
    let session = session_of(&post(port, &[("Authorization", &bearer)], INITIALIZE).await);
    let context = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let long = "x".repeat(1_000);
    for traceparent in [context, "nonsense", &long] {
        let call = format!(
            r#"{{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{{"_meta":{{"traceparent":"{traceparent}"}},"name":"bash","arguments":{{"command":"true"}}}}}}"#
        );
        let answer = post(port, &[("Authorization", &bearer), ("Mcp-Session-Id", &session)], &call).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    let id = run.id().to_owned();
    let receipts = run.clients.events_when(&id, "call_receipt", |events| events.len() == 3).await;
    let traces: Vec<_> = receipts.iter().map(|event| record(event)["traceparent"].clone()).collect();
    assert_eq!(traces, [serde_json::json!(context), serde_json::Value::Null, serde_json::Value::Null]);
}
