//! Tests permissions that are granted and revoked at run time, explanations and replays.

use harness::v1::call_response::Status as CallStatus;
use harness::v1::decide_approval_request::Decision;
use harness::v1::permission::Subject;
use harness::v1::{
    self, Permission, Verdict, grant_permission_request as grant, revoke_permission_request as revoke,
};
use harness::{Clients, Daemon, RunHandle, Setup, calls, reason, record, requests};
use tonic::Status;

const FILE: (&str, &str) = ("docs/a.md", "one\n");

fn permission(operation: &str) -> Permission {
    Permission {
        subject: Some(Subject::AgentId("tester".into())),
        operation: operation.into(),
        reason: "for a test".into(),
        ..Default::default()
    }
}

async fn give(clients: &mut Clients, permission: Permission) -> Result<Permission, Status> {
    let request =
        v1::GrantPermissionRequest { what: Some(grant::What::Permission(permission)), ..Default::default() };
    clients.permissions.grant_permission(request).await.map(|given| given.into_inner().permission.unwrap())
}

async fn take(clients: &mut Clients, what: revoke::What) -> Result<Permission, Status> {
    let request = v1::RevokePermissionRequest { what: Some(what), reason: "over".into() };
    clients.permissions.revoke_permission(request).await.map(|taken| taken.into_inner().permission.unwrap())
}

async fn review(daemon: &Daemon) -> RunHandle {
    let workspace = daemon.workspace("w", &[FILE]);
    daemon
        .run_on(v1::CreateRunRequest { role: "manager".into(), ..requests::bind("review", &workspace) })
        .await
}

fn delete(path: &str) -> v1::operation::Kind {
    v1::operation::Kind::Delete(v1::DeleteRequest { path: path.to_owned(), ..Default::default() })
}

fn edit() -> v1::operation::Kind {
    calls::replace("docs/a.md", "one", "two")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_counts_at_once_is_on_record_first_and_survives_a_restart() {
    let mut daemon = Daemon::start().await;
    let mut run = review(&daemon).await;
    let waits = run.asks(edit()).await;
    run.clients.decide(&waits.approval_id, Decision::Deny).await.unwrap();
    run.outcome(&waits.call_id).await;
    let asked = Permission { path_pattern: "docs/**".into(), preapproved: true, ..permission("edit") };
    let given = give(&mut run.clients, asked).await.unwrap();
    assert!(given.in_force && given.created_by.starts_with("uid:"));
    let done = run.call(edit()).await.unwrap();
    assert_eq!(done.status(), CallStatus::Succeeded, "{done:?}");
    let intent = record(&run.clients.of_call(&done.call_id).await[0]);
    assert_eq!(intent["decision"]["rule"], format!("permission {}", given.permission_id));
    let events = run.clients.events("", "permission_granted").await;
    assert_eq!(record(&events[0])["details"]["permission_id"], given.permission_id.as_str());

    daemon.stop().await;
    daemon.launch().await;
    let mut clients = daemon.connect().await;
    let listed = clients
        .permissions
        .list_permissions(v1::ListPermissionsRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(listed.permissions, std::slice::from_ref(&given));

    let ended = take(&mut clients, revoke::What::PermissionId(given.permission_id.clone())).await.unwrap();
    assert!(!ended.in_force && ended.ended_reason == "over");
    let again = take(&mut clients, revoke::What::PermissionId(given.permission_id)).await.unwrap_err();
    assert_eq!(reason(&again), "NOT_FOUND");
    let mut run = review(&daemon).await;
    assert_eq!(run.call(edit()).await.unwrap().status(), CallStatus::PendingApproval);
    let all = v1::ListPermissionsRequest { include_ended: true, ..Default::default() };
    assert_eq!(clients.permissions.list_permissions(all).await.unwrap().into_inner().permissions, [ended]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revocation_counts_for_a_call_that_waits_and_can_be_lifted() {
    let daemon = Daemon::start().await;
    let mut run = review(&daemon).await;
    let waiting = run.waits(edit());
    let id = run.id().to_owned();
    let approval = run.clients.pending_approval(&id).await;
    let taken = take(&mut run.clients, revoke::What::Permission(permission("edit"))).await.unwrap();
    run.clients.approve(&approval.approval_id).await.unwrap();
    let refused = waiting.await.unwrap().unwrap_err();
    assert_eq!(reason(&refused), "PERMISSION_DENIED", "{}", refused.message());
    assert_eq!(std::fs::read_to_string(daemon.roots().join("w/docs/a.md")).unwrap(), "one\n");
    // A grant does not help against it.
    give(&mut run.clients, permission("edit")).await.unwrap();
    assert_eq!(reason(&run.call(edit()).await.unwrap_err()), "PERMISSION_DENIED");
    let what = Some(grant::What::LiftPermissionId(taken.permission_id));
    let request = v1::GrantPermissionRequest { what, reason: "it is safe again".into() };
    run.clients.permissions.grant_permission(request).await.unwrap();
    assert_eq!(run.call(edit()).await.unwrap().status(), CallStatus::PendingApproval);
    assert_eq!(run.clients.events("", "permission_revoked").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permission_that_makes_no_sense_is_refused_and_leaves_no_trace() {
    let daemon = Daemon::start().await;
    let mut clients = daemon.connect().await;
    for bad in [
        permission("raed"),
        permission(""),
        Permission { subject: None, ..permission("read") },
        Permission { subject: Some(Subject::Role("boss".into())), ..permission("read") },
        Permission { reason: String::new(), ..permission("read") },
        Permission { path_pattern: "../x".into(), ..permission("read") },
        Permission { preapproved: true, ..permission("delete") },
        Permission { preapproved: true, ..permission("exec") },
    ] {
        let refused = give(&mut clients, bad.clone()).await.unwrap_err();
        assert_eq!(reason(&refused), "INVALID_ARGUMENT", "{bad:?}");
    }
    assert!(clients.events("", "permission_granted").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_explanation_equals_the_decision_of_the_call() {
    let daemon = Daemon::start().await;
    let mut run = review(&daemon).await;
    for operation in [
        calls::read("docs/a.md"),
        edit(),
        calls::exec(&["make"]),
        calls::exec(&["env", "rm", "x"]),
        calls::exec(&["cat", "docs/a.md"]),
        calls::shell("ls"),
    ] {
        let call = v1::CallRequest {
            run_id: run.id().to_owned(),
            request: Some(operation.clone().into()),
            ..Default::default()
        };
        let explained =
            run.clients.policy.explain_policy(v1::ExplainPolicyRequest { call: Some(call) }).await;
        let explained = explained.unwrap().into_inner();
        assert_eq!(explained.considered.iter().filter(|one| one.decides).count(), 1, "{explained:?}");
        let met = match run.call(operation).await {
            Ok(call) if call.status() == CallStatus::PendingApproval => {
                run.clients.decide(&call.approval_id, Decision::Deny).await.unwrap();
                run.outcome(&call.call_id).await;
                Verdict::Ask
            }
            Ok(_) => Verdict::Allow,
            Err(_) => Verdict::Deny,
        };
        assert_eq!(explained.verdict(), met, "{explained:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_lists_changed_decisions_and_calls_that_it_cannot_judge() {
    let daemon = Daemon::start().await;
    let mut run = review(&daemon).await;
    run.ok(calls::read("docs/a.md")).await;
    run.asks(edit()).await;
    run.asks(calls::exec(&["make", &"x".repeat(2_000)])).await;
    let same = run.clients.policy.get_policy(v1::GetPolicyRequest {}).await.unwrap().into_inner().yaml;
    let replay = async |clients: &mut Clients, content: &str| {
        let file = v1::PolicyFile { name: "proposed.yaml".into(), content: content.to_owned() };
        let request = v1::ReplayPolicyRequest { files: vec![file], ..Default::default() };
        clients.policy.replay_policy(request).await.map(tonic::Response::into_inner)
    };
    let none = replay(&mut run.clients, &same).await.unwrap();
    assert_eq!((none.calls, none.unchanged, none.changed, none.cut), (3, 2, 0, 1), "{none:?}");
    assert!(none.complete);
    let stricter = "roles: {manager: {allow: [read]}}\nprofiles: {review: {operations: {read: ask}}}\n";
    let changed = replay(&mut run.clients, stricter).await.unwrap();
    assert_eq!((changed.changed, changed.cut), (2, 1), "{changed:?}");
    let verdicts: Vec<_> = changed.changes.iter().map(|one| (one.was(), one.becomes())).collect();
    assert_eq!(verdicts, [(Verdict::Allow, Verdict::Ask), (Verdict::Ask, Verdict::Deny)]);
    let wrong =
        replay(&mut run.clients, "profiles: {review: {operations: {raed: ask}}}\n").await.unwrap_err();
    assert!(wrong.message().contains("did you mean `read`?"), "{}", wrong.message());
}

/// The table in docs/src/profiles.md: what a run can do whose request names no role, and what a role that is named takes away.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_has_the_role_of_its_profile_unless_its_request_names_one() {
    let daemon = Daemon::start().await;
    let made = async |profile: &str, role: &str| {
        let request = v1::CreateRunRequest { role: role.into(), ..requests::managed(profile) };
        daemon.run_on(request).await
    };
    for (profile, asks) in [("review", true), ("strict", true), ("build", false), ("open", false)] {
        let mut run = made(profile, "").await;
        let shown = run.show().await.role;
        assert_eq!((run.run.role.as_str(), shown.as_str()), ("director", "director"));
        if asks {
            run.asks(calls::write("a.txt", "one\n")).await;
        } else {
            run.ok(calls::write("a.txt", "one\n")).await;
            run.asks(delete("a.txt")).await;
        }
        run.stop().await;

        let mut worker = made(profile, "worker").await;
        assert_eq!(worker.run.role, "worker");
        worker.ok(calls::list(".")).await;
        for refused in [calls::write("a.txt", "one\n"), calls::exec(&["ls"]), delete("a.txt")] {
            assert_eq!(reason(&worker.call(refused).await.unwrap_err()), "PERMISSION_DENIED", "{profile}");
        }
        worker.stop().await;
    }
    let mut manager = made("open", "manager").await;
    manager.ok(calls::write("a.txt", "one\n")).await;
    assert_eq!(manager.exec(&["ls"]).await.exit_code, Some(0));
    assert_eq!(reason(&manager.call(calls::shell("ls")).await.unwrap_err()), "PERMISSION_DENIED");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_that_is_silent_gives_the_least_role_and_a_policy_without_that_needs_a_name() {
    let profile = "profiles: {p: {operations: {read: allow, write: allow}}}\n".to_owned();
    let roles = |yaml: &str| Setup {
        policy: vec![("p.yaml", profile.clone()), ("roles.yaml", yaml.to_owned())],
        ..Default::default()
    };
    let unnamed = v1::CreateRunRequest { role: String::new(), ..requests::managed("p") };

    let shipped = include_str!("../../crates/policy/policies/roles.yaml");
    let daemon = Daemon::start_with(roles(shipped)).await;
    let mut run = daemon.run_on(unnamed.clone()).await;
    assert_eq!(run.run.role, "worker");
    assert_eq!(reason(&run.call(calls::write("a", "x")).await.unwrap_err()), "PERMISSION_DENIED");

    let daemon = Daemon::start_with(roles("roles: {mine: {allow: [read]}}\n")).await;
    let refused = daemon.run_with(unnamed).await.err().unwrap();
    assert_eq!(reason(&refused), "NOT_FOUND");
    assert!(refused.message().contains("default_role") && refused.message().contains("mine"), "{refused}");
}

/// As docs/src/policies.md says, names are compared, and a link is another name.
#[tokio::test(flavor = "multi_thread")]
async fn a_revocation_by_path_covers_the_name_and_not_another_link() {
    let daemon = Daemon::start().await;
    let mut run = review(&daemon).await;
    let revoked = Permission { path_pattern: "docs/**".into(), ..permission("") };
    take(&mut run.clients, revoke::What::Permission(revoked)).await.unwrap();
    for name in ["docs/a.md", "./docs/a.md", "docs//a.md", "@project/docs/a.md", "/workspace/docs/a.md"] {
        let refused = run.call(calls::read(name)).await.unwrap_err();
        assert_eq!(reason(&refused), "PERMISSION_DENIED", "{name}");
    }
    let refused = run.call(calls::grep(".", "one")).await.unwrap_err();
    assert_eq!(reason(&refused), "PERMISSION_DENIED", "what may lie beneath what is searched is meant, too");

    let workspace = daemon.roots().join("w");
    std::os::unix::fs::symlink("docs", workspace.join("link")).unwrap();
    std::fs::hard_link(workspace.join("docs/a.md"), workspace.join("hard.md")).unwrap();
    for name in ["link/a.md", "hard.md"] {
        let v1::result::Kind::Read(read) = run.ok(calls::read(name)).await else { panic!("{name}") };
        assert_eq!(read.content, "one\n", "{name} is another name of the same file");
    }
    let all = Permission { path_pattern: String::new(), ..permission("read") };
    take(&mut run.clients, revoke::What::Permission(all)).await.unwrap();
    for name in ["link/a.md", "hard.md"] {
        assert_eq!(reason(&run.call(calls::read(name)).await.unwrap_err()), "PERMISSION_DENIED");
    }
}
