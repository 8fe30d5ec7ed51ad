use audit::Kind;
use egress_rules::Budget;
use serde_json::Value;
use timestamp::Timestamp;
use wire::worker::v1::connection_ended::Cause;
use wire::worker::v1::from_egress::Body as From;
use wire::worker::v1::model_usage::Extent;
use wire::worker::v1::request_answer::Decision;
use wire::worker::v1::to_egress::Body as To;
use wire::worker::v1::{ConnectionEnded, ModelAsked, ModelUsage, RequestRefusal};

use crate::testing::{Played, asked};

/// Two requests of 500 tokens reserve the whole budget of a run.
const METERED: &str = r#"{"networks": ["203.0.113.0/24"], "rules": [{"host": "api.example.org", "ports": [443],
    "paths": ["/v1/*"], "inject": {"header": "Authorization", "value": "Bearer ${secret:model}"}, "meter": "tokens",
    "decision": "allow"}], "budget": {"run": {"tokens": 1000}, "assume_tokens": 400}}"#;

/// Asks about a request to a model that reserves 500 tokens.
fn question(number: u64) -> From {
    let From::Asked(mut question) = asked(number) else { unreachable!() };
    let model = "large-3".to_owned();
    question.model = Some(ModelAsked { body_bytes: 400, model, ..ModelAsked::default() });
    From::Asked(question)
}

async fn decision(played: &mut Played, number: u64) -> Result<(), RequestRefusal> {
    played.say(2, question(number)).await;
    let To::Answer(answer) = played.hear().await else { panic!("no answer") };
    assert_eq!(answer.request, number);
    match answer.decision.unwrap() {
        Decision::Grant(_) => Ok(()),
        Decision::Refusal(refusal) => Err(refusal),
    }
}

fn usage(request: u64, extent: Extent, output_tokens: u64) -> From {
    From::Usage(ModelUsage {
        request,
        is_reported: output_tokens > 0,
        output_tokens,
        extent: extent.into(),
        body_bytes: 40,
        ..ModelUsage::default()
    })
}

fn ended() -> From {
    From::Ended(ConnectionEnded { cause: Cause::Reset.into(), ..ConnectionEnded::default() })
}

/// Returns the tokens that are charged to the run.
fn charged(played: &Played) -> u64 {
    played.state.outside.shared().ledger.of_run("run").tokens.total()
}

/// Returns true if a request that reserves nothing finds room.
fn has_room(played: &Played) -> bool {
    let ledger = &played.state.outside.shared().ledger;
    let budget: Budget = played.state.control.rules().budget();
    let nothing = model_usage::Estimate::nothing();
    ledger.admit(&played.state.own.who, &budget, nothing, Timestamp::now()).is_ok()
}

#[tokio::test]
async fn a_budget_that_is_reserved_may_be_tried_again_and_one_that_is_used_up_may_not() {
    let mut played = Played::new(METERED);
    played.connect("api.example.org", 443).await;
    for number in 1..=2 {
        assert!(decision(&mut played, number).await.is_ok());
    }
    let refused = decision(&mut played, 3).await.unwrap_err();
    assert_eq!((refused.status, refused.retry_after_s), (429, 1));
    let body: Value = serde_json::from_slice(&refused.body).unwrap();
    assert_eq!(body["error"]["type"], "budget_reserved");
    assert!(body["error"]["message"].as_str().unwrap().contains("1000 of 1000 tokens by this run"), "{body}");

    played.say(2, usage(1, Extent::Whole, 20)).await;
    assert!(decision(&mut played, 4).await.is_ok(), "the report has freed the rest");
    played.say(2, usage(2, Extent::Whole, 990)).await;
    let refused = decision(&mut played, 5).await.unwrap_err();
    assert_eq!((refused.status, refused.retry_after_s), (403, 0));
    assert_eq!(charged(&played), 1_010);
}

#[tokio::test]
async fn a_body_that_could_hide_the_bound_of_its_answer_is_refused_under_a_budget_of_tokens() {
    let unread = |number| {
        let From::Asked(mut question) = question(number) else { unreachable!() };
        question.model = Some(ModelAsked { is_unread: true, ..question.model.unwrap() });
        From::Asked(question)
    };
    for (budget, status) in [("\"tokens\": 1000", 403), ("\"usd\": \"5\"", 403), ("\"requests\": 9", 200)] {
        let rules = METERED.replace("\"tokens\": 1000", budget);
        let mut played = Played::new(&rules);
        played.connect("api.example.org", 443).await;
        played.say(2, unread(1)).await;
        let To::Answer(answer) = played.hear().await else { panic!("no answer") };
        match answer.decision.unwrap() {
            Decision::Grant(_) => assert_eq!(status, 200, "{budget}"),
            Decision::Refusal(refusal) => {
                assert_eq!((refusal.status, refusal.retry_after_s), (status, 0), "{budget}");
                let body: Value = serde_json::from_slice(&refusal.body).unwrap();
                assert_eq!(body["error"]["type"], "body_unreadable", "{body}");
                let ledger = &played.state.outside.shared().ledger;
                assert_eq!(ledger.of_run("run").requests, 0, "it does not count");
            }
        }
    }
}

#[tokio::test]
async fn a_body_that_found_no_memory_is_refused_under_a_budget_of_tokens_until_later() {
    let crowded = |number| {
        let From::Asked(mut question) = question(number) else { unreachable!() };
        let model = question.model.unwrap();
        question.model = Some(ModelAsked { is_unread: true, lacked_memory: true, ..model });
        From::Asked(question)
    };
    let mut played = Played::new(METERED);
    played.connect("api.example.org", 443).await;
    played.say(2, crowded(1)).await;
    let To::Answer(answer) = played.hear().await else { panic!("no answer") };
    let Some(Decision::Refusal(refusal)) = answer.decision else { panic!("it was granted") };
    assert_eq!((refusal.status, refusal.retry_after_s), (503, 5));
    let body: Value = serde_json::from_slice(&refusal.body).unwrap();
    assert_eq!(body["error"]["type"], "overloaded", "{body}");
    let refused = played.recorded(Kind::EgressRefused).await;
    assert_eq!(refused["rule"], "egress: memory", "{refused}");
    assert_eq!(played.state.outside.shared().ledger.of_run("run").requests, 0, "it does not count");
    for number in 2..=3 {
        assert!(decision(&mut played, number).await.is_ok(), "it holds nothing of the budget: {number}");
    }
    // Without a bound of tokens its estimate is assumed.
    let mut played = Played::new(&METERED.replace("\"tokens\": 1000", "\"requests\": 9"));
    played.connect("api.example.org", 443).await;
    played.say(2, crowded(1)).await;
    let To::Answer(answer) = played.hear().await else { panic!("no answer") };
    assert!(matches!(answer.decision, Some(Decision::Grant(_))));
}

#[tokio::test]
async fn a_stream_that_its_program_leaves_is_charged_at_once_and_holds_nothing() {
    let mut played = Played::new(METERED);
    played.connect("api.example.org", 443).await;
    for number in 1..=5 {
        assert!(decision(&mut played, number).await.is_ok(), "{number}");
        played.say(2, usage(number, Extent::Cut, 0)).await;
    }
    assert!(decision(&mut played, 6).await.is_ok());
    // The input of 400 bytes and 40 bytes of the answer, five times.
    assert_eq!(charged(&played), 5 * (100 + 10));
    played.say(2, usage(6, Extent::Unanswered, 0)).await;
    let refused = decision(&mut played, 7).await.unwrap_err();
    assert_eq!(refused.status, 403, "nothing was seen of the answer, so all that was reserved counts");
    assert_eq!(charged(&played), 550 + 500);
}

#[tokio::test]
async fn a_connection_that_ends_settles_all_of_its_requests() {
    let mut played = Played::new(METERED);
    played.connect("api.example.org", 443).await;
    for number in 1..=2 {
        assert!(decision(&mut played, number).await.is_ok());
    }
    assert!(!has_room(&played));
    played.say(2, usage(1, Extent::NotSent, 0)).await;
    played.say(2, ended()).await;
    let receipt = played.recorded(Kind::EgressReceipt).await;
    assert_eq!((charged(&played), has_room(&played)), (500, true));
    assert_eq!(receipt["usage"][0]["unreported"], 2);
}

#[tokio::test]
async fn a_request_that_is_taken_back_before_its_decision_holds_nothing() {
    let mut played = Played::new(METERED);
    played.connect("api.example.org", 443).await;
    // In one go, so that the second message is there before the decision about the first is made, or just after it.
    for number in 1..=8 {
        played.say(2, question(number)).await;
        played.say(2, usage(number, Extent::NotSent, 0)).await;
        assert!(matches!(played.hear().await, To::Answer(_)));
    }
    assert!(decision(&mut played, 9).await.is_ok());
    assert!(has_room(&played), "only the last one is under way");
    assert_eq!(charged(&played), 0);
}

#[tokio::test]
async fn a_number_that_is_under_way_and_an_extent_that_cannot_be_end_the_process() {
    let mut played = Played::new(METERED);
    played.connect("api.example.org", 443).await;
    assert!(decision(&mut played, 1).await.is_ok());
    played.say(2, question(1)).await;
    assert_eq!(played.broken().await, "it sent a question out of turn");

    let mut played = Played::new(METERED);
    played.connect("api.example.org", 443).await;
    assert!(decision(&mut played, 1).await.is_ok());
    let ledger = std::sync::Arc::clone(&played.state.outside.shared().ledger);
    played.say(2, From::Usage(ModelUsage { request: 1, ..ModelUsage::default() })).await;
    assert_eq!(played.broken().await, "it sent the tokens of a response that cannot be");
    assert_eq!(
        ledger.of_run("run").tokens.total(),
        500,
        "a process that is lost leaves no request uncharged"
    );
}
