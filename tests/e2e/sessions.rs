//! Sessions: a shell that stays, one command after the other.

use harness::session::{command, typed};
use harness::v1::call_response::Status;
use harness::v1::exec_result::EndedBy;
use harness::v1::operation::Kind as Operation;
use harness::v1::result::Kind as Answer;
use harness::v1::session::State as Session;
use harness::v1::session_result::State;
use harness::v1::{self, CreateRunRequest, OpenSessionRequest, SessionRequest};
use harness::{Daemon, RunHandle, Setup, debian, dev_image, processes, reason, record, requests, until};

const IDLE: [&str; 2] = ["/.cofferdam/guest hold", "/.cofferdam/guest serve"];

async fn harness_run(daemon: &Daemon) -> RunHandle {
    daemon.run_on(requests::managed("harness")).await
}

/// One with bash.
async fn bash_run(daemon: &Daemon) -> RunHandle {
    daemon.run_on(CreateRunRequest { image: debian(), ..requests::managed("harness") }).await
}

/// What both shells must do.
async fn what_is_done_lasts(run: &mut RunHandle) {
    let id = run.open().await;
    let done = |text: &str| (text.to_owned(), 0);
    assert_eq!(run.said(&id, "mkdir -p src && cd src && pwd").await, done("/workspace/src\n"));
    assert_eq!(run.said(&id, "x=5; f() { echo \"f$x$1\"; }; export Y=y").await, done(""));
    assert_eq!(run.said(&id, "pwd; f z; sh -c 'echo $Y'").await, done("/workspace/src\nf5z\ny\n"));
    // Exactly its output, and its code.
    assert_eq!(
        run.said(&id, "printf 'no newline'; exit_code() { return 17; }; exit_code").await,
        ("no newline".to_owned(), 17)
    );
    assert_eq!(run.said(&id, "echo err >&2; echo out; (exit 7)").await, ("err\nout\n".to_owned(), 7));
    assert_eq!(run.said(&id, "printf 'a\\r\\n\\033[1mb\\0c\\n'").await, done("a\r\n\u{1b}[1mb\0c\n"));
    // Several lines, a document, quotes.
    let lines = "cat <<EOF\nit's \"$x\"\nEOF\nfor i in 1 2\ndo\n  echo $i\ndone";
    assert_eq!(run.said(&id, lines).await, done("it's \"5\"\n1\n2\n"));
    // What is wrong is told, and the session goes on.
    for wrong in ["if", "echo 'unterminated", "a )", "${nothing?is missing}", "echo `"] {
        let (said, code) = run.said(&id, wrong).await;
        assert!(code != 0 && !said.is_empty(), "{wrong}: {code} {said}");
        assert_eq!(run.said(&id, "echo $x").await, done("5\n"), "after {wrong}");
    }
    // Jobs last, too.
    run.said(&id, "sleep 1000 & job=$!").await;
    assert_eq!(run.said(&id, "kill -0 $job && echo lives").await, done("lives\n"));
    assert_eq!(run.said(&id, "kill $job; wait $job; echo $?").await.0.lines().last(), Some("143"));
    // Those that end while the shell waits for a command do not end it. An ash that is told nothing ends with the 51st.
    let jobs = "for i in $(seq 30); do (sleep 0.5; echo >>ended) & (sleep 1.5; echo >>ended) & done";
    run.said(&id, jobs).await;
    let other = run.open().await;
    let counted = "until [ \"$(wc -l <src/ended)\" = 60 ]; do sleep 0.1; done";
    run.said(&other, counted).await;
    run.close(&other).await;
    assert_eq!(run.said(&id, "echo $x").await, done("5\n"));
    // A command that reads has the terminal.
    let asked = run
        .in_session(SessionRequest {
            expect: vec!["name: ".into()],
            ..command(&id, "printf 'name: '; read n; echo hello $n")
        })
        .await;
    assert_eq!(
        (asked.state(), asked.output.as_str(), asked.matched_text.as_str()),
        (State::Matched, "", "name: ")
    );
    let answer = run.in_session(typed(&id, "Ann\n", &[])).await;
    assert_eq!(
        (answer.state(), answer.output.as_str(), answer.exit_code),
        (State::Done, "hello Ann\n", Some(0))
    );
    let closed = run.close(&id).await;
    assert_eq!(closed.state(), Session::Closed);
    assert_eq!(closed.process.unwrap().kill.unwrap().left, 0);
    assert_eq!(processes(&run.run.container_id), IDLE, "nothing of it is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn directory_variables_functions_and_jobs_last_in_bash() {
    let daemon = Daemon::start().await;
    let mut run = bash_run(&daemon).await;
    what_is_done_lasts(&mut run).await;
    let id = run.open().await;
    assert_eq!(
        run.said(&id, "echo ${BASH_VERSION:+bash} $-").await.0.split_whitespace().next(),
        Some("bash")
    );
    assert_eq!(run.said(&id, "echo 'a!b' && echo \"c!d\"").await.0, "a!b\nc!d\n", "there is no history");
}

#[tokio::test(flavor = "multi_thread")]
async fn directory_variables_functions_and_jobs_last_in_ash() {
    let daemon = Daemon::start().await;
    what_is_done_lasts(&mut harness_run(&daemon).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repl_is_driven_by_its_expected_output() {
    let daemon = Daemon::start().await;
    let request = CreateRunRequest { image: dev_image(), ..requests::managed("harness") };
    let mut run = daemon.run_on(request).await;
    let id = run.open().await;
    let prompt = [r">>> $"];
    let greeting =
        run.in_session(SessionRequest { expect: vec![prompt[0].into()], ..command(&id, "python3 -q") }).await;
    assert_eq!(
        (greeting.state(), greeting.exit_code, greeting.matched),
        (State::Matched, None, Some(0)),
        "{greeting:?}"
    );
    for (line, said) in [("6 * 7\n", "42"), ("x = 'ab' * 3\n", ""), ("x.upper()\n", "'ABABAB'")] {
        let answer = run.in_session(typed(&id, line, &prompt)).await;
        assert_eq!(answer.state(), State::Matched, "{answer:?}");
        assert!(answer.output.contains(said), "{line}: {answer:?}");
    }
    // Another command is not for now.
    let refused = run.try_in_session(command(&id, "ls")).await.unwrap_err();
    assert_eq!(reason(&refused), "PRECONDITION_FAILED");
    // Several things can be expected.
    let failed = run.in_session(typed(&id, "1 / 0\n", &["no such", r"(\w+)Error: [^\n]*"])).await;
    assert_eq!(
        (failed.matched, failed.matched_text.as_str()),
        (Some(1), "ZeroDivisionError: division by zero")
    );
    // Its endless loop is interrupted, and it goes on.
    let looping = SessionRequest { timeout_ms: Some(2_000), ..typed(&id, "while True: pass\n\n", &[]) };
    assert_eq!(run.in_session(looping).await.state(), State::Running);
    let interrupted = run.interrupt(&id, &prompt).await;
    assert_eq!(interrupted.state(), State::Matched, "{interrupted:?}");
    assert!(interrupted.output.contains("KeyboardInterrupt"), "{interrupted:?}");
    let left = run.in_session(typed(&id, "exit(3)\n", &[])).await;
    assert_eq!((left.state(), left.exit_code), (State::Done, Some(3)), "{left:?}");
    assert_eq!(run.said(&id, "echo back").await, ("back\n".to_owned(), 0));
}

/// Gives a session a command that says `ready`, and then waits for it in vain.
async fn runs_on(run: &mut RunHandle, session: &str, words: &str) -> v1::SessionResult {
    let begins = SessionRequest { expect: vec![r"ready\s".into()], ..command(session, words) };
    let begun = run.in_session(begins).await;
    assert_eq!(begun.state(), State::Matched, "{words}: {begun:?}");
    let session_id = session.to_owned();
    run.in_session(SessionRequest { session_id, timeout_ms: Some(300), ..Default::default() }).await
}

/// A client that leaves a session is heard a moment later: who comes next waits for that, and is not turned away.
#[tokio::test(flavor = "multi_thread")]
async fn the_next_call_waits_a_moment_for_the_one_before_to_go() {
    let daemon = Daemon::start().await;
    let mut run = harness_run(&daemon).await;
    let id = run.open().await;
    let (mut other, session) = (run.clone(), id.clone());
    let brief = SessionRequest { timeout_ms: Some(1_000), ..command(&session, "read line; echo $line") };
    let leaves = tokio::spawn(async move { other.in_session(brief).await });
    run.first_session_is_busy().await;
    let next = run.in_session(typed(&id, "on\n", &[])).await;
    assert_eq!((next.state(), next.output.as_str()), (State::Done, "on\n"), "{next:?}");
    assert_eq!(leaves.await.unwrap().state(), State::Running);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_leaves_the_session_usable() {
    let daemon = Daemon::start().await;
    for mut run in [harness_run(&daemon).await, bash_run(&daemon).await] {
        let id = run.open().await;
        let late = runs_on(&mut run, &id, "echo ready begun; sleep 1000; echo after").await;
        assert_eq!((late.state(), late.output.as_str(), late.exit_code), (State::Running, "begun\n", None));
        assert_eq!(run.sessions().await[0].state(), Session::Busy);
        assert_eq!(reason(&run.try_in_session(command(&id, "ls")).await.unwrap_err()), "PRECONDITION_FAILED");
        let ended = run.interrupt(&id, &[]).await;
        assert_eq!((ended.state(), ended.exit_code), (State::Done, Some(130)), "{ended:?}");
        assert!(!ended.output.contains("after"), "{ended:?}");
        assert_eq!(run.sessions().await[0].state(), Session::Idle);
        assert_eq!(run.said(&id, "echo usable").await, ("usable\n".to_owned(), 0));

        // A loop of the shell itself, and one that hears no interrupt.
        for (endless, code) in [
            ("echo ready; while :; do :; done", Some(130)),
            ("sh -c 'trap \"\" INT; echo ready; sleep 1000; :'", Some(137)),
        ] {
            let late = runs_on(&mut run, &id, endless).await;
            assert_eq!(late.state(), State::Running, "{endless}");
            let ended = run.interrupt(&id, &[]).await;
            assert_eq!((ended.state(), ended.exit_code), (State::Done, code), "{endless}: {ended:?}");
            assert_eq!(run.said(&id, "echo usable").await.0, "usable\n", "after {endless}");
        }

        // What ends by itself after its time needs no interrupt: it can be waited for, or forgotten.
        let late = run
            .in_session(SessionRequest {
                timeout_ms: Some(200),
                ..command(&id, "sleep 3; echo late; (exit 9)")
            })
            .await;
        assert_eq!(late.state(), State::Running);
        let waited = run.in_session(SessionRequest { session_id: id.clone(), ..Default::default() }).await;
        assert_eq!(
            (waited.state(), waited.output.as_str(), waited.exit_code),
            (State::Done, "late\n", Some(9))
        );
        run.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_ends_reports_the_cause() {
    let daemon = Daemon::start().await;
    for mut run in [harness_run(&daemon).await, bash_run(&daemon).await] {
        for (last, code) in [
            ("echo bye; exit 3", 3),
            ("exec sh -c 'echo bye; exit 4'", 4),
            ("trap 'echo bye; exit 5' EXIT; exit 1", 5),
            ("echo bye; kill -KILL $$", 137),
            ("echo bye; set -e; false", 1),
        ] {
            let id = run.open().await;
            let ended = run.in_session(command(&id, last)).await;
            assert_eq!((ended.state(), ended.exit_code), (State::Ended, Some(code)), "{last}: {ended:?}");
            assert!(ended.output.contains("bye"), "{last}: {ended:?}");
            let refused = run.try_in_session(command(&id, "ls")).await.unwrap_err();
            assert_eq!(reason(&refused), "PRECONDITION_FAILED", "{last}");
            assert_eq!(run.sessions().await.last().unwrap().state(), Session::Closed);
        }
        // One whose shell has become something else is told apart from one that is busy.
        let id = run.open().await;
        let replaced = SessionRequest { timeout_ms: Some(500), ..command(&id, "exec sleep 1000") };
        assert_eq!(run.in_session(replaced).await.state(), State::Running);
        let is_replaced = async || run.sessions().await.last().unwrap().state() == Session::Replaced;
        until("the shell is still one", is_replaced).await;
        let refused = run.try_in_session(command(&id, "ls")).await.unwrap_err();
        assert!(refused.message().contains("exec"), "{refused}");
        run.close(&id).await;
        assert_eq!(processes(&run.run.container_id), IDLE);
        run.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_a_limit_has_ended_has_failed_and_its_session_continues() {
    let daemon = Daemon::start().await;
    let limits = v1::Limits { memory_bytes: 96 << 20, file_size_bytes: 1 << 20, ..Default::default() };
    let request = CreateRunRequest { limits: Some(limits), image: debian(), ..requests::managed("harness") };
    let mut run = daemon.run_on(request).await;
    let id = run.open().await;
    for (script, code, ended_by, why) in [
        ("tail /dev/zero", 137, EndedBy::MemoryLimit, "MEMORY_LIMIT"),
        ("head -c 2000000 /dev/zero >large", 153, EndedBy::FileSizeLimit, "WRITE_LIMIT"),
    ] {
        let done = run.call(Operation::Session(command(&id, script))).await.unwrap();
        let reason = done.error.as_ref().map(|error| error.reason.as_str());
        assert_eq!((done.status(), reason), (Status::Failed, Some(why)), "{script}: {done:?}");
        let Some(Answer::Session(result)) = done.kind() else { panic!("{done:?}") };
        let end = (result.state(), result.exit_code, result.ended_by());
        assert_eq!(end, (State::Done, Some(code), ended_by), "{script}");
        let outcome = &record(run.clients.of_call(&done.call_id).await.last().unwrap())["outcome"];
        assert_eq!((&outcome["status"], &outcome["reason"]), (&"failed".into(), &why.into()), "{outcome}");
        assert_eq!(run.said(&id, "echo goes on").await, ("goes on\n".to_owned(), 0));
    }
    // A command that a signal of its own has ended was not cut short.
    let done = run.call(Operation::Session(command(&id, "sh -c 'kill -9 $$'"))).await.unwrap();
    let Some(Answer::Session(result)) = done.kind() else { panic!("{done:?}") };
    assert_eq!((done.status(), result.exit_code), (Status::Succeeded, Some(137)), "{done:?}");
    assert_eq!(result.ended_by(), EndedBy::Unspecified);
}

#[tokio::test(flavor = "multi_thread")]
async fn opening_and_using_are_calls_with_policy_consent_and_record() {
    let profile = "profiles:
  p:
    workspace: read-write
    operations: { process: allow, session: allow, exec: allow }
    exec: { default: allow }
  q:
    workspace: read-write
    operations: { process: allow, session: allow }
    exec: { default: ask }
    approvals: { freeze: false }
roles: { director: { allow: \"*\" } }
";
    let policy = vec![("p.yaml", profile.to_owned())];
    let daemon = Daemon::start_with(Setup { policy, ..Default::default() }).await;
    let mut run = daemon.run_on(requests::managed("p")).await;
    let id = run.open().await;
    assert_eq!(run.said(&id, "echo 'fine'").await.0, "fine\n");
    let refused = run.try_in_session(command(&id, "cd / && rm -rf x")).await.unwrap_err();
    assert_eq!(reason(&refused), "COMMAND_NOT_ALLOWED", "the deny list holds for sessions");
    let made = run.try_in_session(command(&id, "echo one; (exit 3)")).await.unwrap();
    let records: Vec<_> = run.clients.of_call(&made.call_id).await.iter().map(record).collect();
    let kinds: Vec<_> = records.iter().map(|record| record["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["call_intent", "call_receipt"]);
    assert_eq!(records[0]["input"]["command"], "echo one; (exit 3)", "{}", records[0]);
    let outcome = &records[1]["outcome"];
    assert_eq!((&outcome["status"], &outcome["exit_code"]), (&"failed".into(), &3.into()), "{outcome}");
    assert_eq!(outcome["facts"]["output"], "one\n", "{outcome}");
    // What it was given is in its recording, beside the log.
    let recording = daemon.state_dir().join("sessions").join(run.id()).join(format!("process-{id}.cast"));
    let recording = std::fs::read_to_string(recording).unwrap();
    assert!(recording.contains("echo one; (exit 3)") && !recording.contains("printf"), "{recording}");

    // Where commands ask, so does the shell that gets them, and each of them.
    let mut run = daemon.run_on(requests::managed("q")).await;
    let pending = run.try_open(OpenSessionRequest::default()).await.unwrap();
    assert!(pending.session.is_none() && !pending.approval_id.is_empty());
    run.clients.approve(&pending.approval_id).await.unwrap();
    run.outcome(&pending.call_id).await;
    let asked = run.try_in_session(command(&pending.call_id, "echo seen")).await.unwrap();
    assert!(asked.result.is_none());
    let approval = run.clients.approval(&asked.approval_id).await;
    assert_eq!(approval.operation, "session", "{approval:?}");
    for told in ["cwd: the shell's", "PATH, functions and aliases", "only these words"] {
        assert!(approval.preview.contains(told), "{told}: {}", approval.preview);
    }
    run.clients.approve(&asked.approval_id).await.unwrap();
    let call = run.outcome(&asked.call_id).await;
    let Some(v1::result::Kind::Session(result)) = call.into_kind() else { panic!("no result") };
    assert_eq!((result.state(), result.output.as_str()), (State::Done, "seen\n"));

    // None of the profiles that there were has it.
    let daemon = Daemon::start().await;
    for profile in ["review", "build", "open", "strict"] {
        let mut run = daemon.run_on(requests::managed(profile)).await;
        let refused = run.try_open(OpenSessionRequest::default()).await.unwrap_err();
        assert_eq!(reason(&refused), "PERMISSION_DENIED", "{profile}");
        let refused = run.try_in_session(command("x", "ls")).await.unwrap_err();
        assert_eq!(reason(&refused), "PERMISSION_DENIED", "{profile}");
        run.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_are_refused() {
    let daemon = Daemon::start().await;
    let mut run = harness_run(&daemon).await;
    let id = run.open().await;
    let patterns = |expect: &str| SessionRequest { expect: vec![expect.to_owned()], ..command(&id, "ls") };
    for (request, expected) in [
        (command("", "ls"), "INVALID_ARGUMENT"),
        (command("nobody", "ls"), "NOT_FOUND"),
        (command(&id, " "), "INVALID_ARGUMENT"),
        (SessionRequest { input: "x".into(), ..command(&id, "ls") }, "INVALID_ARGUMENT"),
        (SessionRequest { timeout_ms: Some(0), ..command(&id, "ls") }, "INVALID_ARGUMENT"),
        (patterns("("), "INVALID_ARGUMENT"),
        (patterns("((a{1000}){1000}){1000}"), "INVALID_ARGUMENT"),
        (typed(&id, "x", &[]), "PRECONDITION_FAILED"),
    ] {
        let status = run.try_in_session(request.clone()).await.unwrap_err();
        assert_eq!(reason(&status), expected, "{request:?}: {}", status.message());
    }
    let process = run.start(harness::process::command(&["sleep", "100"])).await.process_id;
    let refused = run.try_in_session(command(&process, "ls")).await.unwrap_err();
    assert_eq!(reason(&refused), "NOT_FOUND", "a process that is no session");
    let other = harness_run(&daemon).await.try_in_session(command(&id, "ls")).await.unwrap_err();
    assert_eq!(reason(&other), "NOT_FOUND", "another run's session");
    assert_eq!(run.said(&id, "echo usable").await.0, "usable\n");
    // A session is a process, and a tag finds it.
    let tagged =
        OpenSessionRequest { tag: "build".to_owned(), cwd: "@state".to_owned(), ..Default::default() };
    let tagged = run.try_open(tagged).await.unwrap().session.unwrap();
    assert_eq!(tagged.process.unwrap().request.unwrap().tag, "build");
    assert_eq!(run.said(&tagged.session_id, "pwd").await.0, "/state\n");
}
