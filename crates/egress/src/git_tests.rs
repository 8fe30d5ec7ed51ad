use audit::Kind as Record;
use serde_json::json;
use wire::worker::v1::RequestGrant;
use wire::worker::v1::from_egress::Body as From;
use wire::worker::v1::request_answer::Decision as Answer;
use wire::worker::v1::to_egress::Body as To;

use super::*;
use crate::testing::{Played, VALUE, commands, of_git, rules};

const OLD: &str = "1111111111111111111111111111111111111111";
const NEW: &str = "2222222222222222222222222222222222222222";
const ZERO: &str = "0000000000000000000000000000000000000000";
const RULES: &str = r#"{"networks": ["203.0.113.0/24"], "rules": [{"host": "git.example.org", "ports": [443],
    "scheme": "git", "repos": ["org/app", "lib/*"], "fetch": "allow", "push": {"refs": ["refs/heads/agent/*"]},
    "inject": {"basic": {"user": "x", "password": "${secret:model}"}}, "decision": "allow"}]}"#;

async fn answer(played: &mut Played, asked: From) -> Answer {
    played.say(2, asked).await;
    let To::Answer(answer) = played.hear().await else { panic!("no answer") };
    answer.decision.unwrap()
}

async fn push(played: &mut Played, number: u64, lines: &[&str]) -> Answer {
    answer(played, of_git(number, Kind::Push, "org/app", commands(lines))).await
}

fn grant(answer: Answer) -> RequestGrant {
    match answer {
        Answer::Grant(grant) => grant,
        Answer::Refusal(refusal) => panic!("{}", String::from_utf8_lossy(&refusal.body)),
    }
}

/// Returns the status of a refusal, and its body as text.
fn refusal(answer: Answer) -> (u32, String) {
    let Answer::Refusal(refusal) = answer else { panic!("it was granted") };
    (refusal.status, String::from_utf8_lossy(&refusal.body).into_owned())
}

#[tokio::test]
async fn a_push_gets_its_secret_and_is_on_record_before_it_goes_out() {
    let mut played = Played::new(RULES);
    let (inspect, _) = played.connect("git.example.org", 443).await;
    assert!(inspect.git && inspect.open && inspect.ask);
    let create = format!("{ZERO} {NEW} refs/heads/agent/x");
    let granted = grant(push(&mut played, 1, &[&create]).await);
    assert_eq!(granted.headers[0].name, "authorization");
    let [record] = &played.records(Record::GitPush)[..] else { panic!("not one record") };
    let expected = json!([
        { "ref": "refs/heads/agent/x", "old": ZERO, "new": NEW, "change": "create", "forced": false },
    ]);
    assert_eq!(record["refs"], expected);
    assert_eq!((&record["repository"], &record["request"]), (&json!("org/app"), &json!(1)));
    assert_eq!(record["injected"], json!(["model"]));
    assert!(!played.log().contains(VALUE));
    assert!(played.daemon.ancestry.lock().0.is_empty(), "a new ref replaces nothing");
    grant(push(&mut played, 2, &[]).await);
    assert_eq!(played.records(Record::GitPush).len(), 1, "a probe is no push");
}

#[tokio::test]
async fn an_update_is_forced_unless_the_old_commit_is_known_to_be_an_ancestor() {
    let mut played = Played::new(RULES);
    played.connect("git.example.org", 443).await;
    let update = format!("{OLD} {NEW} refs/heads/agent/x");
    for (number, known, words) in [(1, None, "it is not known"), (2, Some(false), "a forced update")] {
        played.daemon.ancestry.lock().1 = known;
        let (status, body) = refusal(push(&mut played, number, &[&update]).await);
        assert!(status == 200 && body.contains("ng refs/heads/agent/x ") && body.contains(words), "{body}");
    }
    played.daemon.ancestry.lock().1 = Some(true);
    grant(push(&mut played, 3, &[&update]).await);
    let pair = (OLD.to_owned(), NEW.to_owned());
    assert_eq!(played.daemon.ancestry.lock().0, [pair.clone(), pair.clone(), pair]);
    assert_eq!(played.records(Record::GitPush).len(), 1);
}

#[tokio::test]
async fn one_refused_ref_refuses_the_push_without_a_look_at_commits() {
    let mut played = Played::new(RULES);
    played.connect("git.example.org", 443).await;
    let [good, other] = ["refs/heads/agent/x", "refs/heads/main"].map(|name| format!("{OLD} {NEW} {name}"));
    let (_, body) = refusal(push(&mut played, 1, &[&good, &other]).await);
    assert!(body.contains("ng refs/heads/main no rule allows this ref"), "{body}");
    assert!(body.contains("ng refs/heads/agent/x not pushed, because another ref"), "{body}");
    assert!(body.contains("Cofferdam refused this push to git.example.org:443 (egress rule 1"), "{body}");
    assert!(played.daemon.ancestry.lock().0.is_empty());
    let refused = played.recorded(Record::EgressRefused).await;
    let why = refused["why"].as_str().unwrap();
    assert!(
        why.starts_with("push to org/app: refs/heads/main: no rule") && !why.contains("agent/x:"),
        "{why}"
    );
    assert!(played.records(Record::GitPush).is_empty());
}

#[tokio::test]
async fn a_fetch_is_for_the_repositories_of_the_rule() {
    let mut played = Played::new(RULES);
    played.connect("git.example.org", 443).await;
    let requests = [
        (Kind::DiscoverFetch, "org/app", true),
        (Kind::Fetch, "lib/x", true),
        (Kind::DiscoverPush, "lib/x", true),
        (Kind::DiscoverFetch, "org/other", false),
        (Kind::DiscoverPush, "org/other", false),
        (Kind::Fetch, "lib/x/y", false),
    ];
    for (number, (kind, repository, is_open)) in (1..).zip(requests) {
        let answer = answer(&mut played, of_git(number, kind, repository, Vec::new())).await;
        if is_open {
            grant(answer);
        } else {
            let (status, body) = refusal(answer);
            assert!(status == 200 && body.contains("no rule allows this repository"), "{body}");
        }
    }
    assert!(played.records(Record::GitPush).is_empty());
}

#[test]
fn each_list_has_to_pass_and_of_one_list_the_rules_that_cover_the_repository() {
    let rule = |repos: &str, push: &str| {
        let text = json!({ "rules": [
            { "host": "git.example.org", "ports": [443], "scheme": "git", "repos": [repos], "push": push, "fetch": "allow",
              "decision": "allow" },
        ] });
        rules(&text.to_string())
            .decide(&egress_rules::Destination::parse("git.example.org").unwrap(), 443)
            .opening
            .git
    };
    let list =
        |rules: &[&Vec<Vec<GitRules>>]| rules.iter().flat_map(|rules| rules.concat()).collect::<Vec<_>>();
    let (open, closed, other) = (rule("org/app", "allow"), rule("org/app", "deny"), rule("org/lib", "deny"));
    let repository = Repository::parse("org/app").unwrap();
    let judge = |lists: &[Vec<GitRules>]| {
        read(lists, &repository, |rules| rules.judge_discovery(Service::ReceivePack, &repository))
    };
    assert_eq!(judge(&[list(&[&open, &other])]), None, "the other repository has its own rule");
    assert_eq!(
        judge(&[list(&[&open, &closed])]),
        Some(Reason::Push),
        "the stricter of two for one repository"
    );
    assert_eq!(judge(&[list(&[&open]), list(&[&closed])]), Some(Reason::Push));
    assert_eq!(judge(&[list(&[&open]), list(&[&other])]), Some(Reason::Repository));
    assert_eq!(judge(&[]), Some(Reason::Repository));
}

#[tokio::test]
async fn a_path_in_another_case_does_not_avoid_the_stricter_rule() {
    let rule = |repos: &str, push: &str| {
        json!({ "host": "git.example.org", "ports": [443], "scheme": "git", "repos": [repos], "push": push,
            "fetch": "allow", "decision": "allow" })
    };
    let rules = [rule("org/*", "allow"), rule("org/app", "deny")];
    let text = json!({ "networks": ["203.0.113.0/24"], "rules": rules });
    let mut played = Played::new(&text.to_string());
    played.connect("git.example.org", 443).await;
    let create = commands(&[&format!("{ZERO} {NEW} refs/heads/x")]);
    let open = of_git(1, Kind::Push, "org/other", create.clone());
    grant(answer(&mut played, open).await);
    for (number, kind, repository, why) in [
        (2, Kind::Push, "org/app", "no rule allows a push to this repository"),
        (3, Kind::Push, "org/App", "no rule allows this repository"),
        (4, Kind::Fetch, "ORG/app", "no rule allows this repository"),
    ] {
        let commands = if kind == Kind::Push { create.clone() } else { Vec::new() };
        let asked = of_git(number, kind, repository, commands);
        let (_, body) = refusal(answer(&mut played, asked).await);
        assert!(body.contains(why), "{repository}: {body}");
    }
}

#[tokio::test]
async fn a_process_that_sends_other_commands_than_a_push_has_is_not_trusted() {
    let good = commands(&[&format!("{OLD} {NEW} refs/heads/agent/x")]);
    let after = [&good[..], b"PACK"].concat();
    for asked in [
        of_git(1, Kind::Push, "org/app", good[..20].to_vec()),
        of_git(1, Kind::Push, "org/app", after),
        of_git(1, Kind::Push, "org/app.git", good.clone()),
        of_git(1, Kind::Push, "org/../app", good.clone()),
        of_git(1, Kind::Fetch, "org/app", good.clone()),
        of_git(1, Kind::Unspecified, "org/app", Vec::new()),
        crate::testing::asked(1),
    ] {
        let mut played = Played::new(RULES);
        played.connect("git.example.org", 443).await;
        played.say(2, asked).await;
        let why = played.broken().await;
        assert!(why.starts_with("it sent "), "{why}");
    }
}

#[tokio::test]
async fn a_refusal_that_would_be_too_long_has_no_line_for_each_ref() {
    let mut long: serde_json::Value = serde_json::from_str(RULES).unwrap();
    let refs: Vec<String> = ["a", "b", "c"].map(|end| format!("refs/heads/{}{end}", "y".repeat(120))).into();
    long["rules"][0]["push"]["refs"] = json!(refs);
    let names: Vec<String> = (0..7_000).map(|number| format!("{ZERO} {NEW} refs/heads/{number}")).collect();
    let lines: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut played = Played::new(&long.to_string());
    played.connect("git.example.org", 443).await;
    let (status, body) = refusal(push(&mut played, 1, &lines).await);
    assert!(status == 200 && body.len() < 3_000, "{}", body.len());
    assert!(
        body.contains("unpack Cofferdam refused this push") && body.contains("refs/heads/0: no rule"),
        "{body}"
    );
}
