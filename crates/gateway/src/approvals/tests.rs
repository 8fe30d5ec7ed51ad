use std::sync::Arc;
use std::time::Duration;

use operations::{Bound, FileState, Operation, Reason, Write};

use super::table::{
    MAX_OPEN, MAX_OPEN_PER_RUN, MAX_REVIEW_BYTES, MAX_SETTLED, MAX_SETTLED_BYTES, REDEEM_WITHIN,
};
use super::{
    Approval, ApprovalFilter, ApprovalState, Ballot, Choice, DecideError, PermitState, RestoreError, Review,
    Reviewer,
};
use crate::admission::{Admission, Ticket};
use crate::gateway::Gateway;
use crate::testing::{TestClock, builtin, builtin_and, caller, exec, path, run, write};
use policy::{Caller, Form, Level, RunScope};

struct Scene {
    gateway: Gateway,
    clock: Arc<TestClock>,
}

const MINUTE: Duration = Duration::from_secs(60);

fn reviewer(principal: &str) -> Reviewer {
    Reviewer { principal: principal.into(), level: Level::Director, may_decide_own: false }
}

fn bound(digest: &str) -> Bound {
    let files = [(path("a.txt"), FileState::Sha256(digest.into()))].into();
    Bound { digest: digest.into(), since: 1, files, remarks: Vec::new() }
}

fn review() -> Review {
    Review { operation_json: "{}".into(), preview: "+hi".into(), bound: bound("aa"), ..Review::default() }
}

impl Scene {
    fn new() -> Self {
        let clock = TestClock::new();
        Self { gateway: Gateway::new(builtin(), clock.clone()), clock }
    }

    fn ticket_of(&self, run: &RunScope, caller: &Caller, call_id: &str, content: &str) -> Ticket {
        let operation = Operation::Write(Write { content: content.into(), ..write("a.txt") });
        match self.gateway.admit(&self.gateway.policy(), run, caller, call_id, operation) {
            Admission::Ask(ticket) => *ticket,
            other => panic!("{other:?}"),
        }
    }

    fn ticket(&self, call_id: &str) -> Ticket {
        self.ticket_of(&run("review"), &caller("director"), call_id, "hi\n")
    }

    fn asked(&self, call_id: &str) -> (Ticket, Approval) {
        let ticket = self.ticket(call_id);
        let approval = self.gateway.request_approval(&ticket, review(), None).unwrap();
        (ticket, approval)
    }

    fn approved(&self, call_id: &str) -> (Ticket, String) {
        let (ticket, approval) = self.asked(call_id);
        self.decide(&approval.approval_id, Choice::Approve).unwrap();
        (ticket, approval.approval_id)
    }

    fn decide(&self, id: &str, choice: Choice) -> Result<Approval, DecideError> {
        self.gateway.decide(id, &reviewer("uid:0"), &Ballot::once(choice, "because"))
    }

    fn redeem(&self, id: &str, ticket: &Ticket) -> Result<(), Reason> {
        self.gateway.redeem(id, ticket).map(drop).map_err(|refusal| refusal.reason)
    }

    fn state(&self, id: &str) -> (ApprovalState, PermitState) {
        let approval = self.gateway.approval(id).unwrap();
        (approval.state, approval.permit)
    }
}

#[test]
fn a_consent_gives_one_permit_for_the_shown_call() {
    let scene = Scene::new();
    let (ticket, approval) = scene.asked("c");
    assert_eq!((approval.state, approval.permit), (ApprovalState::Pending, PermitState::None));
    assert_eq!(
        (approval.operation.as_str(), approval.rule.as_str()),
        ("write", "profile review: operations.write")
    );
    assert_eq!(approval.expires_at.since(approval.created_at), 5 * MINUTE);
    let id = &approval.approval_id;
    assert_eq!(scene.redeem(id, &ticket), Err(Reason::PreconditionFailed));
    let decided = scene.decide(id, Choice::Approve).unwrap();
    assert_eq!((decided.decided_by.as_deref(), decided.comment.as_str()), (Some("uid:0"), "because"));
    let permit = scene.gateway.redeem(id, &ticket).unwrap();
    assert_eq!((permit.operation(), permit.approval_id()), (ticket.operation(), Some(id.as_str())));
    assert_eq!(scene.redeem(id, &ticket), Err(Reason::PreconditionFailed));
    assert_eq!(scene.state(id), (ApprovalState::Approved, PermitState::Issued));
}

#[test]
fn a_decision_is_taken_once() {
    let scene = Scene::new();
    let (ticket, approval) = scene.asked("c");
    scene.decide(&approval.approval_id, Choice::Deny).unwrap();
    let late = scene.decide(&approval.approval_id, Choice::Approve).unwrap_err();
    assert_eq!(late, DecideError::AlreadyDecided { state: ApprovalState::Denied, by: Some("uid:0".into()) });
    assert_eq!(late.to_string(), "it is DENIED already, by uid:0");
    let refusal = scene.gateway.redeem(&approval.approval_id, &ticket).unwrap_err();
    assert_eq!(
        (refusal.reason, refusal.message.as_str()),
        (Reason::ApprovalDenied, "a reviewer denied the call: because")
    );
}

#[test]
fn one_of_many_reviewers_decides_and_the_call_runs_once() {
    let scene = Scene::new();
    let (ticket, approval) = scene.asked("c");
    let id = &approval.approval_id;
    let wins = |count: &mut [bool]| count.iter().filter(|won| **won).count();
    let mut decided = [false; 32];
    std::thread::scope(|scope| {
        for (number, won) in decided.iter_mut().enumerate() {
            let scene = &scene;
            scope.spawn(move || {
                let who = reviewer(&format!("uid:{number}"));
                *won = scene.gateway.decide(id, &who, &Ballot::once(Choice::Approve, "")).is_ok();
            });
        }
    });
    let mut redeemed = [false; 32];
    std::thread::scope(|scope| {
        for won in &mut redeemed {
            let (scene, ticket) = (&scene, &ticket);
            scope.spawn(move || *won = scene.redeem(id, ticket).is_ok());
        }
    });
    assert_eq!((wins(&mut decided), wins(&mut redeemed)), (1, 1));
}

#[test]
fn self_approval_is_refused() {
    let scene = Scene::new();
    let (_, approval) = scene.asked("c");
    let own = |may_decide_own| Reviewer {
        principal: approval.requested_by.clone(),
        level: Level::Director,
        may_decide_own,
    };
    let decide = |reviewer: &Reviewer| {
        scene.gateway.decide(&approval.approval_id, reviewer, &Ballot::once(Choice::Approve, ""))
    };
    assert_eq!(decide(&own(false)).unwrap_err(), DecideError::SelfApproval);
    assert_eq!(scene.state(&approval.approval_id).0, ApprovalState::Pending);
    assert!(decide(&own(true)).is_ok());
}

#[test]
fn decisions_on_unknown_approvals_or_with_long_comments_are_refused() {
    let scene = Scene::new();
    assert_eq!(scene.decide("no such", Choice::Approve).unwrap_err(), DecideError::NotFound);
    let (_, approval) = scene.asked("c");
    let with = |comment: &str| {
        scene.gateway.decide(&approval.approval_id, &reviewer("uid:0"), &Ballot::once(Choice::Deny, comment))
    };
    assert_eq!(with(&"é".repeat(4_097)).unwrap_err(), DecideError::CommentTooLong);
    assert!(with(&"é".repeat(4_096)).is_ok());
}

#[test]
fn an_approval_is_for_one_call_and_nothing_else() {
    let scene = Scene::new();
    let other_caller = Caller { principal: "uid:7".into(), ..caller("director") };
    let other_run = Caller { run_id: "run-2".into(), ..caller("director") };
    let other_image = RunScope { image_id: "sha256:2".into(), ..run("review") };
    let (plain, me) = (run("review"), caller("director"));
    for (tampered, reason, after) in [
        (scene.ticket_of(&plain, &me, "c", "ho\n"), Reason::PreconditionFailed, PermitState::Withdrawn),
        (
            scene.ticket_of(&plain, &other_caller, "c", "hi\n"),
            Reason::PreconditionFailed,
            PermitState::Withdrawn,
        ),
        (
            scene.ticket_of(&plain, &caller("manager"), "c", "hi\n"),
            Reason::PreconditionFailed,
            PermitState::Withdrawn,
        ),
        (scene.ticket_of(&other_image, &me, "c", "hi\n"), Reason::PreconditionFailed, PermitState::Withdrawn),
        (
            scene.ticket_of(&run("strict"), &me, "c", "hi\n"),
            Reason::PreconditionFailed,
            PermitState::Withdrawn,
        ),
        (scene.ticket_of(&plain, &me, "d", "hi\n"), Reason::PermissionDenied, PermitState::Available),
        (scene.ticket_of(&plain, &other_run, "c", "hi\n"), Reason::PermissionDenied, PermitState::Available),
    ] {
        let (ticket, id) = scene.approved("c");
        assert_eq!(scene.redeem(&id, &tampered), Err(reason), "{tampered:?}");
        assert_eq!(scene.state(&id).1, after, "{tampered:?}");
        let again = if after == PermitState::Available { Ok(()) } else { Err(Reason::Cancelled) };
        assert_eq!(scene.redeem(&id, &ticket), again);
    }
}

#[test]
fn the_permit_binds_the_effect_to_the_shown_state() {
    let scene = Scene::new();
    let (ticket, id) = scene.approved("c");
    let permit = scene.gateway.redeem(&id, &ticket).unwrap();
    assert_eq!(permit.into_parts().bounds.held_to, bound("aa").held());
}

#[test]
fn approval_of_another_format_is_not_redeemed() {
    let scene = Scene::new();
    let (_, approval) = scene.asked("c");
    let mut stored = serde_json::to_value(&approval).unwrap();
    assert!(serde_json::from_value::<Approval>(stored.clone()).unwrap().is_sound());
    stored.as_object_mut().unwrap().remove("format");
    let older: Approval = serde_json::from_value(stored).unwrap();
    assert!(!older.is_sound());
    let other = Scene::new();
    assert!(other.gateway.restore_approvals(vec![older]).is_err());
}

#[test]
fn a_policy_that_changed_meanwhile_voids_it() {
    let scene = Scene::new();
    let (ticket, id) = scene.approved("c");
    scene.gateway.reload(builtin_and("roles: {other: {allow: [read]}}"));
    let refusal = scene.gateway.redeem(&id, &ticket).unwrap_err();
    assert_eq!(refusal.reason, Reason::PreconditionFailed);
    assert!(refusal.message.contains("policy"), "{}", refusal.message);

    scene.gateway.reload(builtin());
    let (ticket, id) = scene.approved("d");
    let denies = "profiles: {review: {operations: {read: allow}}}\nroles: {director: {allow: '*'}}";
    scene.gateway.reload(policy::Policy::from_files([("p.yaml", denies)]).unwrap());
    assert_eq!(scene.redeem(&id, &ticket), Err(Reason::PermissionDenied));
    scene.gateway.reload(builtin());
    assert_eq!(scene.redeem(&id, &ticket), Err(Reason::Cancelled));
}

#[test]
fn time_denies() {
    let scene = Scene::new();
    let (ticket, approval) = scene.asked("c");
    let id = &approval.approval_id;
    scene.clock.advance(5 * MINUTE);
    assert_eq!(scene.decide(id, Choice::Approve).unwrap_err(), DecideError::Expired);
    let expired = scene.gateway.expire_due();
    assert_eq!(
        expired.iter().map(|approval| (&approval.approval_id, approval.state)).collect::<Vec<_>>(),
        [(id, ApprovalState::Expired)]
    );
    assert_eq!(scene.gateway.expire_due(), []);
    assert_eq!(scene.decide(id, Choice::Approve).unwrap_err(), DecideError::Expired);
    assert_eq!(scene.redeem(id, &ticket), Err(Reason::ApprovalExpired));
}

#[test]
fn consent_does_not_keep_for_ever() {
    let scene = Scene::new();
    let (ticket, id) = scene.approved("c");
    scene.clock.advance(REDEEM_WITHIN);
    assert_eq!(scene.redeem(&id, &ticket), Err(Reason::ApprovalExpired));
    assert_eq!(scene.state(&id).1, PermitState::Withdrawn);
}

#[test]
fn reviewers_are_reminded_once_at_half_time() {
    let scene = Scene::new();
    let (_, approval) = scene.asked("c");
    assert_eq!(scene.gateway.next_due().unwrap().since(approval.created_at), 5 * MINUTE / 2);
    scene.clock.advance(2 * MINUTE);
    assert_eq!(scene.gateway.reminders_due(), []);
    scene.clock.advance(MINUTE / 2);
    assert_eq!(scene.gateway.reminders_due().len(), 1);
    assert_eq!(scene.gateway.reminders_due(), []);
    assert_eq!(scene.gateway.next_due(), Some(approval.expires_at));
}

#[test]
fn cancelling_ends_waiting_calls_and_voids_consents() {
    let scene = Scene::new();
    let (pending, approval) = scene.asked("c");
    let (given, given_id) = scene.approved("d");
    assert_eq!(scene.gateway.cancel_call("c").len(), 1);
    assert_eq!(scene.gateway.cancel_call("c"), []);
    assert_eq!(scene.redeem(&approval.approval_id, &pending), Err(Reason::Cancelled));
    assert_eq!(
        scene.decide(&approval.approval_id, Choice::Approve).unwrap_err(),
        DecideError::AlreadyDecided { state: ApprovalState::Cancelled, by: None }
    );
    assert_eq!(scene.gateway.cancel_run("run-1").len(), 1);
    assert_eq!(scene.redeem(&given_id, &given), Err(Reason::Cancelled));
    assert_eq!(scene.state(&given_id), (ApprovalState::Approved, PermitState::Withdrawn));
}

#[test]
fn waiting_calls_are_bounded() {
    let scene = Scene::new();
    let ask_as = |principal: &str, run_id: &str, call: &str, review: Review| {
        let caller = Caller { run_id: run_id.into(), principal: principal.into(), ..caller("director") };
        let ticket = scene.ticket_of(&run("review"), &caller, call, "hi\n");
        scene.gateway.request_approval(&ticket, review, None).map_err(|refusal| refusal.reason)
    };
    let ask = |run_id: &str, call: &str, review: Review| ask_as("uid:7", run_id, call, review);
    let huge = Review { preview: "x".repeat(MAX_REVIEW_BYTES), ..review() };
    assert_eq!(ask("r", "huge", huge).unwrap_err(), Reason::InvalidArgument);
    for call in 0..MAX_OPEN_PER_RUN {
        ask("r", &format!("c{call}"), review()).unwrap();
    }
    assert_eq!(ask("r", "c0", review()).unwrap_err(), Reason::AlreadyExists);
    assert_eq!(ask("r", "more", review()).unwrap_err(), Reason::Overloaded);
    for call in MAX_OPEN_PER_RUN..MAX_OPEN / 2 {
        ask(&format!("r{}", call / 10), &format!("c{call}"), review()).unwrap();
    }
    assert_eq!(ask("other", "more", review()).unwrap_err(), Reason::Overloaded, "a tenant takes half");
    scene.gateway.cancel_call("c0");
    assert!(ask("other", "more", review()).is_ok());
    let of_others =
        |number: usize| ask_as("uid:8", &format!("s{}", number / 10), &format!("d{number}"), review());
    let taken = (0..MAX_OPEN).take_while(|number| of_others(*number).is_ok()).count();
    assert_eq!(taken, MAX_OPEN / 4, "half of the rest");
    assert!(ask_as("uid:9", "t", "e", review()).is_ok());
}

#[test]
fn large_calls_of_one_tenant_leave_space_for_others() {
    let scene = Scene::new();
    let ask = |principal: &str, call: usize| {
        let run_id = format!("{principal}-{}", call / 10);
        let caller = Caller { run_id, principal: principal.into(), ..caller("director") };
        let ticket = scene.ticket_of(&run("review"), &caller, &format!("{principal}-{call}"), "hi\n");
        let large = Review { preview: "x".repeat(MAX_REVIEW_BYTES - 1_024), ..review() };
        scene.gateway.request_approval(&ticket, large, None).map_err(|refusal| refusal.reason)
    };
    let taken = (0..MAX_OPEN).take_while(|call| ask("uid:7", *call).is_ok()).count();
    assert!((60..70).contains(&taken), "{taken} of about 128 MiB");
    assert_eq!(ask("uid:8", 0).map(|_| ()), Ok(()));
}

#[test]
fn settled_ones_are_forgotten_in_order_and_open_ones_never() {
    let scene = Scene::new();
    let (open, open_id) = scene.approved("open");
    let (_, first) = scene.asked("first");
    scene.gateway.cancel_call("first");
    scene.clock.advance(Duration::from_millis(1));
    for call in 0..MAX_SETTLED {
        scene.asked(&format!("c{call}"));
        scene.gateway.cancel_call(&format!("c{call}"));
    }
    assert_eq!(scene.gateway.list_approvals(&ApprovalFilter::default()).len(), MAX_SETTLED + 1);
    assert_eq!(scene.gateway.approval(&first.approval_id), None);
    assert_eq!(scene.redeem(&open_id, &open), Ok(()));
}

#[test]
fn large_settled_ones_are_forgotten_sooner() {
    let scene = Scene::new();
    let size = MAX_REVIEW_BYTES - 1_024;
    for call in 0..MAX_SETTLED_BYTES / size + 10 {
        let (call, caller) = (format!("c{call}"), caller("director"));
        let ticket = scene.ticket_of(&run("review"), &caller, &call, "hi\n");
        let large = Review { preview: "x".repeat(size), ..review() };
        scene.gateway.request_approval(&ticket, large, None).unwrap();
        scene.gateway.cancel_call(&call);
        scene.clock.advance(Duration::from_millis(1));
    }
    let kept = scene.gateway.list_approvals(&ApprovalFilter::default());
    assert!(kept.iter().map(Approval::shown_bytes).sum::<usize>() <= MAX_SETTLED_BYTES);
    assert!(kept.len() >= MAX_SETTLED_BYTES / MAX_REVIEW_BYTES, "{}", kept.len());
}

#[test]
fn lists_are_filtered_and_oldest_first() {
    let scene = Scene::new();
    let ids: Vec<String> = ["a", "b", "c"].map(|call| scene.asked(call).1.approval_id).into();
    scene.decide(&ids[1], Choice::Deny).unwrap();
    let list = |state, run_id: Option<&str>| -> Vec<String> {
        let filter = ApprovalFilter { state, run_id: run_id.map(str::to_owned) };
        scene.gateway.list_approvals(&filter).into_iter().map(|approval| approval.approval_id).collect()
    };
    assert_eq!(list(None, None), ids);
    assert_eq!(list(Some(ApprovalState::Denied), None), ids[1..2]);
    assert_eq!(list(None, Some("run-1")), ids);
    assert!(list(None, Some("run-2")).is_empty());
}

#[test]
fn approvals_survive_a_restart_with_their_clocks_running() {
    let scene = Scene::new();
    let (waiting_ticket, waiting) = scene.asked("waiting");
    let (given_ticket, given) = scene.approved("given");
    let (used_ticket, used) = scene.approved("used");
    scene.redeem(&used, &used_ticket).unwrap();
    let stored = serde_json::to_string(&scene.gateway.list_approvals(&ApprovalFilter::default())).unwrap();

    let next = Scene::new();
    next.clock.advance(MINUTE);
    next.gateway.restore_approvals(serde_json::from_str(&stored).unwrap()).unwrap();
    assert_eq!(next.gateway.restore_approvals(Vec::new()).unwrap_err(), RestoreError::NotEmpty);
    assert_eq!(next.redeem(&used, &used_ticket), Err(Reason::PreconditionFailed));
    assert_eq!(next.redeem(&given, &next.ticket("given")), Ok(()));
    assert_eq!(next.redeem(&given, &given_ticket), Err(Reason::PreconditionFailed));
    next.clock.advance(4 * MINUTE);
    assert_eq!(next.gateway.expire_due().len(), 1);
    assert_eq!(next.redeem(&waiting.approval_id, &waiting_ticket), Err(Reason::ApprovalExpired));
}

#[test]
fn damaged_records_are_not_restored() {
    let scene = Scene::new();
    let (_, approval) = scene.asked("c");
    let forged = Approval { permit: PermitState::Available, ..approval.clone() };
    let restore = |stored| Scene::new().gateway.restore_approvals(stored);
    assert_eq!(restore(vec![forged]), Err(RestoreError::Damaged(approval.approval_id.clone())));
    assert_eq!(
        restore(vec![approval.clone(), approval.clone()]),
        Err(RestoreError::Duplicate(approval.approval_id.clone()))
    );
    assert_eq!(restore(vec![approval]), Ok(()));
}

#[test]
fn prepared_approval_is_hidden_and_does_not_expire() {
    let scene = Scene::new();
    let ticket = scene.ticket("c");
    let approval = scene.gateway.prepare_approval(&ticket, review(), None).unwrap();
    let id = &approval.approval_id;
    assert_eq!(scene.gateway.approval(id), None);
    assert_eq!(scene.gateway.list_approvals(&ApprovalFilter::default()), []);
    assert_eq!(scene.decide(id, Choice::Approve), Err(DecideError::NotFound));
    assert_eq!(scene.redeem(id, &ticket), Err(Reason::PreconditionFailed));
    scene.clock.advance(60 * MINUTE);
    assert_eq!(scene.gateway.next_due(), None);
    assert_eq!((scene.gateway.reminders_due(), scene.gateway.expire_due()), (vec![], vec![]));
    // It counts among those that wait all the same.
    let again = scene.gateway.prepare_approval(&ticket, review(), None).unwrap_err();
    assert_eq!(again.reason, Reason::AlreadyExists);

    scene.gateway.open_approval(id);
    assert_eq!(scene.gateway.approval(id), Some(approval.clone()));
    assert_eq!(scene.decide(id, Choice::Approve), Err(DecideError::Expired));
    // One that is cancelled before it is open is shown as such.
    let late = scene.gateway.prepare_approval(&scene.ticket("late"), review(), None).unwrap();
    assert_eq!(scene.gateway.cancel_call("late").len(), 1);
    assert_eq!(scene.state(&late.approval_id).0, ApprovalState::Cancelled);
}

#[test]
fn consent_without_a_proof_does_not_count_where_one_is_required() {
    let policy =
        builtin_and("profiles: {signed: {operations: {write: ask}, approvals: {passkey: required}}}");
    let clock = TestClock::new();
    let scene = Scene { gateway: Gateway::new(policy, clock.clone()), clock };
    let ask = |call: &str| {
        let ticket = scene.ticket_of(&run("signed"), &caller("director"), call, "hi\n");
        scene.gateway.request_approval(&ticket, review(), None).unwrap()
    };
    let approval = ask("c1");
    assert!(approval.passkey);
    assert_eq!(scene.decide(&approval.approval_id, Choice::Approve), Err(DecideError::PasskeyNeeded));
    assert_eq!(scene.gateway.approval(&approval.approval_id).unwrap().state, ApprovalState::Pending);
    let proof = serde_json::json!({ "signature": "00" });
    let signed = Ballot { proof: Some(proof.clone()), ..Ballot::once(Choice::Approve, "") };
    let decided = scene.gateway.decide(&approval.approval_id, &reviewer("uid:0"), &signed).unwrap();
    assert_eq!((decided.state, &decided.votes[0].proof), (ApprovalState::Approved, &Some(proof)));
    // A denial lets nothing happen.
    let denied = ask("c2");
    assert_eq!(scene.decide(&denied.approval_id, Choice::Deny).unwrap().state, ApprovalState::Denied);
}

#[test]
fn words_of_a_command_are_remembered_for_none_whose_consent_has_to_be_signed() {
    let words = "operations: {exec: allow}, exec: {default: ask}";
    let policy = builtin_and(&format!(
        "profiles: {{plain: {{{words}, approvals: {{remember: [digest, prefix]}}}}, \
         signed: {{{words}, approvals: {{remember: [digest, prefix], passkey: required}}}}}}"
    ));
    let gateway = Gateway::new(policy, TestClock::new());
    let offers = |profile: &str| {
        let operation = Operation::Exec(exec(&["cat", "a.txt"]));
        match gateway.admit(&gateway.policy(), &run(profile), &caller("director"), profile, operation) {
            Admission::Ask(ticket) => gateway.request_approval(&ticket, review(), None).unwrap().offers,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(offers("plain"), [Form::Digest, Form::Prefix]);
    assert_eq!(offers("signed"), [Form::Digest]);
}
