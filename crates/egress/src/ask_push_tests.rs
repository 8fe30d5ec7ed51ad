use std::time::Duration;

use audit::Kind as Record;
use serde_json::json;
use wire::worker::v1::connection_ended::Cause;
use wire::worker::v1::from_egress::Body as From;
use wire::worker::v1::git_asked::Kind;
use wire::worker::v1::request_answer::Decision;
use wire::worker::v1::to_egress::Body as To;
use wire::worker::v1::{ConnectionEnded, HttpRequest};

use super::*;
use crate::testing::{Played, commands, of_git, rules};

const OLD: &str = "1111111111111111111111111111111111111111";
const NEW: &str = "2222222222222222222222222222222222222222";
const ZERO: &str = "0000000000000000000000000000000000000000";

/// Returns rules under which a reviewer decides about pushes, and about forced ones.
fn asking(force: &str) -> String {
    let push = json!({ "refs": ["refs/heads/agent/*"], "decision": "ask", "force": force, "delete": "ask" });
    json!({ "networks": ["203.0.113.0/24"], "rules": [{
        "host": "git.example.org", "ports": [443], "scheme": "git", "repos": ["org/app"], "fetch": "allow", "push": push,
        "decision": "allow",
    }] })
    .to_string()
}

async fn played(answer: Option<Answer>) -> Played {
    let mut played = Played::new(&asking("deny"));
    played.daemon.reviewers.lock().1 = answer;
    played.connect("git.example.org", 443).await;
    played
}

fn approved(id: &str) -> Answer {
    Answer::Approved { approval_id: id.to_owned() }
}

fn push(number: u64, lines: &[String]) -> From {
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    of_git(number, Kind::Push, "org/app", commands(&lines))
}

fn create(name: &str) -> String {
    format!("{ZERO} {NEW} refs/heads/agent/{name}")
}

/// Hears the answer to a push. `Ok` is a grant, and `Err` the text of a refusal.
async fn hear(played: &mut Played) -> Result<(), String> {
    let To::Answer(answer) = played.hear().await else { panic!("no answer") };
    match answer.decision.unwrap() {
        Decision::Grant(_) => Ok(()),
        Decision::Refusal(refusal) => {
            assert_eq!(refusal.status, 200);
            Err(String::from_utf8_lossy(&refusal.body).into_owned())
        }
    }
}

fn questions(played: &Played) -> Vec<Arc<PushQuestion>> {
    let reviewers = played.daemon.reviewers.lock();
    reviewers.0.iter().filter_map(|question| question.push.clone()).collect()
}

/// Tells the session that a server has answered a request.
async fn responded(played: &mut Played, number: u64) {
    let (method, path) = ("POST".to_owned(), "/x".to_owned());
    played.say(2, From::Request(HttpRequest { method, path, status: 200, number })).await;
}

#[tokio::test]
async fn consent_is_for_the_ids_and_is_on_record_with_the_push() {
    let mut played = played(Some(approved("one"))).await;
    let delete = format!("{OLD} {ZERO} refs/heads/agent/y");
    played.say(2, push(1, &[create("x"), delete])).await;
    hear(&mut played).await.unwrap();
    let [question] = &questions(&played)[..] else { panic!("not one question") };
    assert_eq!(question.repository, "org/app");
    let updates: Vec<_> =
        question.updates.iter().map(|update| (update.name.as_str(), update.change.as_str())).collect();
    assert_eq!(updates, [("refs/heads/agent/x", "create"), ("refs/heads/agent/y", "delete")]);
    assert!(question.statement.contains(&format!("{ZERO} {NEW} refs/heads/agent/x\n")));
    let event = played.event(Record::GitPush);
    assert_eq!(event.approval_id.as_deref(), Some("one"));
    // A probe is no push.
    played.say(2, push(2, &[])).await;
    hear(&mut played).await.unwrap();
    assert_eq!(questions(&played).len(), 1);
}

#[tokio::test]
async fn consent_holds_for_the_same_push_until_a_server_has_answered() {
    let mut played = played(Some(approved("one"))).await;
    for number in 1..=2 {
        played.say(2, push(number, &[create("x")])).await;
        hear(&mut played).await.unwrap();
    }
    assert_eq!(questions(&played).len(), 1, "the first one may not have reached its server");
    played.say(2, push(3, &[create("x"), create("y")])).await;
    hear(&mut played).await.unwrap();
    assert_eq!(questions(&played).len(), 2, "another push has its own question");
    responded(&mut played, 2).await;
    played.daemon.reviewers.lock().1 = Some(approved("two"));
    played.say(2, push(4, &[create("x")])).await;
    hear(&mut played).await.unwrap();
    assert_eq!(questions(&played).len(), 3, "consent counts once");
}

#[tokio::test]
async fn a_connection_with_many_pushes_that_no_server_answers_is_ended() {
    let mut played = played(Some(approved("one"))).await;
    let most = u64::try_from(crate::grants::UNANSWERED).unwrap();
    for number in 1..=most {
        played.say(2, push(number, &[create("x")])).await;
        hear(&mut played).await.unwrap();
    }
    // A response makes room for one more.
    responded(&mut played, 1).await;
    played.say(2, push(most + 1, &[create("x")])).await;
    hear(&mut played).await.unwrap();
    played.say(2, push(most + 2, &[create("x")])).await;
    let To::End(_) = played.hear().await else { panic!("it goes on") };
}

#[tokio::test]
async fn other_rules_void_a_consent() {
    let mut played = played(Some(approved("one"))).await;
    played.say(2, push(1, &[create("x")])).await;
    hear(&mut played).await.unwrap();
    *played.daemon.rules.lock() = rules(&asking("deny"));
    played.say(2, push(2, &[create("x")])).await;
    hear(&mut played).await.unwrap();
    assert_eq!(questions(&played).len(), 2);
}

#[tokio::test]
async fn a_denial_is_said_for_each_ref_and_holds_for_the_same_push() {
    let denied = Answer::Denied { approval_id: "one".to_owned(), comment: "not today".to_owned() };
    let mut played = played(Some(denied)).await;
    for number in 1..=3 {
        played.say(2, push(number, &[create("x"), create("y")])).await;
        let said = hear(&mut played).await.unwrap_err();
        for name in ["x", "y"] {
            let line = format!("ng refs/heads/agent/{name} a reviewer denied this push (approval one)");
            assert!(said.contains(&line), "{said}");
        }
        assert!(said.contains(": not today") && said.contains("unpack ok"), "{said}");
    }
    assert_eq!(questions(&played).len(), 1);
    played.say(2, push(4, &[create("x")])).await;
    hear(&mut played).await.unwrap_err();
    assert_eq!(questions(&played).len(), 2, "another push is another question");
    let why = played.recorded(Record::EgressRefused).await["why"].as_str().unwrap().to_owned();
    assert!(why.starts_with("push to org/app: a reviewer denied this push"), "{why}");
    assert!(played.records(Record::GitPush).is_empty());
}

#[tokio::test]
async fn no_decision_in_time_and_no_reviewer_are_refusals() {
    for (answer, words) in [
        (Answer::Expired { approval_id: "one".to_owned() }, "no reviewer decided in time (approval one)"),
        (Answer::Cancelled, "the question to a reviewer was withdrawn"),
        (Answer::Unasked("the log is full".to_owned()), "no reviewer could be asked: the log is full"),
    ] {
        let mut played = played(Some(answer)).await;
        played.say(2, push(1, &[create("x")])).await;
        let said = hear(&mut played).await.unwrap_err();
        assert!(said.contains(words), "{said}");
    }
}

#[tokio::test]
async fn a_push_that_nobody_could_read_is_refused_without_a_question() {
    let mut played = played(Some(approved("one"))).await;
    let many: Vec<String> = (0..1_000).map(|number| create(&number.to_string())).collect();
    played.say(2, push(1, &many)).await;
    let said = hear(&mut played).await.unwrap_err();
    assert!(said.contains("it has 1000 refs, and a reviewer is asked about 64 at most"), "{said}");
    let long: Vec<String> = (0..64).map(|number| create(&format!("{number}{}", "y".repeat(200)))).collect();
    played.say(2, push(2, &long)).await;
    let said = hear(&mut played).await.unwrap_err();
    assert!(said.contains("too long for a reviewer"), "{said}");
    played.say(2, push(3, &many[..64])).await;
    hear(&mut played).await.unwrap();
    assert_eq!(questions(&played).len(), 1);
}

#[tokio::test]
async fn what_the_rules_deny_is_not_asked_about() {
    let mut played = played(Some(approved("one"))).await;
    played.daemon.ancestry.lock().1 = Some(false);
    played.say(2, push(1, &[format!("{OLD} {NEW} refs/heads/agent/x")])).await;
    assert!(hear(&mut played).await.unwrap_err().contains("no rule allows a forced update"));
    played.say(2, push(2, &[create("x"), format!("{ZERO} {NEW} refs/heads/main")])).await;
    assert!(hear(&mut played).await.unwrap_err().contains("no rule allows this ref"));
    assert!(questions(&played).is_empty());
    played.daemon.ancestry.lock().1 = Some(true);
    played.say(2, push(3, &[format!("{OLD} {NEW} refs/heads/agent/x")])).await;
    hear(&mut played).await.unwrap();
    assert!(!questions(&played)[0].updates[0].is_forced);
}

#[tokio::test]
async fn a_reviewer_sees_that_an_update_is_forced() {
    let mut played = Played::new(&asking("ask"));
    played.daemon.reviewers.lock().1 = Some(approved("one"));
    played.connect("git.example.org", 443).await;
    for (number, known) in [(1, Some(false)), (2, None)] {
        played.daemon.ancestry.lock().1 = known;
        let update = format!("{OLD} {NEW} refs/heads/agent/{number}");
        played.say(2, push(number, &[update])).await;
        hear(&mut played).await.unwrap();
        let question = questions(&played).pop().unwrap();
        assert!(question.updates[0].is_forced, "{known:?}");
        assert!(question.statement.ends_with(&format!("forced refs/heads/agent/{number}\n")));
    }
}

#[tokio::test]
async fn a_program_that_leaves_withdraws_its_question() {
    let mut played = played(None).await;
    played.say(2, push(1, &[create("x")])).await;
    while questions(&played).is_empty() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let ended = ConnectionEnded { cause: Cause::Reset.into(), ..ConnectionEnded::default() };
    played.say(2, From::Ended(ended)).await;
    let said = hear(&mut played).await.unwrap_err();
    assert!(said.contains("the question to a reviewer was withdrawn"), "{said}");
    assert!(played.records(Record::GitPush).is_empty());
}

#[tokio::test]
async fn rules_that_change_while_a_reviewer_reads_decide_anew() {
    let mut played = played(Some(approved("one"))).await;
    played.daemon.reviewers.lock().1 = None;
    played.say(2, push(1, &[create("x")])).await;
    while questions(&played).is_empty() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    *played.daemon.rules.lock() = rules(&asking("ask"));
    // The connection was looked at under the old rules, so it ends, and its question with it.
    let To::End(_) = played.hear().await else { panic!("it goes on") };
    assert!(played.records(Record::GitPush).is_empty());
}
