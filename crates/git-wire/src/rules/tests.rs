use super::*;
use crate::judgement::{Ancestry, Ruling};
use crate::testing::{ONE, TWO, ZERO, command, list};

fn push(json: &str) -> Push {
    serde_json::from_str(json).unwrap()
}

fn rules(json: &str) -> Rules {
    Rules::new([RepositoryPattern::parse("org/app").unwrap()].into(), Decision::Allow, push(json)).unwrap()
}

fn repository(path: &str) -> Repository {
    Repository::parse(path).unwrap()
}

fn judge(rules: &Rules, commands: Vec<Command>, ancestry: Ancestry) -> Ruling {
    let list = list(commands);
    rules.judge(&repository("org/app.git"), &list).settle(&list, |_| ancestry)
}

fn decide(rules: &str, old: &str, new: &str, name: &str, ancestry: Ancestry) -> (Decision, Option<Reason>) {
    let ruling = judge(&self::rules(rules), vec![command(old, new, name)], ancestry);
    let ruled = ruling.commands.into_iter().next().unwrap();
    assert_eq!(ruled.decision, ruling.decision);
    (ruling.decision, ruled.reason)
}

const STRICT: &str = r#"{"refs": ["refs/heads/agent/*", "refs/tags/agent/*"]}"#;
const LAX: &str = r#"{"refs": ["refs/*"], "force": "allow", "delete": "allow", "options": "allow"}"#;
const ASK: &str = r#"{"decision": "ask", "refs": ["refs/heads/*"], "force": "allow", "delete": "ask"}"#;

#[test]
fn a_decision_alone_is_for_all_branches() {
    let expected = Push {
        decision: Decision::Ask,
        refs: [RefPattern::parse("refs/heads/*").unwrap()].into(),
        ..Push::default()
    };
    assert_eq!(push(r#""ask""#), expected);
    assert_eq!(push(r#""deny""#), Push::default());
    assert_eq!(push(r#"{"decision": "deny"}"#), Push::default());
}

#[test]
fn a_missing_setting_is_the_strict_one() {
    let push = push(STRICT);
    assert_eq!(push.decision, Decision::Allow);
    assert_eq!((push.force, push.delete, push.options), (Decision::Deny, Decision::Deny, Decision::Deny));
}

#[test]
fn a_push_is_stored_as_it_is_read() {
    for text in [r#""ask""#, r#""allow""#, r#""deny""#, STRICT, LAX, ASK] {
        let read = push(text);
        assert_eq!(push(&serde_json::to_string(&read).unwrap()), read, "{text}");
    }
}

#[test]
fn a_fault_of_a_push_is_named() {
    let many: Vec<_> = (0..65).map(|number| format!("refs/heads/{number}")).collect();
    for (text, words) in [
        ("{}", "`refs` is missing"),
        (r#"{"refs": []}"#, "`refs` is missing"),
        (r#"{"refs": ["main"]}"#, "no ref matches this pattern"),
        (r#"{"refs": ["refs/heads/*"], "forced": "deny"}"#, "unknown field `forced`"),
        (r#""never""#, "unknown variant `never`"),
        ("true", "or a mapping with `refs`"),
        (&format!("{{\"refs\": {many:?}}}"), "more than 64"),
    ] {
        let fault = serde_json::from_str::<Push>(text).unwrap_err().to_string();
        assert!(fault.contains(words), "{text}: {fault}");
    }
}

#[test]
fn rules_that_let_nothing_through_are_refused() {
    let app = RepositoryPattern::parse("org/app").unwrap();
    let new = Rules::new;
    assert_eq!(new([].into(), Decision::Allow, Push::default()), Err(BadRules::NoRepository));
    assert_eq!(new([app.clone()].into(), Decision::Deny, Push::default()), Err(BadRules::Nothing));
    let many = (0..257).map(|number| RepositoryPattern::parse(&format!("org/{number}")).unwrap()).collect();
    assert_eq!(new(many, Decision::Allow, Push::default()), Err(BadRules::TooMany));
    assert!(new([app.clone()].into(), Decision::Ask, Push::default()).is_ok());
    assert!(new([app].into(), Decision::Deny, push(r#""ask""#)).is_ok());
}

#[test]
fn each_change_has_its_decision() {
    use Ancestry::{FastForward, Forced, Unknown};
    let refs = |text| Some(Reason::refs(&push(text).refs));
    let (allow, ask, deny) = (Decision::Allow, Decision::Ask, Decision::Deny);
    for (rules, old, new, name, ancestry, expected) in [
        (STRICT, ZERO, ONE, "refs/heads/agent/x", Unknown, (allow, None)),
        (STRICT, ONE, TWO, "refs/heads/agent/x", FastForward, (allow, None)),
        (STRICT, ONE, ONE, "refs/heads/agent/x", Unknown, (allow, None)),
        (STRICT, ONE, TWO, "refs/heads/agent/x", Forced, (deny, Some(Reason::Force))),
        (STRICT, ONE, TWO, "refs/heads/agent/x", Unknown, (deny, Some(Reason::Ancestry))),
        (STRICT, ONE, ZERO, "refs/heads/agent/x", FastForward, (deny, Some(Reason::Delete))),
        (STRICT, ZERO, ONE, "refs/heads/main", FastForward, (deny, refs(STRICT))),
        (STRICT, ONE, ZERO, "refs/heads/main", FastForward, (deny, refs(STRICT))),
        (STRICT, ZERO, ONE, "refs/tags/agent/v1", FastForward, (allow, None)),
        (STRICT, ONE, TWO, "refs/tags/agent/v1", FastForward, (deny, Some(Reason::Force))),
        (LAX, ONE, TWO, "refs/heads/main", Forced, (allow, None)),
        (LAX, ONE, TWO, "refs/tags/v1", FastForward, (allow, None)),
        (LAX, ONE, ZERO, "refs/for/main", FastForward, (allow, None)),
        (ASK, ZERO, ONE, "refs/heads/x", FastForward, (ask, None)),
        (ASK, ONE, TWO, "refs/heads/x", Forced, (ask, None)),
        (ASK, ONE, ZERO, "refs/heads/x", FastForward, (ask, None)),
        (ASK, ZERO, ONE, "refs/tags/x", FastForward, (deny, refs(ASK))),
        (r#""deny""#, ZERO, ONE, "refs/heads/x", FastForward, (deny, Some(Reason::Push))),
    ] {
        assert_eq!(decide(rules, old, new, name, ancestry), expected, "{rules} {old} {new} {name}");
    }
}

#[test]
fn a_reviewer_hears_of_a_forced_update() {
    let ruling = judge(&rules(ASK), vec![command(ONE, TWO, "refs/heads/x")], Ancestry::Forced);
    assert!(ruling.commands[0].is_forced);
    let ruling = judge(&rules(ASK), vec![command(ONE, TWO, "refs/heads/x")], Ancestry::FastForward);
    assert!(!ruling.commands[0].is_forced);
}

#[test]
fn commits_are_only_looked_at_where_it_matters() {
    for (text, name, needs) in [
        (STRICT, "refs/heads/agent/x", true),
        (STRICT, "refs/tags/agent/x", false),
        (STRICT, "refs/heads/main", false),
        (LAX, "refs/heads/main", false),
        (ASK, "refs/heads/x", true),
    ] {
        let judgement = rules(text).judge(&repository("org/app"), &list(vec![command(ONE, TWO, name)]));
        assert_eq!(judgement.verdicts()[0].needs_ancestry, needs, "{text} {name}");
    }
}

#[test]
fn another_repository_is_refused() {
    let rules = rules(LAX);
    let other = repository("org/app2");
    let list = list(vec![command(ZERO, ONE, "refs/heads/x")]);
    let ruling = rules.judge(&other, &list).settle(&list, |_| Ancestry::FastForward);
    assert_eq!(ruling.decision, Decision::Deny);
    assert_eq!(ruling.whys(), ["no rule allows this repository"]);
    let refused = (Decision::Deny, Some(Reason::Repository));
    assert_eq!(rules.judge_fetch(&other), refused);
    for service in [Service::UploadPack, Service::ReceivePack] {
        assert_eq!(rules.judge_discovery(service, &other), refused);
    }
    let probe = CommandList::default();
    let ruling = rules.judge(&other, &probe).settle(&probe, |_| Ancestry::FastForward);
    assert_eq!(ruling.decision, Decision::Deny);
}

#[test]
fn options_need_their_own_permission() {
    let mut list = list(vec![command(ZERO, ONE, "refs/heads/agent/x")]);
    list.options = vec!["merge_request.create".to_owned()];
    let decide = |rules: &str| {
        self::rules(rules).judge(&repository("org/app"), &list).settle(&list, |_| Ancestry::FastForward)
    };
    let ruling = decide(STRICT);
    assert_eq!((ruling.decision, &ruling.commands[0].reason), (Decision::Deny, &Some(Reason::Options)));
    assert_eq!(decide(LAX).decision, Decision::Allow);
    assert_eq!(decide(r#"{"refs": ["refs/heads/*"], "options": "ask"}"#).decision, Decision::Ask);
}

#[test]
fn a_push_begins_without_its_reviewer() {
    let app = repository("org/app");
    let asked = rules(ASK);
    assert_eq!(asked.judge_discovery(Service::ReceivePack, &app), (Decision::Allow, None));
    let probe = CommandList::default();
    let ruling = asked.judge(&app, &probe).settle(&probe, |_| Ancestry::FastForward);
    assert_eq!(ruling.decision, Decision::Allow);
    let denied = (Decision::Deny, Some(Reason::Push));
    assert_eq!(rules(r#""deny""#).judge_discovery(Service::ReceivePack, &app), denied);
    let pattern = RepositoryPattern::parse("org/*").unwrap();
    let no_fetch = Rules::new([pattern].into(), Decision::Deny, push(LAX)).unwrap();
    assert_eq!(no_fetch.judge_discovery(Service::UploadPack, &app), (Decision::Deny, Some(Reason::Fetch)));
}
