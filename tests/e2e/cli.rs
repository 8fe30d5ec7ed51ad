//! `coffer` against the real daemon: data on standard output, talk on standard error, and how it ends.

use std::process::Output;

use harness::v1::{self, ProcessRequest};
use harness::{Daemon, RunHandle, Setup, binary, git};
use serde_json::Value;

pub(crate) struct End {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

async fn at(endpoint: &str, line: &[&str]) -> End {
    let mut command = tokio::process::Command::new(binary("coffer"));
    for variable in ["COFFERDAM_RUN", "DOCKER_HOST", "NO_COLOR"] {
        command.env_remove(variable);
    }
    command
        .env("COFFERDAM_ENDPOINT", endpoint)
        .args(line)
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true);
    let output = tokio::time::timeout(std::time::Duration::from_secs(60), command.output());
    let Output { status, stdout, stderr } = output.await.expect("coffer does not end").unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    End { code: status.code().unwrap(), out: text(stdout), err: text(stderr) }
}

pub(crate) async fn coffer(daemon: &Daemon, line: &[&str]) -> End {
    at(&format!("unix:{}", daemon.socket().display()), line).await
}

/// Must succeed; its standard output.
pub(crate) async fn out(daemon: &Daemon, line: &[&str]) -> String {
    let End { code, out, err } = coffer(daemon, line).await;
    assert_eq!(code, 0, "{line:?}: {out}{err}");
    out
}

pub(crate) async fn json(daemon: &Daemon, line: &[&str]) -> Value {
    let line: Vec<_> = ["--output", "json"].iter().chain(line).copied().collect();
    serde_json::from_str(&out(daemon, &line).await).unwrap()
}

/// A run on a clone of a repository, made by the command line; its id.
async fn run(daemon: &Daemon) -> String {
    let files = [("README.md", "# A pump\n\nIt keeps the dam dry.\n"), ("src/main.rs", "fn main() {}\n")];
    let source = daemon.repository("source", &files).display().to_string();
    let line = [
        "run",
        "create",
        "--profile",
        "review",
        "--role",
        "director",
        "--agent",
        "alice",
        "--clone",
        &source,
    ];
    let End { code, out, err } = coffer(daemon, &line).await;
    assert_eq!(code, 0, "{err}");
    assert!(err.starts_with("ready: cold start, "), "{err}");
    let id = out.trim_end().to_owned();
    assert_eq!((out.lines().count(), id.len()), (1, 36), "the id alone: {out}");
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn the_habits_of_people_work() {
    let daemon = Daemon::start().await;
    let source = daemon.repository("source", &[("README.md", "# A pump\n")]);
    let bare = |directory: &std::path::Path| {
        let mut command = tokio::process::Command::new(binary("coffer"));
        command.env_remove("COFFERDAM_RUN").env_remove("COFFERDAM_TOKEN");
        command.env("COFFERDAM_ENDPOINT", format!("unix:{}", daemon.socket().display()));
        command.args(["run", "create"]).current_dir(directory).stdin(std::process::Stdio::null());
        command
    };
    let made = bare(&source).output().await.unwrap();
    let said = String::from_utf8(made.stderr).unwrap();
    assert!(made.status.success() && said.contains("profile review, clone of "), "{said}");
    let id = String::from_utf8(made.stdout).unwrap().trim_end().to_owned();
    let run = id.as_str();

    let outside = bare(std::path::Path::new("/")).output().await.unwrap();
    let said = String::from_utf8(outside.stderr).unwrap();
    assert!(outside.status.code() == Some(2) && said.contains("no git repository"), "{said}");

    assert_eq!(out(&daemon, &["run", "ls", "-o", "name"]).await, format!("{run}\n"));
    let shown = out(&daemon, &["run", "inspect", &run[28..], "-o", "yaml"]).await;
    assert!(shown.contains(&format!("runId: {run}\n")) && shown.contains("state: READY\n"), "{shown}");
    assert!(out(&daemon, &["exec", run, "--", "wc", "-l", "README.md"]).await.contains('1'));
    let logs = out(&daemon, &["run", "logs", run]).await;
    assert!(logs.contains("run_created") && logs.contains("call_receipt"), "{logs}");
    assert_eq!(out(&daemon, &["run", "stop", run, "-o", "name"]).await, format!("{run}\n"));
    out(&daemon, &["run", "rm", run]).await;
    let wrong = coffer(&daemon, &["run", "lst"]).await;
    assert!(wrong.code == 2 && wrong.err.contains("'list'"), "{}", wrong.err);
}

/// Waits for the outcome of a call, which is there a little after its receipt.
async fn is_over(daemon: &Daemon, call: &str) {
    let mut run = RunHandle { run: Box::new(v1::Run::default()), clients: daemon.connect().await };
    run.outcome(call).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_main_job_by_hand() {
    let daemon = Daemon::start().await;
    let id = run(&daemon).await;
    let run = id.as_str();

    assert_eq!(out(&daemon, &["call", "read", run, "README.md", "--lines", "1-1"]).await, "# A pump\n");
    assert!(out(&daemon, &["call", "list", run]).await.contains("src"));
    let found = out(&daemon, &["call", "grep", run, "fn main", "--glob", "*.rs"]).await;
    assert!(found.contains("src/main.rs:1:fn main() {}"), "{found}");
    assert_eq!(out(&daemon, &["call", "glob", run, "**/*.rs"]).await, "@project/src/main.rs\n");
    assert!(out(&daemon, &["call", "exec", run, "--", "wc", "-l", "README.md"]).await.contains('3'));

    let denied = coffer(&daemon, &["call", "exec", run, "--", "rm", "-rf", "."]).await;
    assert_eq!(denied.code, 126);
    assert!(
        denied.err.contains("Command not allowed: rm") && denied.err.contains("COMMAND_NOT_ALLOWED"),
        "{}",
        denied.err
    );
    let failed = coffer(&daemon, &["call", "read", run, "none.txt"]).await;
    assert_eq!((failed.code, failed.out.as_str()), (1, ""));
    assert!(failed.err.contains("NOT_FOUND"), "{}", failed.err);
    let failed = coffer(&daemon, &["call", "exec", run, "--", "wc", "none.txt"]).await;
    assert_eq!(failed.code, 1, "the command failed: {}", failed.err);
    assert_eq!(coffer(&daemon, &["call", "read", run, "a.txt", "--lines", "nonsense"]).await.code, 2);
    assert_eq!(coffer(&daemon, &["call", "git", run, "commit", "-m", " "]).await.code, 2);

    let edit = ["call", "edit", run, "README.md", "--old", "dam dry", "--new", "dam very dry"];
    let awaiting = coffer(&daemon, &edit).await;
    assert_eq!((awaiting.code, awaiting.out.as_str()), (4, ""));
    let pending = json(&daemon, &["approval", "list", "--run", run]).await;
    let approval = pending["approvals"][0]["approvalId"].as_str().unwrap();
    assert!(awaiting.err.contains(&format!("coffer approval approve {approval}")), "{}", awaiting.err);
    let call = pending["approvals"][0]["callId"].as_str().unwrap();
    assert_eq!(coffer(&daemon, &["call", "show", call]).await.code, 4);
    let shown = out(&daemon, &["approval", "show", approval]).await;
    assert!(shown.contains("+It keeps the dam very dry."), "{shown}");
    let decided = out(&daemon, &["approval", "approve", approval, "--comment", "fine"]).await;
    assert_eq!(decided, format!("{approval} APPROVED\n"));
    let again = coffer(&daemon, &["approval", "deny", approval]).await;
    assert_eq!(again.code, 1, "{}", again.err);

    is_over(&daemon, call).await;
    let end = &call[call.len() - 8..];
    assert_eq!(json(&daemon, &["call", "show", end]).await, json(&daemon, &["call", "show", call]).await);
    assert_eq!(coffer(&daemon, &["call", "show", "00000000"]).await.code, 1, "no call ends so");
    let diff = out(&daemon, &["call", "git", run, "diff", "--stat"]).await;
    assert!(diff.contains("README.md") && diff.contains("1 file changed"), "{diff}");

    let show = json(&daemon, &["run", "show", run]).await;
    let workspace = std::path::PathBuf::from(show["run"]["workspacePath"].as_str().unwrap());
    assert_eq!(show["run"]["state"], "READY");
    assert!(git(&workspace, &["diff"]).contains("very dry"));
    let short = &run[run.len() - 8..];
    let listed = out(&daemon, &["run", "list"]).await;
    assert!(listed.contains(short) && listed.contains("READY"), "{listed}");
    assert_eq!(out(&daemon, &["run", "stop", short]).await, format!("stopped {run}\n"));
    assert_eq!(coffer(&daemon, &["call", "list", run]).await.code, 1);
    assert_eq!(out(&daemon, &["run", "delete", run, "--workspace"]).await, format!("deleted {run}\n"));
    assert_eq!(daemon.leftovers(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_record_is_read_and_verified_with_the_daemon_and_without() {
    let mut daemon = Daemon::start().await;
    let id = run(&daemon).await;
    out(&daemon, &["call", "read", &id, "README.md"]).await;

    let tail = out(&daemon, &["audit", "tail", "--run", &id]).await;
    for word in ["run_created", "call_intent", "call_receipt"] {
        assert!(tail.contains(word), "{tail}");
    }
    let lines =
        out(&daemon, &["--output", "json", "audit", "tail", "--run", &id, "--kind", "call_intent"]).await;
    let records: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records.len(), 1);
    assert_eq!(
        (records[0]["operation"].as_str(), records[0]["agent_id"].as_str()),
        (Some("read"), Some("alice"))
    );

    assert!(out(&daemon, &["audit", "verify"]).await.starts_with("intact: "));
    let log = daemon.state_dir().join("audit");
    let directory = log.display().to_string();
    daemon.stop().await;
    let intact = out(&daemon, &["audit", "verify", &directory]).await;
    assert!(intact.starts_with("intact: "), "no daemon is needed: {intact}");

    // One changed byte of one record is found and named.
    let segment = std::fs::read_dir(&log)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
        .find(|path| std::fs::read(path).is_ok_and(|bytes| bytes.windows(5).any(|word| word == b"alice")));
    let segment = segment.unwrap();
    let text = std::fs::read_to_string(&segment).unwrap();
    std::fs::write(&segment, text.replacen("alice", "malice", 1)).unwrap();
    let broken = coffer(&daemon, &["audit", "verify", &directory]).await;
    assert_eq!(broken.code, 1);
    assert!(broken.out.starts_with("BROKEN: "), "{}", broken.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn output_for_programs_is_json() {
    let daemon = Daemon::start().await;
    let created = json(&daemon, &["run", "create", "--profile", "open", "--managed"]).await;
    assert_eq!((&created["run"]["state"], &created["run"]["startKind"]), (&"READY".into(), &"COLD".into()));
    let run = created["run"]["runId"].as_str().unwrap();

    let written = json(&daemon, &["call", "edit", run, "a.txt", "--create", "one\n"]).await;
    assert_eq!(written["status"], "SUCCEEDED");
    let read = json(&daemon, &["call", "read", run, "a.txt"]).await;
    assert_eq!(
        (&read["result"]["read"]["content"], &read["result"]["read"]["sizeBytes"]),
        (&"one\n".into(), &"4".into())
    );
    let exec = json(&daemon, &["call", "exec", run, "--", "id", "-u"]).await;
    assert_eq!(
        (&exec["result"]["exec"]["stdout"], &exec["result"]["exec"]["exitCode"]),
        (&"1001\n".into(), &0.into())
    );
    assert_eq!(json(&daemon, &["run", "list"]).await["runs"].as_array().unwrap().len(), 1);
    assert_eq!(json(&daemon, &["audit", "verify"]).await["intact"], true);
    let tools = json(&daemon, &["call", "tools", run]).await;
    assert!(tools.is_array() || tools["tools"].is_array() || tools["toolsJson"].is_string(), "{tools}");
    let refused = coffer(&daemon, &["--output", "json", "call", "exec", run, "--", "sudo", "id"]).await;
    assert_eq!(refused.code, 126);
    let said: Value =
        serde_json::from_str(if refused.out.is_empty() { &refused.err } else { &refused.out }).unwrap();
    assert!(said.to_string().contains("COMMAND_NOT_ALLOWED"), "{said}");
}

/// So that whatever uses `docker exec` can use it; what coffer itself has to say has codes of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_s_exit_code_is_passed_through() {
    let daemon = Daemon::start().await;
    let open = out(&daemon, &["run", "create", "--profile", "open", "--managed"]).await;
    let review = out(&daemon, &["run", "create", "--profile", "review", "--managed"]).await;
    let (open, review) = (open.trim(), review.trim());
    let ends: [(&str, &[&str], i32); 8] = [
        (open, &["--", "true"], 0),
        (open, &["--", "sh", "-c", "exit 5"], 5),
        (open, &["--", "sh", "-c", "exit 255"], 255),
        (open, &["--", "sh", "-c", "kill -9 $$"], 137),
        (open, &["--timeout", "5s", "--", "sleep", "60"], 124),
        (open, &["--", "no-such-program"], 127),
        (review, &["--", "rm", "x"], 126),
        (review, &["--", "sh", "-c", "true"], 123),
    ];
    for (run, command, code) in ends {
        for shown in [&[][..], &["--no-stream"]] {
            let arguments = [&["call", "exec", run], shown, command].concat();
            let ended = coffer(&daemon, &arguments).await;
            assert_eq!(ended.code, code, "{arguments:?}: {}", ended.err);
        }
    }
    assert_eq!(coffer(&daemon, &["call", "shell", open, "exit 7"]).await.code, 7);
    let nobody = ["call", "exec", open, "--", "true"];
    assert_eq!(at("unix:/var/tmp/cofferdam-no-such.sock", &nobody).await.code, 125);
}

#[tokio::test(flavor = "multi_thread")]
async fn binary_file_is_not_shown_as_empty() {
    let daemon = Daemon::start().await;
    let run = out(&daemon, &["run", "create", "--profile", "open", "--managed"]).await;
    out(&daemon, &["call", "shell", run.trim(), "printf '\\000\\377' > b.bin; : > empty"]).await;
    let read = coffer(&daemon, &["call", "read", run.trim(), "b.bin"]).await;
    assert_eq!((read.code, read.out.as_str()), (1, ""));
    assert!(read.err.contains("not text"), "{}", read.err);
    assert_eq!(coffer(&daemon, &["--output", "json", "call", "read", run.trim(), "b.bin"]).await.code, 1);
    assert_eq!(out(&daemon, &["call", "read", run.trim(), "b.bin", "--base64"]).await, "AP8=\n");
    assert_eq!(out(&daemon, &["call", "read", run.trim(), "empty"]).await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_that_takes_an_id_takes_the_end_of_one() {
    let daemon = Daemon::start().await;
    let end = |id: &str| id.trim()[id.trim().len() - 8..].to_owned();

    let granted = ["permission", "grant", "--agent", "alice", "--operation", "read", "--reason", "a try"];
    let permission = out(&daemon, &granted).await;
    let listed = out(&daemon, &["permission", "list"]).await;
    assert!(listed.contains(&end(&permission)) && !listed.contains(permission.trim()), "{listed}");
    let revoked = out(&daemon, &["permission", "revoke", &end(&permission), "--reason", "over"]).await;
    assert_eq!(revoked, permission);
    let revocation = ["permission", "revoke", "--agent", "alice", "--operation", "read", "--reason", "a try"];
    let revocation = out(&daemon, &revocation).await;
    let granted_again =
        out(&daemon, &["permission", "grant", "--lift", &end(&revocation), "--reason", "over"]).await;
    assert_eq!(granted_again, revocation);

    let run = run(&daemon).await;
    let awaiting = coffer(&daemon, &["call", "write", &end(&run), "a.txt", "--content", "x"]).await;
    assert_eq!(awaiting.code, 4, "{}", awaiting.err);
    let pending = json(&daemon, &["approval", "list", "--run", &end(&run)]).await;
    let pending = &pending["approvals"][0];
    let (approval, call) = (pending["approvalId"].as_str().unwrap(), pending["callId"].as_str().unwrap());
    out(&daemon, &["approval", "show", &end(approval)]).await;
    let asked = out(&daemon, &["audit", "tail", "--approval", &end(approval)]).await;
    assert!(asked.contains("approval_requested"), "{asked}");
    out(&daemon, &["approval", "deny", &end(approval)]).await;
    let of_call = out(&daemon, &["audit", "query", "--call", &end(call), "--kind", "call_intent"]).await;
    assert_eq!(of_call.lines().count(), 1, "{of_call}");
    is_over(&daemon, call).await;
    assert_eq!(coffer(&daemon, &["call", "show", &end(call)]).await.code, 3);

    let first = out(&daemon, &["run", "create", "--profile", "open", "--managed"]).await;
    out(&daemon, &["run", "stop", &end(&first)]).await;
    let next = out(&daemon, &["run", "create", "--profile", "open", "--workspace", &end(&first)]).await;
    assert!(out(&daemon, &["run", "show", &end(&next)]).await.contains(first.trim()));
    out(&daemon, &["run", "stop", &end(&next)]).await;
    let deleted = out(&daemon, &["workspace", "delete", &end(&first)]).await;
    assert_eq!(deleted, format!("deleted {first}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_and_denied_have_their_own_exit_codes() {
    let daemon = Daemon::start_with(Setup { forbid_self_approval: true, ..Default::default() }).await;
    let nobody = at("unix:/var/tmp/cofferdam-no-such.sock", &["run", "list"]).await;
    assert_eq!((nobody.code, nobody.out.as_str()), (5, ""));
    assert_eq!(coffer(&daemon, &["run", "create", "--profile", "review"]).await.code, 2);
    assert_eq!(coffer(&daemon, &["no-such-command"]).await.code, 2);
    let unknown = coffer(&daemon, &["run", "create", "--profile", "nope", "--managed"]).await;
    assert_eq!(unknown.code, 1);
    assert!(unknown.err.contains("review"), "it says what there is: {}", unknown.err);

    let id = out(&daemon, &["run", "create", "--profile", "review", "--role", "director", "--managed"]).await;
    let awaiting = coffer(&daemon, &["call", "write", id.trim(), "a.txt", "--content", "x"]).await;
    assert_eq!(awaiting.code, 4, "{}", awaiting.err);
    let pending = json(&daemon, &["approval", "list"]).await;
    let approval = pending["approvals"][0]["approvalId"].as_str().unwrap();
    let own = coffer(&daemon, &["approval", "approve", approval]).await;
    assert_eq!(own.code, 3, "{}", own.err);
    assert_eq!(
        out(&daemon, &["call", "cancel", pending["approvals"][0]["callId"].as_str().unwrap()])
            .await
            .lines()
            .count(),
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_says_what_this_host_can_do() {
    let daemon = Daemon::start().await;
    let End { out, err, .. } = coffer(&daemon, &["doctor"]).await;
    for word in
        ["engine", "cgroup", "seccomp", "alerts", "known escapes", "the daemon's, as the daemon reports it"]
    {
        assert!(out.to_lowercase().contains(word), "{word}: {out}{err}");
    }
    let End { out, .. } = coffer(&daemon, &["--output", "json", "doctor"]).await;
    serde_json::from_str::<Value>(&out).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_record_is_shown_with_times_and_without_missing_values() {
    let daemon = Daemon::start().await;
    let id = run(&daemon).await;
    out(&daemon, &["permission", "grant", "--agent", "alice", "--operation", "read", "--reason", "a try"])
        .await;
    out(&daemon, &["throttle", "alice", "--per-minute", "50", "--for", "1h"]).await;
    let awaiting = coffer(&daemon, &["call", "write", id.trim(), "a.txt", "--content", "x"]).await;
    assert_eq!(awaiting.code, 4, "{}", awaiting.err);
    let pending = json(&daemon, &["approval", "list"]).await;
    out(&daemon, &["approval", "deny", pending["approvals"][0]["approvalId"].as_str().unwrap()]).await;

    // As they are kept.
    let raw = out(&daemon, &["--output", "json", "audit", "tail"]).await;
    for kept in ["\"until_ms\":1", "\"timeout_ms\":", "null"] {
        assert!(raw.contains(kept), "{kept}: {raw}");
    }
    let shown = out(&daemon, &["audit", "tail"]).await;
    for unreadable in ["null", "_ms=", "_us=", "_ms\"", "_us\""] {
        assert!(!shown.contains(unreadable), "{unreadable}: {shown}");
    }
    for told in ["decided_at=20", "until=20"] {
        assert!(shown.contains(told), "{told}: {shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_used_from_the_command_line() {
    let daemon = Daemon::start().await;
    let run = daemon.run_on(harness::requests::managed("harness")).await;
    let run = run.id();
    let id = out(&daemon, &["session", "open", run, "--tag", "build"]).await.trim_end().to_owned();
    assert_eq!(id.len(), 36, "the id alone: {id}");
    assert_eq!(out(&daemon, &["session", "run", run, "build", "--", "cd", "/tmp"]).await, "");
    let End { code, out: said, .. } =
        coffer(&daemon, &["session", "run", run, &id[28..], "--", "pwd; (exit 17)"]).await;
    assert_eq!((code, said.as_str()), (17, "/tmp\n"));
    let line = ["session", "run", run, "build", "--timeout", "300ms", "--", "read line; echo got $line"];
    let late = coffer(&daemon, &line).await;
    assert_eq!(late.code, 124, "{}", late.err);
    assert!(late.err.contains("still runs"), "{}", late.err);
    let listed = out(&daemon, &["session", "list", run]).await;
    assert!(listed.contains("BUSY") && listed.contains("build"), "{listed}");
    let line = ["session", "run", run, "build", "--input", "it", "--expect", "got (..)"];
    assert_eq!(out(&daemon, &line).await, "got it");
    assert_eq!(out(&daemon, &["session", "run", run, "build"]).await, "\n", "the rest");
    let line = ["session", "run", run, "build", "--timeout", "300ms", "--", "sleep 1000"];
    assert_eq!(coffer(&daemon, &line).await.code, 124);
    let interrupted = coffer(&daemon, &["session", "interrupt", run, "build"]).await;
    assert_eq!(interrupted.code, 130, "{}", interrupted.err);
    out(&daemon, &["session", "close", run, "build"]).await;
    assert!(out(&daemon, &["session", "list", run]).await.contains("CLOSED"));
    assert_eq!(coffer(&daemon, &["session", "run", run, "build", "--", "ls"]).await.code, 125);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_is_used_from_the_command_line() {
    let daemon = Daemon::start().await;
    let run = daemon.run_on(harness::requests::managed("harness")).await;
    let run = run.id();
    let program = "echo up; echo warn >&2; while read line; do echo got $line; done; exit 7";
    let start = ["process", "start", run, "--stdin", "--tag", "echo", "--script", "--", program];
    let id = out(&daemon, &start).await.trim_end().to_owned();
    assert_eq!(id.len(), 36, "the id alone: {id}");
    let listed = out(&daemon, &["process", "list", run]).await;
    assert!(listed.contains("RUNNING") && listed.contains("echo") && listed.contains(&id[28..]), "{listed}");
    assert_eq!(out(&daemon, &["process", "send", run, "echo", "one"]).await, "");
    let late = coffer(&daemon, &["process", "wait", run, "echo", "--timeout", "300ms"]).await;
    assert_eq!((late.code, late.out), (124, format!("RUNNING {id}\n")));
    let line = ["process", "logs", run, &id[28..], "--follow"];
    let follow = async { coffer(&daemon, &line).await };
    let send = async {
        out(&daemon, &["process", "send", run, "echo", "two"]).await;
        out(&daemon, &["process", "send", run, "echo", "-n", "", "--close"]).await;
    };
    let (followed, ()) = tokio::join!(follow, send);
    let told = (followed.code, followed.out.as_str(), followed.err.as_str());
    assert_eq!(told, (0, "up\ngot one\ngot two\n", "warn\n"));
    let ended = coffer(&daemon, &["process", "wait", run, "echo"]).await;
    assert_eq!((ended.code, ended.out), (7, format!("ENDED {id}\n")));
    let closed = coffer(&daemon, &["process", "send", run, "echo", "three"]).await;
    assert!(closed.code == 1 && closed.err.contains("PRECONDITION_FAILED"), "{}", closed.err);

    let waits = "until [ \"$(stty size)\" = '40 120' ]; do sleep 0.1; done; echo resized; sleep 1000";
    out(&daemon, &["process", "start", run, "--tty", "--tag", "tty", "--", "sh", "-c", waits]).await;
    out(&daemon, &["process", "resize", run, "tty", "40", "120"]).await;
    while !out(&daemon, &["process", "logs", run, "tty"]).await.contains("resized") {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    out(&daemon, &["process", "signal", run, "tty", "hup"]).await;
    assert_eq!(coffer(&daemon, &["process", "wait", run, "tty"]).await.code, 129);
    let listed = json(&daemon, &["process", "list", run, "--tag", "tty"]).await;
    assert_eq!((&listed["processes"][0]["signal"], &listed["processes"][1]), (&1.into(), &Value::Null));
    assert_eq!(coffer(&daemon, &["process", "logs", run, "none"]).await.code, 2);
}

/// Together their arguments are more than one answer of the daemon may have.
#[tokio::test(flavor = "multi_thread")]
async fn processes_with_the_longest_arguments_are_found_by_their_tags() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(harness::requests::managed("harness")).await;
    let program = "echo up; read line; echo got $line; exit 7";
    for tag in ["one", "two", "three"] {
        let request = harness::process::long(program);
        run.start(ProcessRequest { stdin: true, tag: tag.to_owned(), ..request }).await;
    }
    let run = run.id();
    out(&daemon, &["process", "send", run, "two", "it"]).await;
    assert_eq!(coffer(&daemon, &["process", "wait", run, "two"]).await.code, 7);
    assert_eq!(out(&daemon, &["process", "logs", run, "two"]).await, "up\ngot it\n");
    out(&daemon, &["process", "signal", run, "three"]).await;
    assert_eq!(coffer(&daemon, &["process", "wait", run, "three"]).await.code, 143);
    let listed = out(&daemon, &["process", "list", run]).await;
    assert!(listed.contains("exit 143") && listed.matches("x…").count() == 3, "{listed}");
    assert!(listed.len() < 20_000, "{}", listed.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_uses_the_limits_of_the_daemons_profile_and_the_costs_of_a_file() {
    let profile = "profiles: {tiny: {operations: {read: allow}, limits: {memory_mib: 64, cpu_millis: 250, pids: 16, disk_mib: 8}}}\n";
    let roles = include_str!("../../crates/policy/policies/roles.yaml").to_owned();
    let policy = vec![("tiny.yaml", profile.to_owned()), ("roles.yaml", roles)];
    let daemon = Daemon::start_with(Setup { policy, ..Default::default() }).await;
    let host = ["--cores", "8", "--memory", "64G", "--pids", "100000", "--disk", "1T"];
    let plan = ["plan", "--runs", "1000", "--profile", "tiny"];
    let line: Vec<_> = plan.iter().chain(&host).copied().collect();

    let planned = json(&daemon, &line).await;
    // Two runs at their limits fit on each half of a core, less what the daemon itself takes.
    let busy = &planned["busy"];
    assert_eq!(
        (busy["binds"].as_str(), busy["run"]["memory_bytes"].as_u64() > Some(64 << 20)),
        (Some("cpu"), true)
    );
    let (runs, hosts) = (busy["runs"].as_u64().unwrap(), busy["hosts"].as_u64().unwrap());
    assert!((28..=32).contains(&runs) && hosts == 1000_u64.div_ceil(runs), "{planned}");
    assert!(planned["idle"]["runs"].as_u64().unwrap() > 10 * runs, "{planned}");
    let shown = out(&daemon, &line).await;
    assert!(
        shown.contains(&format!(
            "busy   {runs} runs on a host, limited by its cpu; 1000 runs need {hosts} hosts"
        )),
        "{shown}"
    );

    // A measurement that makes memory the scarcest.
    let mut costs = planned["costs"].clone();
    costs["run"]["shim"]["memory_bytes"] = Value::from(16_u64 << 30);
    let file = daemon.outside().join("costs.json");
    std::fs::write(&file, costs.to_string()).unwrap();
    let file = file.display().to_string();
    let line: Vec<_> = line.into_iter().chain(["--costs", &file]).collect();
    let planned = json(&daemon, &line).await;
    assert_eq!(
        (planned["busy"]["binds"].as_str(), planned["busy"]["runs"].as_u64()),
        (Some("memory"), Some(3)),
        "{planned}"
    );

    let End { code, err, .. } = coffer(&daemon, &["plan", "--runs", "1", "--profile", "build"]).await;
    assert_eq!(code, 2);
    assert!(err.contains("no profile `build`; there are: tiny"), "{err}");
}
