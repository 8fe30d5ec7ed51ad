//! Environment variables of a whole run: they reach everything that runs in it, and secret ones nothing else.

use std::collections::BTreeMap;

use harness::process::{command, script};
use harness::v1::{self, CreateRunRequest};
use harness::{Daemon, RunHandle, calls, reason, record, requests};

fn map(variables: &[(&str, &str)]) -> BTreeMap<String, String> {
    variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn with(env: &[(&str, &str)], secret_env: &[(&str, &str)]) -> CreateRunRequest {
    CreateRunRequest { env: map(env), secret_env: map(secret_env), ..requests::managed("harness") }
}

const SHOW: &str = r#"printf '%s\n' "$MODE" "$KEY" "$LANG""#;

#[tokio::test(flavor = "multi_thread")]
async fn variables_of_a_run_reach_all_that_runs_in_it_and_a_call_overrides_them() {
    let daemon = Daemon::start().await;
    let mut run =
        daemon.run_on(with(&[("MODE", "a b=c\nd"), ("LANG", "de")], &[("KEY", "open sesame")])).await;
    let whole = "a b=c\nd\nopen sesame\nde\n";
    // More than the commands that wait.
    for _ in 0..3 {
        assert_eq!(run.exec(&["sh", "-c", SHOW]).await.stdout, whole);
    }
    assert_eq!(run.ran(calls::shell(SHOW)).await.stdout, whole);
    for process in [command(&["sh", "-c", SHOW]), script(SHOW)] {
        let id = run.start(process).await.process_id;
        assert_eq!(run.all_of(&id).await.text(), whole);
    }
    let v1::operation::Kind::Exec(exec) = calls::exec(&["sh", "-c", SHOW]) else { unreachable!() };
    let own = v1::ExecRequest { env: map(&[("MODE", "mine"), ("KEY", "")]), ..exec };
    assert_eq!(run.ran(v1::operation::Kind::Exec(own)).await.stdout, "mine\n\nde\n");
    // A command that runs because it only reads sets nothing, and gets nothing.
    let v1::operation::Kind::Exec(cat) = calls::exec(&["cat", "nothing"]) else { unreachable!() };
    let only_reads = v1::ExecRequest { only_reads: true, ..cat };
    assert_eq!(run.ran(v1::operation::Kind::Exec(only_reads)).await.exit_code, Some(1));

    let shown = run.show().await;
    assert_eq!(shown.env, map(&[("MODE", "a b=c\nd"), ("LANG", "de")]));
    assert_eq!(shown.secret_env, ["KEY"]);
    let created = record(&run.clients.events(&shown.run_id, "run_created").await[0])["details"].clone();
    assert_eq!(created["variables"], serde_json::json!(["LANG", "MODE"]), "{created}");
    assert_eq!(created["sealed_variables"], serde_json::json!(["KEY"]));
    // Lists and streams have no values at all.
    let listed = run.clients.runs.list_runs(v1::ListRunsRequest::default()).await.unwrap().into_inner();
    assert_eq!((listed.runs[0].env.len(), &listed.runs[0].secret_env), (0, &shown.secret_env));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guest_after_a_lost_one_has_the_variables() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(with(&[("MODE", "kept")], &[("KEY", "too")])).await;
    let container = run.run.container_id.clone();
    let guest = harness::pid_of(&container, "/.cofferdam/guest serve").unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(guest).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
    let shown = loop {
        match run.call(calls::exec(&["sh", "-c", "echo $MODE $KEY"])).await {
            Ok(answer) => match answer.into_kind() {
                Some(v1::result::Kind::Exec(exec)) if exec.exit_code == Some(0) => break exec.stdout,
                _ => {}
            },
            Err(_) if tokio::time::Instant::now() < deadline => {}
            Err(status) => panic!("{status}"),
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    };
    assert_eq!(shown, "kept too\n");
}

async fn refused(daemon: &Daemon, request: CreateRunRequest) -> (String, String) {
    let status = daemon.run_with(request).await.map(|run: RunHandle| run.run.run_id).unwrap_err();
    (reason(&status), status.message().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn impossible_variables_and_unpermitted_ones_are_refused() {
    let daemon = Daemon::start().await;
    let long = "x".repeat(1 << 20);
    let many: Vec<(String, String)> = (0..10_000).map(|n| (format!("V{n}"), String::new())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let half: Vec<(&str, &str)> = many.iter().copied().take(200).collect();
    let other: Vec<(String, String)> = (0..200).map(|n| (format!("W{n}"), String::new())).collect();
    let other: Vec<(&str, &str)> =
        other.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    for (env, secret_env) in [
        (many.as_slice(), [].as_slice()),
        (&[], many.as_slice()),
        (&half, &other),
        (&[("A\0B", "x")], &[]),
        (&[("A=B", "x")], &[]),
        (&[("", "x")], &[]),
        (&[("1A", "x")], &[]),
        (&[], &[("A-B", "x")]),
        (&[("A", "x\0y")], &[]),
        (&[("A", long.as_str())], &[]),
        (&[], &[("A", long.as_str())]),
        (&[("A", "x")], &[("A", "y")]),
        // What looks like a secret would be shown.
        (&[("DB_PASSWORD", "hunter2hunter2")], &[]),
    ] {
        let (reason, message) = refused(&daemon, with(env, secret_env)).await;
        assert_eq!(reason, "INVALID_ARGUMENT", "{message}");
        assert!(message.contains("env") && !message.contains("hunter2"), "{message}");
    }
    let under = |profile: &str, name: &str| CreateRunRequest {
        env: map(&[(name, "/workspace/x")]),
        ..requests::managed(profile)
    };
    for (profile, name) in [
        ("strict", "CI"),
        ("review", "LD_PRELOAD"),
        ("build", "LD_PRELOAD"),
        ("build", "PATH"),
        ("build", "NO_SUCH_VARIABLE"),
    ] {
        let (reason, message) = refused(&daemon, under(profile, name)).await;
        assert_eq!(reason, "PERMISSION_DENIED", "{profile} {name}: {message}");
        assert!(message.contains(name), "{message}");
    }
    assert_eq!(daemon.leftovers(), Vec::<String>::new());
    let mut run = daemon.run_on(under("build", "PYTHONPATH")).await;
    assert_eq!(run.show().await.env, map(&[("PYTHONPATH", "/workspace/x")]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_request_must_have_the_same_secrets() {
    let daemon = Daemon::start().await;
    let asked = CreateRunRequest { request_id: "r".to_owned(), ..with(&[], &[("KEY", "one")]) };
    let run = daemon.run_on(asked.clone()).await;
    assert_eq!(daemon.run_on(asked.clone()).await.id(), run.id());
    let other = CreateRunRequest { secret_env: map(&[("KEY", "two")]), ..asked };
    assert_eq!(refused(&daemon, other).await.0, "ALREADY_EXISTS");
}
