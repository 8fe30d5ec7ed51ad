use std::time::Duration;

use audit::Kind;
use serde_json::{Value, json};
use wire::worker::v1::connection_ended::Cause;
use wire::worker::v1::from_egress::Body as From;
use wire::worker::v1::model_usage::Extent;
use wire::worker::v1::to_egress::Body as To;
use wire::worker::v1::{ConnectionEnded, ConnectionReady, ModelUsage, PlaceholderSeen};

use super::*;
use crate::testing::{ADDRESS, Played, VALUE, asked, rules};

const OPENED: &str = r#"{"networks": ["203.0.113.0/24"], "rules": [{"host": "api.example.org", "ports": [443],
    "paths": ["/v1/*"], "inject": {"header": "Authorization", "value": "Bearer ${secret:model}"}, "meter": "tokens",
    "decision": "allow"}], "budget": {"run": {"requests": 2, "tokens": 1000}}}"#;

fn answer(message: To) -> Decision {
    let To::Answer(answer) = message else { panic!("no answer: {message:?}") };
    answer.decision.unwrap()
}

fn refusal(message: To) -> (u32, String, String) {
    let Decision::Refusal(refusal) = answer(message) else { panic!("it was granted") };
    assert_eq!(refusal.content_type, "application/json");
    let body: Value = serde_json::from_slice(&refusal.body).unwrap();
    let text = |key: &str| body["error"][key].as_str().unwrap().to_owned();
    (refusal.status, text("type"), text("message"))
}

fn ended() -> From {
    let cause = Cause::Closed.into();
    From::Ended(ConnectionEnded { cause, bytes_out: 1, bytes_in: 2, ..ConnectionEnded::default() })
}

fn tokens(request: u64, output_tokens: u64) -> From {
    From::Usage(ModelUsage {
        request,
        model: "large-3".to_owned(),
        input_tokens: 10,
        output_tokens,
        is_reported: true,
        extent: Extent::Whole.into(),
        ..ModelUsage::default()
    })
}

#[tokio::test]
async fn a_request_gets_its_secret_and_the_record_has_the_name_alone() {
    let mut played = Played::new(OPENED);
    let (inspect, dial) = played.connect("api.example.org", 443).await;
    assert!(inspect.open && inspect.ask && inspect.meter && inspect.upstream.is_none());
    assert_eq!(inspect.paths[0].patterns, ["/v1/*"]);
    assert!(matches!(dial, To::Dial(_)), "{dial:?}");
    let Decision::Grant(grant) = answer(played.ask(1).await) else { panic!("refused") };
    assert_eq!(grant.headers.len(), 1);
    assert_eq!(grant.headers[0].name, "authorization");
    assert_eq!(grant.headers[0].value, format!("Bearer {VALUE}").into_bytes());
    assert_eq!(grant.hide, [VALUE.as_bytes()]);
    played.say(2, tokens(1, 20)).await;
    played.say(2, tokens(1, 20)).await;
    played.say(2, ended()).await;
    let receipt = played.recorded(Kind::EgressReceipt).await;
    let counts = json!({
        "model": "large-3", "requests": 1, "input_tokens": 10, "output_tokens": 20, "cached_input_tokens": 0, "cache_write_tokens": 0,
    });
    assert_eq!(receipt["usage"], json!([counts]), "a second report counts nothing");
    assert_eq!(receipt["injected"], json!(["model"]));
    assert_eq!((&receipt["opened"], &receipt["calls"]), (&json!(true), &json!(["call"])));
    assert_eq!(receipt["requests"][0]["number"], 1);
    assert!(!played.log().contains(VALUE));
}

#[tokio::test]
async fn a_budget_that_is_used_up_refuses_and_its_warning_is_on_record() {
    let mut played = Played::new(OPENED);
    played.connect("api.example.org", 443).await;
    for number in 1..=2 {
        assert!(matches!(answer(played.ask(number).await), Decision::Grant(_)), "{number}");
    }
    let (status, kind, message) = refusal(played.ask(3).await);
    assert_eq!((status, kind.as_str()), (403, "budget_exceeded"));
    assert!(message.contains("2 of 2 requests"), "{message}");
    let refused = played.recorded(Kind::EgressRefused).await;
    assert_eq!(refused["rule"], "egress: budget");
    played.say(2, tokens(1, 900)).await;
    let warning = played.recorded(Kind::ModelBudget).await;
    assert_eq!(warning["host"], "api.example.org");
    assert_eq!(warning["calls"], json!(["call"]));
}

#[tokio::test]
async fn requests_whose_tokens_are_not_said_are_counted_at_the_end() {
    let mut played = Played::new(OPENED);
    played.connect("api.example.org", 443).await;
    played.ask(1).await;
    played.say(2, ended()).await;
    let receipt = played.recorded(Kind::EgressReceipt).await;
    assert_eq!(receipt["usage"][0]["unreported"], 1);
}

#[tokio::test]
async fn a_secret_that_cannot_be_read_is_named_and_nothing_goes_out() {
    let mut played = Played::new(&OPENED.replace("secret:model", "secret:lost"));
    played.connect("api.example.org", 443).await;
    let (status, kind, message) = refusal(played.ask(1).await);
    assert_eq!((status, kind.as_str()), (502, "secret_unavailable"));
    assert!(message.contains("the secret lost cannot be read"), "{message}");
    assert_eq!(played.recorded(Kind::EgressRefused).await["rule"], "egress: secrets");
    assert_eq!(played.state.outside.shared().ledger.of_run("run").requests, 0);
}

#[tokio::test]
async fn a_request_is_judged_by_the_rules_of_its_moment_and_the_connection_ends() {
    let mut played = Played::new(OPENED);
    played.connect("api.example.org", 443).await;
    let without =
        OPENED.replace(r#""inject": {"header": "Authorization", "value": "Bearer ${secret:model}"},"#, "");
    assert_ne!(without, OPENED);
    *played.daemon.rules.lock() = rules(&without);
    let (status, kind, message) = refusal(played.ask(1).await);
    assert_eq!((status, kind.as_str()), (403, "refused"));
    assert!(message.contains("the rules have changed"), "{message}");
    let To::End(end) = played.hear().await else { panic!("it goes on") };
    assert!(end.http_body.contains("the rules have changed"), "{}", end.http_body);

    let mut played = Played::new(OPENED);
    played.connect("api.example.org", 443).await;
    *played.daemon.rules.lock() = rules("{}");
    assert_eq!(refusal(played.ask(1).await).0, 403);
}

#[tokio::test]
async fn a_placeholder_elsewhere_is_on_record_by_variable_and_name() {
    let mut played = Played::new(OPENED);
    played.connect("api.example.org", 443).await;
    let seen = |index, place: &str| From::Placeholder(PlaceholderSeen { index, place: place.to_owned() });
    played.say(2, seen(0, "body")).await;
    let refused = played.recorded(Kind::EgressRefused).await;
    assert_eq!((&refused["placeholder"], &refused["secret_name"]), (&json!("API_KEY"), &json!("model")));
    assert!(refused["why"].as_str().unwrap().starts_with("the body of a request"), "{refused}");
    assert!(!played.log().contains("key-x"));
    played.say(2, ended()).await;
    assert!(played.recorded(Kind::EgressReceipt).await["why"].is_string());
    played.say(2, seen(1, "body")).await;
    assert_eq!(played.broken().await, "it sent a placeholder that the run lacks");
}

#[tokio::test]
async fn a_door_to_a_model_connects_to_its_upstream() {
    let mut played = Played::new(
        r#"{"networks": ["203.0.113.0/24"], "rules": [{"host": "model.internal", "ports": [80], "scheme": "http",
            "upstream": "https://real.example.org:8443/base", "paths": ["/v1/*"],
            "inject": {"basic": {"user": "reader", "password": "${secret:model}"}}, "decision": "allow"}]}"#,
    );
    let (inspect, dial) = played.connect("model.internal", 80).await;
    let upstream = inspect.upstream.unwrap();
    assert_eq!((upstream.tls, upstream.host.as_str(), upstream.port), (true, "real.example.org", 8443));
    assert_eq!((upstream.path.as_str(), inspect.open, inspect.meter), ("/base", false, false));
    let To::Dial(dial) = dial else { panic!("it does not go out: {dial:?}") };
    assert_eq!((dial.port, dial.addresses), (8443, vec![ADDRESS.octets().to_vec()]));
    let Decision::Grant(grant) = answer(played.ask(1).await) else { panic!("refused") };
    let credentials = BASE64_STANDARD.encode(format!("reader:{VALUE}"));
    assert_eq!(grant.headers[0].value, format!("Basic {credentials}").into_bytes());
    assert_eq!(grant.hide, [VALUE.as_bytes(), credentials.as_bytes()]);
    played.say(2, ended()).await;
    let receipt = played.recorded(Kind::EgressReceipt).await;
    assert_eq!(receipt["upstream"], "https://real.example.org:8443/base");
    assert_eq!((&receipt["opened"], &receipt["usage"]), (&Value::Null, &Value::Null));
}

#[tokio::test(start_paused = true)]
async fn a_process_that_reads_no_answers_is_held_up() {
    let mut played = Played::new(&OPENED.replace(r#""meter": "tokens","#, ""));
    let (inspect, _) = played.connect("api.example.org", 443).await;
    assert!(inspect.ask && !inspect.meter, "no other bound applies");
    let (most, mut number) = (5_000, 0);
    while number < most {
        number += 1;
        if tokio::time::timeout(Duration::from_secs(60), played.say(2, asked(number))).await.is_err() {
            break;
        }
        // The runtime is idle then, and the question is decided about.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(number < most, "each question is a task that waits for its answer to be read");
}

#[tokio::test]
async fn a_question_out_of_turn_ends_the_process() {
    let mut played = Played::new(OPENED);
    played.say(9, asked(1)).await;
    assert_eq!(played.broken().await, "it sent a request of no connection");

    let mut played = Played::new(OPENED);
    played.connect("api.example.org", 443).await;
    played.say(2, asked(0)).await;
    assert_eq!(played.broken().await, "it sent a question about no request");

    // Before the connection is on record.
    let mut played = Played::new(OPENED);
    played.open("api.example.org", 443).await;
    played.say(2, From::Connection(ConnectionReady::default())).await;
    played.say(2, asked(1)).await;
    assert_eq!(played.broken().await, "it sent a question out of turn");

    let unasked = r#"{"networks": ["203.0.113.0/24"], "rules": [{"host": "api.example.org", "ports": [443],
        "decision": "allow"}]}"#;
    let mut played = Played::new(unasked);
    let (inspect, _) = played.connect("api.example.org", 443).await;
    assert!(!inspect.open && !inspect.ask && inspect.paths.is_empty());
    played.say(2, asked(1)).await;
    assert_eq!(played.broken().await, "it sent a question out of turn");
}
