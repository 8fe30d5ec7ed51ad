//! Tests the real `coffer` against a daemon with canned answers: the stream of each output, and the exit codes.
// A test program: a panic is its way to fail, and the services' messages are many.
#![allow(missing_docs, clippy::unwrap_used, clippy::wildcard_imports)]

mod daemon;

use std::io::{Seek as _, Write as _};
use std::process::{Command, Output};

use wire::v1::operation::Kind as Operation;

use daemon::{APPROVAL, CALL, Daemon, OUTPUT, RUN_A, RUN_B};

/// Exit code, standard output, standard error.
type End = (i32, String, String);

fn bare() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_coffer"));
    for variable in ["COFFERDAM_ENDPOINT", "COFFERDAM_TOKEN", "COFFERDAM_RUN", "DOCKER_HOST"] {
        command.env_remove(variable);
    }
    command
}

fn coffer(daemon: &Daemon, line: &[&str]) -> End {
    end(&prepared(daemon, line).output().unwrap())
}

/// The end of a command that has this text as its standard input.
fn fed(mut command: Command, text: &str) -> End {
    let mut input = tempfile::tempfile().unwrap();
    input.write_all(text.as_bytes()).unwrap();
    input.rewind().unwrap();
    end(&command.stdin(input).output().unwrap())
}

fn prepared(daemon: &Daemon, line: &[&str]) -> Command {
    let mut command = bare();
    command.env("COFFERDAM_ENDPOINT", format!("unix:{}", daemon.socket().display())).args(line);
    command
}

fn end(output: &Output) -> End {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn create_prints_the_id_alone() {
    let daemon = Daemon::start();
    let (code, out, err) = coffer(&daemon, &["run", "create", "--profile", "review", "--managed"]);
    assert_eq!((code, out), (0, format!("{RUN_A}\n")));
    assert!(err.starts_with("ready: cold start, "), "{err}");

    let (code, out, err) = coffer(&daemon, &["run", "create", "--profile", "other", "--managed"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert_eq!(err, "error: no profile of that name; there are: review (NOT_FOUND)\n");
}

#[test]
fn runs_are_found_by_either_end_on_any_page() {
    let daemon = Daemon::start();
    let (code, out, _) = coffer(&daemon, &["run", "list"]);
    assert_eq!(code, 0);
    let ends = [RUN_A, RUN_B].map(|id| &id[id.len() - 8..]);
    assert!(ends.iter().all(|end| out.contains(&format!("{end}  "))), "{out}");

    let (code, out, _) = coffer(&daemon, &["run", "show", "bbbb"]);
    assert_eq!(code, 0);
    assert!(out.contains(RUN_B), "{out}");

    let (code, out, err) = coffer(&daemon, &["run", "show", "0198"]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("matches 2 run ids"), "{err}");

    let (code, _, err) = coffer(&daemon, &["run", "show"]);
    assert_eq!(code, 2);
    assert!(err.contains("COFFERDAM_RUN is not set"), "{err}");
    let output = prepared(&daemon, &["run", "show"]).env("COFFERDAM_RUN", RUN_A).output().unwrap();
    assert!(end(&output).1.contains(RUN_A));
}

#[test]
fn one_run_that_cannot_be_stopped_does_not_spare_the_others() {
    let daemon = Daemon::start();
    let (code, out, err) = coffer(&daemon, &["run", "stop", RUN_B, RUN_A]);
    assert_eq!(
        (code, out, err),
        (1, format!("stopped {RUN_A}\n"), "error: no such run (NOT_FOUND)\n".into())
    );
}

#[test]
fn watching_one_run_ends_with_it() {
    let daemon = Daemon::start();
    let (code, out, _) = coffer(&daemon, &["run", "watch", RUN_A]);
    assert_eq!((code, out.lines().count()), (0, 2));
    assert!(out.contains("READY") && out.contains("STOPPED"), "{out}");
}

#[test]
fn a_shell_needs_a_terminal() {
    let daemon = Daemon::start();
    let (code, out, err) = fed(prepared(&daemon, &["run", "shell", RUN_A]), "ls\n");
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("needs a terminal") && err.contains("coffer call shell"), "{err}");
}

#[test]
fn content_is_raw_in_a_pipe() {
    let daemon = Daemon::start();
    let end = coffer(&daemon, &["call", "read", "aaaa", "a.txt", "--lines", "1-3", "--request-id", "r1"]);
    assert_eq!(end, (0, "hi \x1b[31mred\n".into(), String::new()));
    let call = daemon.last_call();
    assert_eq!((call.run_id.as_str(), call.request_id.as_str()), (RUN_A, "r1"));
    let Some(Operation::Read(read)) = call.request.and_then(daemon::operation) else { panic!("not a read") };
    assert_eq!((read.path.as_str(), read.start_line, read.end_line), ("a.txt", Some(1), Some(3)));
}

#[test]
fn a_command_that_fails_is_a_tool_that_failed() {
    let daemon = Daemon::start();
    let good = coffer(&daemon, &["call", "exec", RUN_A, "--", "exit"]);
    assert_eq!(good, (0, "out\n".into(), "err\n".into()));
    let bad = coffer(&daemon, &["call", "exec", RUN_A, "--", "exit", "7"]);
    assert_eq!(bad, (7, "out\n".into(), "err\nfailed: the command ended with exit code 7\n".into()));
    let (code, out, _) = coffer(&daemon, &["--output", "json", "call", "exec", RUN_A, "--", "exit", "7"]);
    let call: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &call["result"]["exec"]["exitCode"]), (7, &serde_json::json!(7)));
}

#[test]
fn output_is_shown_as_it_arrives_unless_an_option_says_otherwise() {
    let daemon = Daemon::start();
    coffer(&daemon, &["call", "exec", RUN_A, "--", "exit"]);
    assert!(daemon.last_call().cancel_on_disconnect, "Ctrl-C ends the command");
    let end = coffer(&daemon, &["call", "exec", RUN_A, "--no-stream", "--", "exit", "7"]);
    assert_eq!(end, (7, "out\n".into(), "err\nfailed: the command ended with exit code 7\n".into()));
    assert!(!daemon.last_call().cancel_on_disconnect);

    let line = ["--output", "json", "call", "exec", RUN_A, "--stream", "--", "exit", "7"];
    let (code, out, err) = coffer(&daemon, &line);
    assert_eq!((code, err.as_str()), (7, ""));
    let events: Vec<serde_json::Value> =
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<_> = events.iter().flat_map(|event| event.as_object().unwrap().keys().cloned()).collect();
    assert_eq!(kinds, ["accepted", "output", "output", "output", "result"]);
    assert_eq!(events[2]["output"], serde_json::json!({"stream": "STDERR", "data": "ZXJyCg=="}));
}

#[test]
fn output_is_printed_byte_for_byte_from_any_offset() {
    let daemon = Daemon::start();
    let output = prepared(&daemon, &["call", "output", CALL]).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), OUTPUT));
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "cut short: 7 B at the end are not stored: the disk had no space\n"
    );
    let output = prepared(&daemon, &["call", "output", CALL, "--offset", "3", "--follow"]).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &OUTPUT[3..]));
    assert_eq!(coffer(&daemon, &["call", "output", CALL, "--stderr"]), (0, String::new(), String::new()));
    assert_eq!(coffer(&daemon, &["call", "output", "short"]).0, 2);
}

#[test]
fn the_log_of_a_companion_is_printed_byte_for_byte() {
    let daemon = Daemon::start();
    let output = prepared(&daemon, &["run", "logs", RUN_A, "--companion", "db"]).output().unwrap();
    assert_eq!(
        (output.status.code(), output.stdout.as_slice()),
        (Some(0), &b"db: started\n\xff\x1b[2J\n"[..])
    );
    let (code, line, _) = coffer(&daemon, &["run", "logs", RUN_A, "--companion", "db", "--output", "json"]);
    assert_eq!((code, line.trim()), (0, r#"{"data":"ZGI6IHN0YXJ0ZWQK/xtbMkoK"}"#));
}

#[test]
fn a_waiting_call_shows_the_next_command() {
    let daemon = Daemon::start();
    let command = prepared(&daemon, &["call", "write", RUN_A, "a.txt", "-", "--wait"]);
    let (code, out, err) = fed(command, "from a pipe\n");
    assert_eq!((code, out.as_str()), (4, ""));
    assert!(err.contains(&format!("coffer approval approve {APPROVAL}\n")), "{err}");
    assert!(err.contains(&format!("coffer call show {CALL}\n")), "{err}");
    let call = daemon.last_call();
    assert!(call.wait_for_approval);
    let Some(Operation::Write(write)) = call.request.and_then(daemon::operation) else {
        panic!("not a write")
    };
    assert_eq!(write.content, "from a pipe\n");
}

#[test]
fn failed_denied_and_limited_calls_have_different_exit_codes() {
    let daemon = Daemon::start();
    let failed = coffer(&daemon, &["call", "edit", RUN_A, "a", "--old", "x", "--new", "y"]);
    assert_eq!(failed, (1, String::new(), "failed: there is no @project/a (NOT_FOUND)\n".into()));
    let denied = coffer(&daemon, &["call", "git", RUN_A, "commit", "-m", "hi"]);
    assert_eq!(denied, (3, String::new(), "denied: role worker may not commit (PERMISSION_DENIED)\n".into()));
    let limited = coffer(&daemon, &["call", "list", RUN_A]);
    assert_eq!(limited, (3, String::new(), "error: too many calls (RATE_LIMITED)\n".into()));
}

#[test]
fn programs_get_errors_as_json() {
    let daemon = Daemon::start();
    let (code, out, err) = coffer(&daemon, &["--output", "json", "call", "list", RUN_A]);
    assert_eq!((code, out.as_str()), (3, ""));
    let error: serde_json::Value = serde_json::from_str(&err).unwrap();
    assert_eq!(error, serde_json::json!({"reason": "RATE_LIMITED", "message": "too many calls"}));
}

#[test]
fn a_dialect_prints_the_rendered_text_of_the_model() {
    let daemon = Daemon::start();
    let end = coffer(&daemon, &["call", "dialect", RUN_A, "fs", "fs.read", "{}"]);
    assert_eq!(end, (0, "{\"ok\":true}\n".into(), String::new()));
}

#[test]
fn a_step_reads_a_text_and_prints_the_next_message_untouched() {
    let daemon = Daemon::start();
    for (text, code) in [("SUCCEEDED \u{1b}[31m\r\n", 0), ("FAILED x", 1), ("DENIED x", 3)] {
        let (ended, out, err) = fed(prepared(&daemon, &["transcript", "step", RUN_A]), text);
        assert_eq!((ended, out.as_str()), (code, text));
        assert!(err.contains("turn 1 of 10"), "{text:?}");
    }
    let (code, out, _) = coffer(&daemon, &["call", "tools", RUN_A, "--dialect", "forge", "--prompt"]);
    assert_eq!((code, out.as_str()), (0, "TOOLS\n"));
}

#[test]
fn approvals_are_found_by_their_end_and_shown_harmless() {
    let daemon = Daemon::start();
    let (code, out, _) = coffer(&daemon, &["approval", "show", "a99"]);
    assert_eq!(code, 0);
    assert!(out.contains("+␛[2Jhidden\n") && !out.contains('\x1b'), "{out}");
    let (code, out, err) = coffer(&daemon, &["approval", "approve", "a99", "--comment", "fine"]);
    assert_eq!((code, out), (0, format!("{APPROVAL} APPROVED\n")));
    assert_eq!(err, format!("its outcome: coffer call show {CALL}\n"));
    let (code, out, _) = coffer(&daemon, &["approval", "deny", APPROVAL]);
    assert_eq!((code, out), (0, format!("{APPROVAL} DENIED\n")));
}

#[test]
fn the_tail_is_a_line_a_record() {
    let daemon = Daemon::start();
    let lines = |line: &[&str]| coffer(&daemon, line).1.lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(lines(&["audit", "tail"]).len(), 5);
    assert_eq!(lines(&["audit", "tail", "--after", "3"]).len(), 2);
    assert_eq!(
        lines(&["audit", "tail", "-n", "1", "--output", "json"]),
        [r#"{"sequence":5,"kind":"call_intent"}"#]
    );
    assert_eq!(lines(&["audit", "tail", "-n", "2", "--follow"]).len(), 2);
}

#[test]
fn a_broken_log_is_a_failure() {
    let daemon = Daemon::start();
    let end = coffer(&daemon, &["audit", "verify"]);
    let out = "BROKEN: record 5 was edited\nbefore it: 4 records, head c0ffee\n";
    assert_eq!(end, (1, out.into(), String::new()));
}

#[test]
fn truncated_bundle_is_refused() {
    let daemon = Daemon::start();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.bundle");
    let (code, out, err) = coffer(&daemon, &["bundle", "create", RUN_A, file.to_str().unwrap()]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("before the bundle was complete"), "{err}");
    assert!(!file.exists());
}

#[test]
fn no_daemon_no_answer() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("cofferd.sock");
    let endpoint = format!("unix:{}", socket.display());
    let (code, out, err) = end(&bare().args(["--endpoint", &endpoint, "run", "list"]).output().unwrap());
    assert_eq!((code, out.as_str()), (5, ""));
    assert!(err.contains("does not exist") && err.contains("cofferd --config"), "{err}");

    // Bound once, and left behind by a daemon that has ended.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let (code, _, err) = end(&bare().args(["--endpoint", &endpoint, "run", "list"]).output().unwrap());
    assert_eq!(code, 5);
    assert!(err.contains("no process listens on"), "{err}");
}

#[test]
fn socket_without_a_daemon_is_unreachable() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let server = std::thread::spawn(move || drop(listener.accept()));
    let endpoint = format!("unix:{}", socket.display());
    let (code, ..) = end(&bare().args(["--endpoint", &endpoint, "run", "list"]).output().unwrap());
    server.join().unwrap();
    assert_eq!(code, 5);
}

#[test]
fn a_wrong_command_line_is_usage() {
    let (code, _, err) =
        end(&bare().args(["--endpoint", "http://host:7443", "run", "list"]).output().unwrap());
    assert_eq!(code, 2);
    assert!(err.contains("use https for other hosts"), "{err}");
    assert_eq!(end(&bare().arg("frobnicate").output().unwrap()).0, 2);
    assert_eq!(end(&bare().args(["call", "show", "short"]).output().unwrap()).0, 2);
}

#[test]
fn a_usage_error_shows_no_option_that_a_variable_has_set() {
    let refused = |variables: &[(&str, &str)], line: &[&str]| {
        let mut command = bare();
        let (code, out, err) = end(&command.envs(variables.iter().copied()).args(line).output().unwrap());
        assert_eq!((code, out.as_str()), (2, ""), "{err}");
        err
    };
    let set = [("COFFERDAM_ENDPOINT", "unix:/nowhere/s"), ("COFFERDAM_TOKEN", "cft_a_secret")];
    for line in
        [&["run", "create", "--managed"][..], &["call", "write"], &["run", "list", "--no-such-option"]]
    {
        assert_eq!(refused(&set, line), refused(&[], line), "{line:?}");
    }
    let err = refused(&[("COFFERDAM_ENDPOINT", "/nowhere/s")], &["run", "list"]);
    assert!(err.contains("COFFERDAM_ENDPOINT is `/nowhere/s`") && err.contains("looks like unix:"), "{err}");
}

#[test]
fn one_variable_has_the_token_of_a_run_for_every_command() {
    let token = "cft_01a2003d-e913-7000-8000-00000000aaaa_secret";
    let mcp = |name: &str| {
        let mut command = bare();
        command.args(["--endpoint", "unix:/nowhere/s", "mcp"]).env(name, token);
        end(&command.output().unwrap())
    };
    assert_eq!(mcp("COFFERDAM_TOKEN").0, 5, "the token is taken, and no daemon is there");
    let (code, _, err) = mcp("COFFERDAM_RUN_TOKEN");
    assert!(code == 2 && err.contains("set COFFERDAM_TOKEN instead"), "{code} {err}");
}

/// A `coffer` for a user whose home directory is `home`, without a daemon.
fn at_home(home: &std::path::Path) -> Command {
    let mut command = bare();
    command.env_clear().env("COFFERDAM_ENDPOINT", "unix:/nowhere/s").env("HOME", home).current_dir(home);
    command
}

#[test]
fn suggested_rules_pass_the_check_of_a_policy_and_are_explained_without_a_daemon() {
    let home = tempfile::tempdir().unwrap();
    let token =
        "registry=https://user:pw-of-npm@npm.example.org:8443/\n//npm.example.org/:_authToken=pw-of-npm\n";
    std::fs::write(home.path().join(".npmrc"), token).unwrap();
    let mut suggest = at_home(home.path());
    suggest.env("PIP_INDEX_URL", "http://user:pw-of-pip@pip.example.org/simple").args(["egress", "suggest"]);
    let (code, out, err) = end(&suggest.output().unwrap());
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert!(out.contains("{ host: \"npm.example.org\", ports: [8443], decision: allow }"), "{out}");
    assert!(!out.contains("pw-of"), "{out}");

    let policy = home.path().join("policy.yaml");
    std::fs::write(&policy, format!("profiles:\n  mine:\n    operations: {{}}\n{out}")).unwrap();
    let policy = policy.to_str().unwrap();
    let (code, out, err) = end(&at_home(home.path()).args(["policy", "check", policy]).output().unwrap());
    assert_eq!((code, err.as_str()), (0, ""), "{out}");

    let explain = |host: &str| {
        let line = [
            "--output",
            "json",
            "policy",
            "explain",
            "egress",
            host,
            "--profile",
            "mine",
            "--policy",
            policy,
        ];
        let (code, out, err) = end(&at_home(home.path()).args(line).output().unwrap());
        assert_eq!((code, err.as_str()), (0, ""), "{host}: {out}");
        let explained: serde_json::Value = serde_json::from_str(&out).unwrap();
        explained[0].clone()
    };
    let pip = explain("pip.example.org:80");
    assert_eq!(pip["decision"], "allow");
    assert_eq!(pip["open"][0]["methods"], serde_json::json!(["GET", "HEAD"]));
    assert_eq!(explain("npm.example.org")["open"][0]["port"], 8443);
    assert_eq!(explain("other.example.org:443")["effect"], "the name does not exist in the run");

    let line = ["policy", "explain", "egress", "pip.example.org"];
    let (code, out, err) = end(&at_home(home.path()).args(line).output().unwrap());
    assert_eq!((code, out.as_str()), (5, ""), "without --policy the daemon's policy is meant: {err}");
    let line = ["policy", "explain", "egress", "127.1:443", "--policy", policy];
    let (code, _, err) = end(&at_home(home.path()).args(line).output().unwrap());
    assert_eq!(code, 2);
    assert!(err.contains("an IP address in some notation"), "{err}");
}

/// Exit code and findings: topic, verdict, what was found.
fn examined(mut command: Command) -> (i32, Vec<[String; 3]>) {
    let (code, out, err) = end(&command.args(["--output", "json", "doctor"]).output().unwrap());
    let findings: Vec<serde_json::Value> =
        serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{err}"));
    let text = |finding: &serde_json::Value, name: &str| finding[name].as_str().unwrap().to_owned();
    let parts = |finding| ["topic", "verdict", "found"].map(|name| text(finding, name));
    (code, findings.iter().map(parts).collect())
}

#[test]
fn without_a_daemon_the_doctor_examines_this_host_and_reports_a_missing_engine() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = dir.path().join("nothing");
    let mut command = bare();
    command.env("COFFERDAM_ENDPOINT", format!("unix:{}", nowhere.display()));
    command.env("DOCKER_HOST", format!("unix://{}", nowhere.display()));
    let (code, findings) = examined(command);
    assert_eq!(code, 1);
    let of = |topic: &str| findings.iter().find(|[of, ..]| of == topic).unwrap();
    assert_eq!((of("engine")[1].as_str(), of("daemon")[1].as_str()), ("missing", "limited"));
    assert!(of("host")[2].starts_with("this host"), "{findings:?}");
    assert!(!of("cgroups")[1].is_empty(), "{findings:?}");
}

#[test]
fn without_a_terminal_the_fixes_are_printed_and_none_runs() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = dir.path().join("nothing");
    let doctor = |fix: &[&str]| {
        let mut command = bare();
        command.env("COFFERDAM_ENDPOINT", format!("unix:{}", nowhere.display()));
        command.env("DOCKER_HOST", format!("unix://{}", nowhere.display()));
        fed(
            {
                command.arg("doctor").args(fix);
                command
            },
            "y\ny\ny\ny\n",
        )
    };
    let (without, with) = (doctor(&[]), doctor(&["--fix"]));
    assert_eq!((without.0, with.0), (1, 1), "{with:?}");
    let added = with.1.strip_prefix(without.1.as_str()).unwrap();
    assert!(added.contains("nothing ran") || added.contains("No command is known"), "{added}");
    assert!(!with.2.contains("Run it?"), "{}", with.2);
    for line in added.lines().filter(|line| line.starts_with("  ")) {
        assert!(without.1.contains(&format!("run `{}`", line.trim())), "the hints show it: {line}");
    }
}

#[test]
fn fixes_are_refused_for_a_daemon_that_may_be_elsewhere() {
    let mut command = bare();
    command.env("COFFERDAM_ENDPOINT", "https://cofferd.example.org:7443");
    let (code, out, err) = end(&command.args(["doctor", "--fix"]).output().unwrap());
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("on the daemon's host"), "{err}");
}

#[test]
fn the_doctor_of_an_answering_daemon_examines_only_the_daemons_host() {
    let daemon = Daemon::start();
    // What a client's container looks like: no engine there.
    let mut command = prepared(&daemon, &[]);
    command.env("DOCKER_HOST", "unix:///nowhere/engine.sock");
    let (code, findings) = examined(command);
    let topics: Vec<_> = findings.iter().map(|[topic, ..]| topic.as_str()).collect();
    assert_eq!((code, &topics[..]), (1, &["daemon", "host", "idmapped mounts"][..]), "{findings:?}");
    assert!(findings[1][2].starts_with("the daemon's"), "{findings:?}");
    assert_eq!(findings[2][2], "kernel 4.9-elsewhere is older than 5.12");
}
