//! Transcripts: a model that calls tools by fenced blocks, turn by turn, through the API and from a shell.

use harness::v1::step_transcript_response::Status;
use harness::{Daemon, RunHandle, reason, v1};

fn step(run: &RunHandle, text: &str) -> v1::StepTranscriptRequest {
    v1::StepTranscriptRequest {
        run_id: run.id().to_owned(),
        session_id: "s".to_owned(),
        text: text.to_owned(),
        ..Default::default()
    }
}

async fn take(run: &mut RunHandle, request: v1::StepTranscriptRequest) -> v1::StepTranscriptResponse {
    run.clients.tools.step_transcript(request).await.unwrap().into_inner()
}

fn block(tool: &str, arguments: &str) -> String {
    format!("I do it.\n```forge:{tool}\n{arguments}\n```\nmore\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_goes_from_turn_to_turn_until_it_answers() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n```\n[/forge:tool]\n")]);
    let mut run = daemon.run("open", &workspace).await;

    let request = step(&run, &block("read", r#"{"path": "a.txt"}"#));
    let read = take(&mut run, request).await;
    assert_eq!((read.status(), read.turn, read.max_turns), (Status::ToolResult, 1, 10));
    assert_eq!(
        (read.prose.as_str(), read.tool.as_str(), read.call_status.as_str()),
        ("I do it.\n", "read", "SUCCEEDED")
    );
    assert!(read.message.contains("one\n```\n[\\/forge:tool]\n"), "{}", read.message);
    assert_eq!(read.message.matches("[/forge:tool]").count(), 1);

    let request = step(&run, &block("edit", r#"{"path": "a.txt", "oldString": "one", "newString": "two"}"#));
    assert_eq!(take(&mut run, request).await.turn, 2);
    assert!(std::fs::read_to_string(workspace.join("a.txt")).unwrap().starts_with("two\n"));
    let request = step(&run, &block("bash", r#"{"command": "cat a.txt | head -1; exit 3"}"#));
    let bash = take(&mut run, request).await;
    assert!(bash.message.contains("exit_code: 3\n--- stdout (4 bytes) ---\ntwo\n"), "{}", bash.message);

    // What is wrong takes a turn, is answered, and is on record.
    for (text, expected) in [
        (block("bash", "{\"command\": "), "status: invalid_json"),
        (block("bash", "{}"), "status: invalid_schema"),
        (block("deploy", "{}"), "status: unknown_tool"),
        (block("read", r#"{"path": "../../etc/passwd"}"#), "code: SANDBOX_VIOLATION"),
        (block("read", r#"{"path": "no such file"}"#), "code: NOT_FOUND"),
        (block("bash", r#"{"command": "rm -rf ."}"#), "Command not allowed: rm"),
    ] {
        let request = step(&run, &text);
        let answer = take(&mut run, request).await;
        assert_eq!(answer.status(), Status::ToolResult);
        assert!(answer.message.contains(expected), "{}", answer.message);
        assert_eq!(run.clients.of_call(&answer.call_id).await.len(), 2, "intent and receipt");
    }

    let plain = "All done: `a.txt` is mended.\r\n\n";
    let request = step(&run, plain);
    let answer = take(&mut run, request).await;
    assert_eq!((answer.status(), answer.message.as_str(), answer.turn), (Status::PlainText, plain, 9));
    assert!(answer.call_id.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_turns_of_a_session_are_bounded_over_a_restart() {
    let mut daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run("open", &workspace).await;
    let look = block("glob", r#"{"pattern": "*"}"#);

    let first = v1::StepTranscriptRequest { max_turns: 3, ..step(&run, &look) };
    let first = take(&mut run, first).await;
    assert_eq!((first.turn, first.max_turns), (1, 3));
    let other = v1::StepTranscriptRequest { max_turns: 4, ..step(&run, &look) };
    assert_eq!(reason(&run.clients.tools.step_transcript(other).await.unwrap_err()), "INVALID_ARGUMENT");
    let capped = v1::StepTranscriptRequest { max_turns: 99, session_id: "t".into(), ..step(&run, &look) };
    assert_eq!(take(&mut run, capped).await.max_turns, 10);

    daemon.relaunch().await;
    run.clients = daemon.connect().await;
    // Whether or not the run lives on, its sessions do.
    let request = step(&run, &look);
    assert_eq!(take(&mut run, request).await.turn, 2);
    let request = step(&run, &look);
    assert_eq!(take(&mut run, request).await.turn, 3);
    let request = step(&run, &look);
    let over = take(&mut run, request).await;
    assert_eq!((over.status(), over.turn, over.max_turns), (Status::MaxTurns, 3, 3));
    assert!(over.call_id.is_empty() && over.message.contains("all 3 turns"), "{over:?}");
    let request = step(&run, "I stop here.");
    assert_eq!(take(&mut run, request).await.status(), Status::PlainText);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_step_is_the_same_turn_and_the_same_call() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    let mut run = daemon.run("open", &workspace).await;
    let text = block("bash", r#"{"command": "echo x >> log; cat log"}"#);
    let request = v1::StepTranscriptRequest { request_id: "r1".into(), ..step(&run, &text) };
    let first = take(&mut run, request.clone()).await;
    let again = take(&mut run, request.clone()).await;
    assert_eq!(first, again);
    assert_eq!(std::fs::read_to_string(workspace.join("log")).unwrap(), "x\n");

    let changed = v1::StepTranscriptRequest { text: text.replace('x', "y"), ..request.clone() };
    assert_eq!(reason(&run.clients.tools.step_transcript(changed).await.unwrap_err()), "ALREADY_EXISTS");
    // In another session it is another turn.
    let elsewhere = v1::StepTranscriptRequest { session_id: "t".into(), ..request };
    assert_ne!(take(&mut run, elsewhere).await.call_id, first.call_id);

    for bad in [
        v1::StepTranscriptRequest { session_id: String::new(), ..step(&run, &text) },
        v1::StepTranscriptRequest { session_id: "s\n".into(), ..step(&run, &text) },
        v1::StepTranscriptRequest { request_id: "r".repeat(129), ..step(&run, &text) },
        v1::StepTranscriptRequest { text: "x".repeat(4 * 1024 * 1024 + 1), ..step(&run, &text) },
        v1::StepTranscriptRequest { run_id: String::new(), ..step(&run, &text) },
    ] {
        assert_eq!(reason(&run.clients.tools.step_transcript(bad).await.unwrap_err()), "INVALID_ARGUMENT");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_waits_for_consent_continues_after_it() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    let mut run = daemon.run("review", &workspace).await;
    let text = block("write", r#"{"path": "a.txt", "content": "hi\n"}"#);
    let request = v1::StepTranscriptRequest { request_id: "r1".into(), ..step(&run, &text) };
    let pending = take(&mut run, request.clone()).await;
    assert_eq!((pending.status(), pending.turn), (Status::PendingApproval, 1));
    assert!(pending.message.contains("status: pending") && pending.message.contains(&pending.approval_id));
    assert!(!workspace.join("a.txt").exists());

    run.clients.approve(&pending.approval_id).await.unwrap();
    let waiting = v1::StepTranscriptRequest { wait_for_approval: true, ..request };
    let done = take(&mut run, waiting).await;
    assert_eq!((done.status(), done.turn, done.call_status.as_str()), (Status::ToolResult, 1, "SUCCEEDED"));
    assert!(done.message.contains("path: @project/a.txt\nbytes: 3\n"), "{}", done.message);
    assert_eq!(std::fs::read_to_string(workspace.join("a.txt")).unwrap(), "hi\n");
    // The same message is what GetCall has for a client that has gone on meanwhile.
    assert_eq!(run.get(&done.call_id).await.rendered, done.message);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shell_also_works_through_a_transcript() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let run = daemon.run("open", &workspace).await;
    let coffer = async |text: &str| {
        let mut command = tokio::process::Command::new(harness::binary("coffer"));
        command.arg("--endpoint").arg(format!("unix:{}", daemon.socket().display()));
        command.args(["transcript", "step", run.id(), "--session", "chat", "--max-turns", "1"]);
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        command.stderr(std::process::Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stdin, text.as_bytes()).await.unwrap();
        drop(stdin);
        let output = child.wait_with_output().await.unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    };
    let (code, out, err) = coffer(&block("read", r#"{"path": "a.txt"}"#)).await;
    assert_eq!(code, 0, "{err}");
    assert!(out.starts_with("[forge:tool]\ntool: read\n") && out.contains("one\n"), "{out}");
    assert!(err.contains("turn 1 of 1"), "{err}");
    assert_eq!(coffer(&block("read", r#"{"path": "a.txt"}"#)).await.0, 1, "no turn is left");
    let (code, out, _) = coffer("Done.\n").await;
    assert_eq!((code, out.as_str()), (0, "Done.\n"));
}
