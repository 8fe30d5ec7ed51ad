//! Tests consent by several people, and remembered consent: their exact extent.

use harness::v1::approval::{Remember, State};
use harness::v1::call_response::Status;
use harness::v1::decide_approval_request::Decision;
use harness::{Daemon, RunHandle, Setup, as_user, calls, reason, record, v1};

fn setup(section: &str, config: &str) -> Setup {
    let profile = format!(
        "profiles:\n  p:\n    workspace: read-write\n    operations: {{read: allow, write: ask, exec: allow, shell: ask, delete: ask, git.add: ask, git.commit: ask}}\n    exec: {{default: ask, env: [CI, PATH]}}\n    approvals: {section}\n    rate_limits:\n      operations: {{default: {{minute: unlimited, hour: unlimited, day: unlimited}}}}\n      run: {{minute: unlimited, hour: unlimited, day: unlimited}}\n      principal: {{minute: unlimited, hour: unlimited, day: unlimited}}\n"
    );
    let roles = "roles: {director: {allow: '*'}}\n".to_owned();
    let policy = vec![("profile.yaml", profile), ("roles.yaml", roles)];
    Setup { config: config.to_owned(), policy, ..Default::default() }
}

async fn decide(
    daemon: &Daemon,
    uid: u32,
    approval_id: &str,
    decision: Decision,
) -> Result<v1::Approval, tonic::Status> {
    daemon.expose();
    let approval_id = approval_id.to_owned();
    as_user(uid, &daemon.socket(), async move |mut clients| clients.decide(&approval_id, decision).await)
        .await
}

fn delete(path: &str) -> v1::operation::Kind {
    v1::operation::Kind::Delete(v1::DeleteRequest { path: path.to_owned(), ..Default::default() })
}

async fn succeeds(run: &mut RunHandle, operation: v1::operation::Kind) -> v1::CallResponse {
    let call = run.call(operation).await.unwrap();
    assert_eq!(call.status(), Status::Succeeded, "{:?}", call.error);
    call
}

/// Asks, and has the consent remembered.
async fn remembered(
    run: &mut RunHandle,
    operation: v1::operation::Kind,
    form: Remember,
    prefix: &[&str],
) -> String {
    let asked = run.asks(operation).await;
    let decided = run.clients.approve_and_remember(&asked.approval_id, form, prefix).await.unwrap();
    run.outcome(&asked.call_id).await;
    decided.consent_id
}

#[tokio::test(flavor = "multi_thread")]
async fn a_critical_call_needs_several_directors_and_one_denial_is_enough() {
    let config = "access:\n- { uid: 22001, roles: [approver] }\n- { uid: 22002, roles: [director] }\n- { uid: 22003, roles: [director] }\n- { uid: 22004, roles: [operator, orchestrator, auditor] }\n";
    let setup = Setup { forbid_self_approval: true, ..setup("{quorum: 2}", config) };
    let daemon = Daemon::start_with(setup).await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n"), ("b.txt", "one\n")]);
    let mut run = daemon.run("p", &workspace).await;
    let asked = run.asks(delete("a.txt")).await;
    let shown = run.clients.approval(&asked.approval_id).await;
    assert_eq!((shown.risk.as_str(), shown.approvals_needed), ("critical", 2));
    assert_eq!((shown.level_needed.as_str(), shown.votes.len()), ("director", 0));
    assert_eq!(shown.remember_options().collect::<Vec<_>>(), [Remember::Once]);
    assert_eq!(shown.files[0].path, "@project/a.txt");

    let mut refused = Vec::new();
    for uid in [22_001, 22_004] {
        let error = decide(&daemon, uid, &asked.approval_id, Decision::Approve).await.unwrap_err();
        refused.push(reason(&error));
    }
    refused.push(reason(&run.clients.approve(&asked.approval_id).await.unwrap_err()));
    assert_eq!(refused, ["PERMISSION_DENIED"; 3], "an approver, no approver at all, and who asked");

    let first = decide(&daemon, 22_002, &asked.approval_id, Decision::Approve).await.unwrap();
    assert_eq!((first.state(), first.votes.len(), first.decided_by.as_str()), (State::Pending, 1, ""));
    let twice = decide(&daemon, 22_002, &asked.approval_id, Decision::Approve).await.unwrap_err();
    assert_eq!(reason(&twice), "PRECONDITION_FAILED");
    assert!(twice.message().contains("1 more is needed"), "{}", twice.message());
    assert!(workspace.join("a.txt").exists());
    let second = decide(&daemon, 22_003, &asked.approval_id, Decision::Approve).await.unwrap();
    assert_eq!((second.state(), second.votes.len()), (State::Approved, 2));
    assert_eq!(run.outcome(&asked.call_id).await.status(), Status::Succeeded);
    assert!(!workspace.join("a.txt").exists());
    let kinds: Vec<_> =
        run.clients.of_call(&asked.call_id).await.into_iter().map(|event| event.kind).collect();
    let expected =
        ["call_intent", "approval_requested", "approval_voted", "approval_decided", "call_receipt"];
    assert_eq!(kinds, expected);

    let asked = run.asks(delete("b.txt")).await;
    decide(&daemon, 22_002, &asked.approval_id, Decision::Approve).await.unwrap();
    let denied = decide(&daemon, 22_003, &asked.approval_id, Decision::Deny).await.unwrap();
    assert_eq!((denied.state(), denied.votes.len()), (State::Denied, 2));
    assert_eq!(run.outcome(&asked.call_id).await.error.unwrap().reason, "APPROVAL_DENIED");
    let late = decide(&daemon, 22_002, &asked.approval_id, Decision::Approve).await.unwrap_err();
    assert_eq!(reason(&late), "PRECONDITION_FAILED");
    assert!(workspace.join("b.txt").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prefix_is_remembered_for_its_run_and_covers_commands_that_begin_with_it() {
    let daemon = Daemon::start_with(setup("{remember: [digest, prefix], freeze: false}", "")).await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run("p", &workspace).await;
    let consent = remembered(&mut run, calls::exec(&["wc", "-l", "a.txt"]), Remember::Prefix, &["wc"]).await;

    let call = succeeds(&mut run, calls::exec(&["wc", "-c", "a.txt"])).await;
    succeeds(&mut run, calls::exec(&["/usr/bin/wc", "a.txt"])).await;
    let events = run.clients.of_call(&call.call_id).await;
    assert_eq!(events.len(), 2, "nobody was asked");
    let decision = &record(&events[0])["decision"];
    assert_eq!(
        (&decision["outcome"], decision["rule"].as_str()),
        (&"allow".into(), Some(format!("remembered consent {consent}").as_str()))
    );

    // No way around it: another command, a wrapper, a script, another path, a variable that changes what runs.
    std::os::unix::fs::symlink("/usr/bin/tee", workspace.join("wc")).unwrap();
    for argv in [
        &["cat", "a.txt"][..],
        &["env", "wc", "a.txt"],
        &["sh", "-c", "wc a.txt"],
        &["timeout", "5", "wc", "a.txt"],
        &["/workspace/wc", "a.txt"],
        &["WC", "a.txt"],
        &["find", ".", "-exec", "wc", "{}", ";"],
    ] {
        let asked = run.asks(calls::exec(argv)).await;
        run.clients.decide(&asked.approval_id, Decision::Deny).await.unwrap();
    }
    let v1::operation::Kind::Exec(exec) = calls::exec(&["wc", "a.txt"]) else { unreachable!() };
    let env = [("PATH".to_owned(), "/workspace".to_owned())].into();
    run.asks(v1::operation::Kind::Exec(v1::ExecRequest { env, ..exec })).await;
    run.asks(calls::shell("wc a.txt")).await;

    // Another run knows nothing of it.
    let mut other = daemon.run("p", &workspace).await;
    other.asks(calls::exec(&["wc", "a.txt"])).await;

    let request = v1::ListConsentsRequest { run_id: run.id().to_owned() };
    let listed = run.clients.approvals.list_consents(request.clone()).await.unwrap().into_inner().consents;
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (listed[0].consent_id.as_str(), listed[0].prefix.as_slice()),
        (consent.as_str(), &["wc".to_owned()][..])
    );
    let revoke = v1::RevokeConsentRequest { consent_id: consent };
    run.clients.approvals.revoke_consent(revoke.clone()).await.unwrap();
    assert_eq!(reason(&run.clients.approvals.revoke_consent(revoke).await.unwrap_err()), "NOT_FOUND");
    run.asks(calls::exec(&["wc", "a.txt"])).await;
    assert_eq!(run.clients.events("", "consent_revoked").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_this_is_remembered_until_a_file_or_the_policy_changes_or_the_run_ends() {
    let daemon = Daemon::start_with(setup("{remember: [digest]}", "")).await;
    let workspace = daemon.workspace("w", &[("data", "b\na\n")]);
    let mut run = daemon.run("p", &workspace).await;
    let count = || calls::exec(&["wc", "-l", "data"]);
    remembered(&mut run, count(), Remember::Digest, &[]).await;
    succeeds(&mut run, count()).await;
    run.asks(calls::exec(&["wc", "-c", "data"])).await;
    std::fs::write(workspace.join("data"), "c\n").unwrap();
    run.asks(count()).await;
    // Written to all the same: what a command uses cannot be told, so that any change of the run's files counts.
    std::fs::write(workspace.join("data"), "b\na\n").unwrap();
    run.asks(count()).await;

    // Another policy: what was remembered has ended, also when the earlier one comes back.
    let file = daemon.policy_dir().join("profile.yaml");
    let before = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, before.replace("[CI, PATH]", "[CI]")).unwrap();
    let reload = v1::ReloadPolicyRequest {};
    run.clients.policy.reload_policy(reload).await.unwrap();
    run.asks(count()).await;
    std::fs::write(&file, before).unwrap();
    run.clients.policy.reload_policy(reload).await.unwrap();
    run.asks(count()).await;
    let ended = run.clients.events("", "consent_revoked").await;
    assert_eq!(record(&ended[0])["details"]["why"], "policy_changed");

    remembered(&mut run, calls::exec(&["wc", "-w", "data"]), Remember::Digest, &[]).await;
    run.stop().await;
    let list = v1::ListConsentsRequest::default();
    let ended = async {
        while !run
            .clients
            .approvals
            .list_consents(list.clone())
            .await
            .unwrap()
            .into_inner()
            .consents
            .is_empty()
        {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), ended).await.expect("it ends with its run");
}

#[tokio::test(flavor = "multi_thread")]
async fn always_ask_operations_are_never_remembered() {
    let daemon = Daemon::start_with(setup("{remember: [digest, prefix]}", "")).await;
    let workspace = daemon.repository("w", &[("a.txt", "one\n"), ("job.sh", "echo one\n")]);
    std::fs::write(workspace.join("a.txt"), "two\n").unwrap();
    let mut run = daemon.run("p", &workspace).await;
    let commit = v1::GitCommit { message: "m".to_owned() };
    for operation in [
        delete("a.txt"),
        calls::shell("wc a.txt"),
        calls::exec(&["sh", "-c", "wc a.txt"]),
        calls::exec(&["env", "wc", "a.txt"]),
        calls::exec(&["git", "status"]),
        calls::git_add(&["a.txt"]),
        calls::git(v1::git_request::Command::Commit(commit)),
    ] {
        let call = run.call(operation.clone()).await;
        let Ok(asked) = call else { continue };
        let refused = run
            .clients
            .approve_and_remember(&asked.approval_id, Remember::Digest, &[])
            .await
            .expect_err(&format!("{operation:?}"));
        assert_eq!(reason(&refused), "INVALID_ARGUMENT");
        assert_eq!(run.clients.approval(&asked.approval_id).await.state(), State::Pending);
    }
    // An interpreter's arguments are the program, and a prefix must be how the command begins.
    let asked = run.asks(calls::exec(&["python3", "job.py"])).await;
    let id = &asked.approval_id;
    for (form, prefix) in [(Remember::Prefix, &["python3"][..]), (Remember::Digest, &["python3"])] {
        let refused = run.clients.approve_and_remember(id, form, prefix).await.unwrap_err();
        assert_eq!(reason(&refused), "INVALID_ARGUMENT");
    }
    let asked = run.asks(calls::exec(&["wc", "a.txt"])).await;
    for prefix in [&[][..], &["cat"], &["w"], &["wc", "b.txt"], &["wc", "a.txt", "x"]] {
        let refused =
            run.clients.approve_and_remember(&asked.approval_id, Remember::Prefix, prefix).await.unwrap_err();
        assert_eq!(reason(&refused), "INVALID_ARGUMENT", "{prefix:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_is_of_no_use_to_another_call_or_another_run() {
    let daemon = Daemon::start_with(setup("{}", "")).await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let (mut run, mut other) = (daemon.run("p", &workspace).await, daemon.run("p", &workspace).await);
    let asked = run.asks(calls::write("b.txt", "x")).await;
    run.clients.approve(&asked.approval_id).await.unwrap();
    assert_eq!(run.outcome(&asked.call_id).await.status(), Status::Succeeded);
    // The same call again, and in another run: each asks for itself.
    let again = run.asks(calls::write("b.txt", "x")).await;
    let elsewhere = other.asks(calls::write("b.txt", "x")).await;
    assert!(again.approval_id != asked.approval_id && elsewhere.approval_id != asked.approval_id);
    assert_eq!(reason(&run.clients.approve(&asked.approval_id).await.unwrap_err()), "PRECONDITION_FAILED");
    let decided = run.clients.of_call(&asked.call_id).await;
    assert_eq!(decided.iter().filter(|event| event.kind == "call_receipt").count(), 1);
    assert_eq!(other.get(&elsewhere.call_id).await.status(), Status::PendingApproval);
}
