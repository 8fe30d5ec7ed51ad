//! The profile `harness`: the container is the boundary, and the record says so.

use harness::{Daemon, Setup, calls, reason, record, requests, v1};
use v1::operation::Kind as Operation;

fn timed(argv: &[&str], timeout_ms: u64) -> Operation {
    let Operation::Exec(request) = calls::exec(argv) else { unreachable!() };
    Operation::Exec(v1::ExecRequest { timeout_ms: Some(timeout_ms), ..request })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_deny_list_is_off_in_gateway_and_guest_and_the_record_is_whole() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    run.ok(calls::write("a.txt", "a")).await;
    run.ok(calls::write("b.txt", "b")).await;
    run.ok(calls::write("c.txt", "c")).await;
    // By its name, and by a script of which only the guest learns what interprets it, and removes it.
    assert_eq!(run.exec(&["rm", "a.txt"]).await.exit_code, Some(0));
    run.ok(calls::write("harmless", "#!/bin/rm\n")).await;
    assert_eq!(run.exec(&["chmod", "755", "harmless"]).await.exit_code, Some(0));
    assert_eq!(run.exec(&["/workspace/harmless"]).await.exit_code, Some(0));
    run.ok(calls::shell("rm -f b.txt")).await;
    run.ok(calls::delete("c.txt")).await;
    assert_eq!(run.exec(&["ls"]).await.stdout, "");

    let id = run.id().to_owned();
    let created = record(&run.clients.events(&id, "run_created").await[0]);
    assert_eq!(
        (&created["details"]["profile"], &created["details"]["deny_list"]),
        (&"harness".into(), &"off".into())
    );
    let intents = run.clients.events(&id, "call_intent").await;
    let receipts = run.clients.events(&id, "call_receipt").await;
    assert_eq!((intents.len(), receipts.len()), (10, 10), "nothing goes without a record");

    // In every other profile the same script is refused by the guest, and the name by the gateway.
    let mut open = daemon.run_on(requests::managed("open")).await;
    assert_eq!(reason(&open.call(calls::exec(&["rm", "x"])).await.unwrap_err()), "COMMAND_NOT_ALLOWED");
    open.ok(calls::write("harmless", "#!/bin/rm\n")).await;
    assert_eq!(open.exec(&["chmod", "755", "harmless"]).await.exit_code, Some(0));
    assert_eq!(open.fails(calls::exec(&["/workspace/harmless"])).await.reason, "COMMAND_NOT_ALLOWED");
    let id = open.id().to_owned();
    let created = record(&open.clients.events(&id, "run_created").await[0]);
    assert!(created["details"].get("deny_list").is_none(), "{created}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_leaves_processes_gets_a_hint_if_the_profile_has_processes() {
    let stays = "profiles:\n  stays:\n    workspace: read-write\n    operations: { shell: allow, process: allow }\n    \
        exec: { default: allow }\n  none:\n    workspace: read-write\n    operations: { shell: allow }\n    \
        exec: { default: allow }\nroles: { director: { allow: \"*\" } }\n";
    let policy = vec![("stays.yaml", stays.to_owned())];
    let daemon = Daemon::start_with(Setup { policy, ..Default::default() }).await;
    for (profile, has_processes) in [("stays", true), ("none", false)] {
        let mut run = daemon.run_on(requests::managed(profile)).await;
        let left = run.ran(calls::shell("sleep 1000 & echo up")).await;
        assert_eq!((left.stdout.as_str(), left.exit_code), ("up\n", Some(0)), "{left:?}");
        assert_eq!(left.kill.map(|kill| (kill.ended, kill.left)), Some((1, 0)), "{profile}");
        assert_eq!(
            left.hint.contains("with the operation `process`"),
            has_processes,
            "{profile}: {}",
            left.hint
        );
        let none = run.ran(calls::shell("sleep 0.1 & wait")).await;
        assert!(!none.hint.contains("`process`"), "{profile}: {}", none.hint);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_has_hours_where_the_profile_says_so() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    run.ok(timed(&["true"], 14_400_000)).await;
    assert_eq!(reason(&run.call(timed(&["true"], 14_400_001)).await.unwrap_err()), "INVALID_ARGUMENT");
    // None is the longest.
    let done = run.call(calls::exec(&["true"])).await.unwrap();
    let intent = record(&run.clients.of_call(&done.call_id).await[0]);
    assert_eq!(intent["input"]["timeoutMs"], "14400000");

    let mut open = daemon.run_on(requests::managed("open")).await;
    let status = open.call(timed(&["true"], 120_001)).await.unwrap_err();
    assert!(status.message().contains("must be from 1 to 120000"), "{}", status.message());
}

/// Twenty-five minutes with `COFFERDAM_LONG`, as the suites of large projects take.
#[tokio::test(flavor = "multi_thread")]
async fn a_suite_of_many_minutes_ends_with_its_result() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    let seconds = effort::cases(4, 1_500);
    let suite = format!("echo started; sleep {seconds}; echo 1 failed; exit 3");
    let began = std::time::Instant::now();
    let result = run.ran(calls::shell(&suite)).await;
    assert!(began.elapsed().as_secs() >= u64::from(seconds), "{:?}", began.elapsed());
    assert_eq!((result.stdout.as_str(), result.exit_code), ("started\n1 failed\n", Some(3)));
    assert_eq!(result.kill.unwrap().left, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn binding_an_operator_directory_needs_configuration() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "a")]);
    let refused = daemon.run_with(requests::bind("harness", &workspace)).await.map(|_| ()).unwrap_err();
    assert_eq!(reason(&refused), "PERMISSION_DENIED");
    assert!(refused.message().contains("harness_on_bind"), "{}", refused.message());
    assert_eq!(daemon.leftovers(), Vec::<String>::new());
    let mut overlay = daemon.run_on(requests::overlay("harness", &workspace)).await;
    assert_eq!(overlay.exec(&["rm", "a.txt"]).await.exit_code, Some(0));
    assert!(workspace.join("a.txt").exists(), "the overlay's change is not accepted yet");

    let config = "harness_on_bind: allow\n".to_owned();
    let daemon = Daemon::start_with(Setup { config, ..Default::default() }).await;
    let workspace = daemon.workspace("w", &[("a.txt", "a")]);
    let mut run = daemon.run("harness", &workspace).await;
    assert_eq!(run.exec(&["rm", "a.txt"]).await.exit_code, Some(0));
    assert!(!workspace.join("a.txt").exists());
}

/// A run keeps its workspace, and its profile may change under it.
#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_turns_the_list_off_later_does_not_reach_a_bind_workspace() {
    let profile = "profiles: {p: {workspace: read-write, unattended: true, operations: {exec: allow}, exec: {default: allow}}}\n\
                   roles: {director: {allow: \"*\"}}\n";
    let policy = vec![("p.yaml", profile.to_owned())];
    let daemon = Daemon::start_with(Setup { policy, ..Default::default() }).await;
    let mut run = daemon.run("p", &daemon.workspace("w", &[])).await;
    run.ok(calls::exec(&["true"])).await;
    let off = profile.replace("exec: {default", "exec: {deny_list: off, default");
    std::fs::write(daemon.policy_dir().join("p.yaml"), off).unwrap();
    let reloaded = run.clients.policy.reload_policy(v1::ReloadPolicyRequest {}).await.unwrap().into_inner();
    assert!(reloaded.changed);
    assert_eq!(reason(&run.call(calls::exec(&["true"])).await.unwrap_err()), "PERMISSION_DENIED");
}
