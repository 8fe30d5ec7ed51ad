use std::sync::Arc;

use super::*;
use crate::approvals::{Ballot, Choice, DecideError, Reviewer};
use crate::consent::Remember;
use crate::testing::{TestClock, builtin, builtin_and, caller, run};
use policy::Level;

fn connect() -> Connect {
    Connect {
        caller: caller("worker"),
        run: run("review"),
        host: "files.example.org".to_owned(),
        port: 443,
        scheme: "HTTPS".to_owned(),
        methods: None,
        rule: "egress rule 1: files.example.org".to_owned(),
        companion: None,
        push: None,
    }
}

fn push(statement: &str) -> Connect {
    let push = BoundPush { repository: "org/app".to_owned(), statement: statement.to_owned() };
    Connect { push: Some(push), ..connect() }
}

fn gateway() -> (Gateway, Arc<TestClock>) {
    let clock = TestClock::new();
    (Gateway::new(builtin(), clock.clone()), clock)
}

fn asked(gateway: &Gateway, connect: &Connect) -> Approval {
    let approval = gateway.prepare_connection(connect, ConnectReview::default(), None).unwrap();
    gateway.open_approval(&approval.approval_id);
    approval
}

fn decide(gateway: &Gateway, approval: &Approval, ballot: &Ballot) -> Result<Approval, DecideError> {
    let reviewer = Reviewer { principal: "uid:0".into(), level: Level::Director, may_decide_own: false };
    gateway.decide(&approval.approval_id, &reviewer, ballot)
}

#[test]
fn consent_is_used_once_by_the_connection_that_was_seen() {
    let (gateway, _) = gateway();
    let approval = asked(&gateway, &connect());
    assert!(approval.is_of_connection() && approval.is_sound() && !approval.freeze);
    assert!(gateway.redeem_connection(&approval.approval_id, &connect()).is_err(), "nobody has decided");
    decide(&gateway, &approval, &Ballot::once(Choice::Approve, "")).unwrap();
    let other_run = Connect { caller: Caller { run_id: "other".into(), ..caller("worker") }, ..connect() };
    assert!(gateway.redeem_connection(&approval.approval_id, &other_run).is_err());
    gateway.redeem_connection(&approval.approval_id, &connect()).unwrap();
    assert!(gateway.redeem_connection(&approval.approval_id, &connect()).is_err(), "it was used");
}

#[test]
fn consent_is_void_for_another_connection_and_under_another_policy() {
    let methods = Some(["GET".to_owned()].into());
    for other in [
        Connect { host: "files.example.com".into(), ..connect() },
        Connect { port: 80, ..connect() },
        Connect { scheme: "TCP".into(), ..connect() },
        Connect { methods: methods.clone(), ..connect() },
        Connect { companion: Some("db".into()), ..connect() },
        Connect { rule: "egress default: ask".into(), ..connect() },
    ] {
        let (gateway, _) = gateway();
        let approval = asked(&gateway, &connect());
        decide(&gateway, &approval, &Ballot::once(Choice::Approve, "")).unwrap();
        assert!(gateway.redeem_connection(&approval.approval_id, &other).is_err(), "{other:?}");
        assert!(gateway.redeem_connection(&approval.approval_id, &connect()).is_err(), "it is void");
    }
    let (gateway, _) = gateway();
    let (given, open) = (asked(&gateway, &connect()), asked(&gateway, &Connect { port: 80, ..connect() }));
    decide(&gateway, &given, &Ballot::once(Choice::Approve, "")).unwrap();
    let other = "profiles: {other: {operations: {}, approvals: {remember: [digest]}}}";
    assert!(gateway.reload(builtin_and(other)));
    assert!(gateway.redeem_connection(&given.approval_id, &connect()).is_err());
    let cancelled = gateway.cancel_outdated_connections();
    assert_eq!(
        cancelled.iter().map(|approval| &approval.approval_id).collect::<Vec<_>>(),
        [&open.approval_id]
    );
}

#[test]
fn connections_have_approvals_of_their_own_and_end_one_by_one() {
    let (gateway, clock) = gateway();
    let (one, two) = (asked(&gateway, &connect()), asked(&gateway, &Connect { port: 80, ..connect() }));
    assert_eq!(gateway.cancel_approval(&one.approval_id).len(), 1);
    assert_eq!(gateway.approval(&two.approval_id).unwrap().state, ApprovalState::Pending);
    clock.advance(Duration::from_secs(3_600));
    assert_eq!(
        gateway.expire_due().iter().map(|approval| approval.state).collect::<Vec<_>>(),
        [ApprovalState::Expired]
    );
}

#[test]
fn consent_is_remembered_only_as_the_profile_offers() {
    let remember =
        |remember| Ballot { choice: Choice::Approve, remember, comment: String::new(), proof: None };
    let (gateway, _) = gateway();
    let none = asked(&gateway, &Connect { run: run("strict"), ..connect() });
    assert!(decide(&gateway, &none, &remember(Remember::Digest)).is_err(), "the profile offers no form");
    let approval = asked(&gateway, &connect());
    assert_eq!(approval.offers, [Form::Digest]);
    assert!(decide(&gateway, &approval, &remember(Remember::Prefix(vec!["curl".into()]))).is_err());
    let decided = decide(&gateway, &approval, &remember(Remember::Digest)).unwrap();
    assert!(decided.remembered.is_some());
    // It would open the host to the run itself.
    let of_companion = asked(&gateway, &Connect { companion: Some("db".into()), ..connect() });
    assert!(of_companion.justification.contains("companion db"), "{}", of_companion.justification);
    assert!(decide(&gateway, &of_companion, &remember(Remember::Digest)).is_err());
}

#[test]
fn consent_to_a_push_is_for_its_ids_and_is_not_remembered() {
    for other in [push("1 3 refs/heads/x"), connect()] {
        let (gateway, _) = gateway();
        let approval = asked(&gateway, &push("1 2 refs/heads/x"));
        assert_eq!((approval.operation.as_str(), approval.is_of_connection()), (PUSH, true));
        assert!(approval.is_of_push() && approval.is_sound() && approval.offers.is_empty());
        assert!(approval.justification.contains("pushes to org/app on files.example.org:443"));
        let remembered = Ballot {
            choice: Choice::Approve,
            remember: Remember::Digest,
            comment: String::new(),
            proof: None,
        };
        assert!(decide(&gateway, &approval, &remembered).is_err());
        decide(&gateway, &approval, &Ballot::once(Choice::Approve, "")).unwrap();
        assert!(gateway.redeem_connection(&approval.approval_id, &other).is_err(), "{other:?}");
    }
    let (gateway, _) = gateway();
    let approval = asked(&gateway, &push("1 2 refs/heads/x"));
    decide(&gateway, &approval, &Ballot::once(Choice::Approve, "")).unwrap();
    gateway.redeem_connection(&approval.approval_id, &push("1 2 refs/heads/x")).unwrap();
}
