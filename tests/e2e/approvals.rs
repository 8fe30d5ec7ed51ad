//! Tests consent: given once, by the right person, for exactly the shown call.

use harness::v1::approval::State;
use harness::v1::call_response::Status;
use harness::v1::decide_approval_request::Decision;
use harness::{Daemon, RunHandle, Setup, as_user, calls, pending, reason, record, v1};

const FILE: (&str, &str) = ("a.txt", "one\n");

async fn review(daemon: &Daemon) -> RunHandle {
    let workspace = daemon.workspace("w", &[FILE]);
    daemon.run("review", &workspace).await
}

fn content(daemon: &Daemon) -> String {
    std::fs::read_to_string(daemon.roots().join("w/a.txt")).unwrap()
}

fn edit() -> v1::operation::Kind {
    calls::replace("a.txt", "one", "two")
}

async fn cancel(run: &mut RunHandle, call_id: &str) -> bool {
    let request = v1::CancelCallRequest { call_id: call_id.to_owned() };
    run.clients.tools.cancel_call(request).await.unwrap().into_inner().cancelled
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_call_is_not_executed_and_decision_is_final() {
    let daemon = Daemon::start().await;
    let mut run = review(&daemon).await;

    let waiting = run.waits(edit());
    let approval = pending(&mut run).await;
    let denied = run.clients.decide(&approval.approval_id, Decision::Deny).await.unwrap();
    assert_eq!(denied.state(), State::Denied);
    let refused = waiting.await.unwrap().unwrap_err();
    assert_eq!(reason(&refused), "APPROVAL_DENIED");
    assert!(refused.message().contains("decided by a test"), "the agent reads why: {}", refused.message());

    let asked = run.asks(edit()).await;
    run.clients.decide(&asked.approval_id, Decision::Deny).await.unwrap();
    let call = run.outcome(&asked.call_id).await;
    assert_eq!((call.status(), call.error.unwrap().reason.as_str()), (Status::Denied, "APPROVAL_DENIED"));
    assert_eq!(content(&daemon), "one\n");

    let again = run.clients.approve(&asked.approval_id).await.unwrap_err();
    assert_eq!(reason(&again), "PRECONDITION_FAILED");
    let unknown = run.clients.approve("0198a1b2-0000-7000-8000-000000000000").await.unwrap_err();
    assert_eq!(reason(&unknown), "NOT_FOUND");
    let neither = run.clients.decide(&asked.approval_id, Decision::Unspecified).await.unwrap_err();
    assert_eq!(reason(&neither), "INVALID_ARGUMENT");

    // Two reviewers at once: one wins, the other is told; the call runs once.
    let asked = run.asks(edit()).await;
    let (mut one, mut other) = (run.clients.clone(), daemon.connect().await);
    let (one, other) = tokio::join!(one.approve(&asked.approval_id), other.approve(&asked.approval_id));
    let lost: Vec<_> = [one, other].into_iter().filter_map(Result::err).collect();
    assert_eq!(lost.iter().map(reason).collect::<Vec<_>>(), ["PRECONDITION_FAILED"]);
    assert_eq!(run.outcome(&asked.call_id).await.status(), Status::Succeeded);
    assert_eq!(content(&daemon), "two\n");
    assert_eq!(run.clients.of_call(&asked.call_id).await.len(), 4, "intent, asked, decided, receipt");
}

#[tokio::test(flavor = "multi_thread")]
async fn undecided_approval_expires_after_one_reminder() {
    let config = "approvals: { timeout: 10s, allow_self_approval: true }\n".to_owned();
    let daemon = Daemon::start_with(Setup { config, ..Default::default() }).await;
    let mut run = review(&daemon).await;
    let call =
        v1::CallRequest { run_id: run.id().to_owned(), request: Some(edit().into()), ..Default::default() };
    let explain = v1::ExplainPolicyRequest { call: Some(call) };
    let explained = run.clients.policy.explain_policy(explain).await.unwrap().into_inner();
    // The profile has five minutes.
    let from = "configuration: approvals.timeout";
    assert_eq!((explained.decision_time.unwrap().seconds, &*explained.decision_time_from), (10, from));
    let waiting = run.waits(edit());
    let approval = pending(&mut run).await;
    assert_eq!(approval.decision_time_from, from);
    assert_eq!(reason(&waiting.await.unwrap().unwrap_err()), "APPROVAL_EXPIRED");
    assert_eq!(run.clients.approval(&approval.approval_id).await.state(), State::Expired);
    assert_eq!(reason(&run.clients.approve(&approval.approval_id).await.unwrap_err()), "APPROVAL_EXPIRED");
    assert_eq!(content(&daemon), "one\n");

    let events = run.clients.of_call(&approval.call_id).await;
    let kinds: Vec<_> = events.iter().map(|event| event.kind.as_str()).collect();
    let expected =
        ["call_intent", "approval_requested", "approval_reminded", "approval_decided", "call_receipt"];
    assert_eq!(kinds, expected);
    assert_eq!(record(&events[4])["outcome"]["reason"], "APPROVAL_EXPIRED");
}

#[tokio::test(flavor = "multi_thread")]
async fn requester_cannot_approve_own_call() {
    let setup = Setup {
        config: "access: [{ uid: 12345, roles: [approver] }]\n".to_owned(),
        forbid_self_approval: true,
        ..Default::default()
    };
    let daemon = Daemon::start_with(setup).await;
    let mut run = review(&daemon).await;
    let asked = run.asks(edit()).await;

    let refused = run.clients.approve(&asked.approval_id).await.unwrap_err();
    assert_eq!(reason(&refused), "PERMISSION_DENIED");
    for word in ["approvals.allow_self_approval: true", "another user", "coffer token create"] {
        assert!(refused.message().contains(word), "{word}: {}", refused.message());
    }
    assert_eq!(run.clients.approval(&asked.approval_id).await.state(), State::Pending);
    assert_eq!(content(&daemon), "one\n");

    daemon.expose();
    let approval_id = asked.approval_id.clone();
    let decided = as_user(12_345, &daemon.socket(), async move |mut clients| {
        let call = v1::CallRequest { request: Some(edit().into()), ..Default::default() };
        let not_theirs = clients.tools.call(call).await.unwrap_err();
        assert_eq!(reason(&not_theirs), "PERMISSION_DENIED", "an approver makes no calls");
        clients.approve(&approval_id).await
    })
    .await;
    assert_eq!(decided.unwrap().decided_by, "uid:12345");
    assert_eq!(run.outcome(&asked.call_id).await.status(), Status::Succeeded);
    assert_eq!(content(&daemon), "two\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_a_call_cancels_its_approval() {
    let daemon = Daemon::start().await;
    let mut run = review(&daemon).await;

    let waiting = run.waits(edit());
    let approval = pending(&mut run).await;
    assert!(cancel(&mut run, &approval.call_id).await);
    assert_eq!(reason(&waiting.await.unwrap().unwrap_err()), "CANCELLED");
    assert_eq!(run.clients.approval(&approval.approval_id).await.state(), State::Cancelled);
    assert_eq!(reason(&run.clients.approve(&approval.approval_id).await.unwrap_err()), "PRECONDITION_FAILED");
    assert!(!cancel(&mut run, &approval.call_id).await, "it is over");

    let waiting = run.waits(edit());
    let approval = pending(&mut run).await;
    assert_eq!(run.stop().await.state(), v1::run::State::Stopped);
    assert_eq!(reason(&waiting.await.unwrap().unwrap_err()), "CANCELLED");
    assert_eq!(run.clients.approval(&approval.approval_id).await.state(), State::Cancelled);
    assert_eq!(content(&daemon), "one\n");
    for call in run.clients.events("", "call_receipt").await {
        assert_eq!(record(&call)["outcome"]["reason"], "CANCELLED");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn consent_covers_only_the_shown_call() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[FILE, ("job.sh", "echo harmless\n")]);
    let mut run = daemon.run("review", &workspace).await;

    let asked = run.asks(edit()).await;
    std::fs::write(workspace.join("a.txt"), "one, but not the one that was shown\n").unwrap();
    run.clients.approve(&asked.approval_id).await.unwrap();
    let call = run.outcome(&asked.call_id).await;
    assert_eq!((call.status(), call.error.unwrap().reason.as_str()), (Status::Denied, "PRECONDITION_FAILED"));
    assert_eq!(content(&daemon), "one, but not the one that was shown\n");

    // A script swapped while the human was reading does not run.
    let waiting = run.waits(calls::exec(&["sh", "job.sh"]));
    let approval = pending(&mut run).await;
    assert!(
        approval.preview.contains("\"sh\"") && approval.preview.contains("job.sh"),
        "{}",
        approval.preview
    );
    std::fs::write(workspace.join("job.sh"), "echo harmful\n").unwrap();
    run.clients.approve(&approval.approval_id).await.unwrap();
    assert_eq!(reason(&waiting.await.unwrap().unwrap_err()), "PRECONDITION_FAILED");

    // Unchanged, it does.
    let waiting = run.waits(calls::exec(&["sh", "job.sh"]));
    let approval = pending(&mut run).await;
    run.clients.approve(&approval.approval_id).await.unwrap();
    let Some(v1::result::Kind::Exec(exec)) = waiting.await.unwrap().unwrap().into_kind() else {
        panic!("not an exec")
    };
    assert_eq!(exec.stdout, "harmful\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn call_that_would_fail_asks_no_reviewer() {
    let daemon = Daemon::start().await;
    let mut run = review(&daemon).await;
    let refused = run.call(calls::replace("a.txt", "no such text", "x")).await.unwrap_err();
    assert!(refused.message().contains("no reviewer was asked"), "{}", refused.message());
    let refused = run.call(calls::create("a.txt", "x")).await.unwrap_err();
    assert_eq!(reason(&refused), "PRECONDITION_FAILED");
    let all = run.clients.approvals.list_approvals(v1::ListApprovalsRequest::default()).await.unwrap();
    assert_eq!(all.into_inner().approvals, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_changes_meanwhile_decides_again() {
    let review_policy = include_str!("../../crates/policy/policies/review.yaml");
    let policy = vec![
        ("review.yaml", review_policy.to_owned()),
        ("roles.yaml", include_str!("../../crates/policy/policies/roles.yaml").to_owned()),
    ];
    let daemon = Daemon::start_with(Setup { policy, ..Default::default() }).await;
    let mut run = review(&daemon).await;
    let reload = v1::ReloadPolicyRequest {};
    let file = daemon.policy_dir().join("review.yaml");

    // A bad policy is refused whole, every problem of it named; the old one stays.
    let before = run.clients.policy.get_policy(v1::GetPolicyRequest {}).await.unwrap().into_inner().digest;
    std::fs::write(
        &file,
        review_policy.replace("edit: ask", "edit: perhaps").replace("pids: 512", "pids: none"),
    )
    .unwrap();
    let refused = run.clients.policy.reload_policy(reload).await.unwrap_err();
    assert_eq!(reason(&refused), "INVALID_ARGUMENT");
    assert!(
        refused.message().contains("edit") && refused.message().contains("pids"),
        "{}",
        refused.message()
    );
    let after = run.clients.policy.get_policy(v1::GetPolicyRequest {}).await.unwrap().into_inner().digest;
    assert_eq!(before, after);

    let asked = run.asks(edit()).await;
    std::fs::write(&file, review_policy.replace("edit: ask", "edit: deny")).unwrap();
    let reloaded = run.clients.policy.reload_policy(reload).await.unwrap().into_inner();
    assert!(reloaded.changed && reloaded.digest != before);
    run.clients.approve(&asked.approval_id).await.unwrap();
    let call = run.outcome(&asked.call_id).await;
    assert_eq!((call.status(), call.error.unwrap().reason.as_str()), (Status::Denied, "PERMISSION_DENIED"));
    assert_eq!(reason(&run.call(edit()).await.unwrap_err()), "PERMISSION_DENIED");

    // Whatever else changes: the policy is another one than the reviewer knew.
    let asked = run.asks(calls::write("b.txt", "x")).await;
    std::fs::write(&file, review_policy).unwrap();
    run.clients.policy.reload_policy(reload).await.unwrap();
    run.clients.approve(&asked.approval_id).await.unwrap();
    let call = run.outcome(&asked.call_id).await;
    assert_eq!((call.status(), call.error.unwrap().reason.as_str()), (Status::Denied, "PRECONDITION_FAILED"));
    assert!(!daemon.roots().join("w/b.txt").exists());
    assert_eq!(content(&daemon), "one\n");
}
