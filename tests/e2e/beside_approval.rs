//! Calls beside an approval: while a reviewer is asked about one call, another one is made, waits, or is refused.

use std::time::Duration;

use harness::session::command;
use harness::v1::call_request::Request;
use harness::v1::call_response::Status;
use harness::v1::{self, CallRequest, CallResponse};
use harness::{Daemon, RunHandle, Setup, calls, reason, record};
use tokio::task::JoinHandle;
use tonic_types::StatusExt as _;

/// All is allowed but `sh job.sh`, which asks and freezes its run.
fn setup(more: &str) -> Setup {
    let profile = format!(
        "profiles:
  p:
    workspace: read-write
    operations: {{ read: allow, list: allow, glob: allow, grep: allow, write: allow, edit: allow, patch: allow, delete: allow, exec: allow, shell: allow, process: allow, session: allow, git.status: allow }}
    exec:
      deny_list: 'off'
      default: allow
      rules: [{{ prefix: [sh, job.sh], decision: ask, justification: It is a script., match: [sh job.sh] }}]
    approvals: {{ freeze: true }}
    rate_limits:
      operations: {{ default: {{ minute: unlimited, hour: unlimited, day: unlimited }} }}
      run: {{ minute: unlimited, hour: unlimited, day: unlimited }}
      principal: {{ minute: unlimited, hour: unlimited, day: unlimited }}
    {more}
roles: {{ director: {{ allow: '*' }} }}
"
    );
    let config = "harness_on_bind: allow\n".to_owned();
    Setup { policy: vec![("p.yaml", profile)], config, ..Default::default() }
}

fn begin(run: &RunHandle, request: CallRequest) -> JoinHandle<Result<CallResponse, tonic::Status>> {
    let mut run = run.clone();
    tokio::spawn(async move { run.call_with(request).await })
}

fn request(operation: impl Into<Request>) -> CallRequest {
    CallRequest { request: Some(operation.into()), ..Default::default() }
}

/// Returns a command with a timeout of one second.
fn hasty() -> v1::operation::Kind {
    let v1::operation::Kind::Exec(exec) = calls::exec(&["true"]) else { unreachable!() };
    v1::operation::Kind::Exec(v1::ExecRequest { timeout_ms: Some(1_000), ..exec })
}

fn bash(command: &str) -> v1::DialectCall {
    let arguments_json = format!(r#"{{"command": "{command}"}}"#);
    v1::DialectCall { dialect: "code".to_owned(), name: "bash".to_owned(), arguments_json }
}

async fn intents(run: &mut RunHandle, number: usize) -> Vec<v1::AuditEvent> {
    let id = run.id().to_owned();
    let events = run.clients.events_when(&id, "call_intent", |events| events.len() >= number).await;
    assert_eq!(events.len(), number, "intents");
    events
}

#[tokio::test(flavor = "multi_thread")]
async fn each_operation_is_made_waits_or_is_refused_beside_an_approval() {
    let daemon = Daemon::start_with(setup("")).await;
    let workspace = daemon.workspace("w", &[("job.sh", "echo job\n"), ("a.txt", "one\n"), ("d.txt", "x\n")]);
    let mut run = daemon.run("p", &workspace).await;
    let process = run
        .start(v1::ProcessRequest { command: "cat".to_owned(), stdin: true, ..Default::default() })
        .await
        .process_id;
    let session = run.open().await;
    let before = run.clients.events(&run.run.run_id.clone(), "call_intent").await.len();
    let asked = run.asks(calls::exec(&["sh", "job.sh"])).await;
    let mut made = before + 1;

    // A call that only reads is made at once.
    for look in [calls::read("a.txt"), calls::list("@project"), calls::grep("@project", "one")] {
        let answer = run.call(look.clone()).await.unwrap();
        assert_eq!(answer.status(), Status::Succeeded, "{look:?}: {:?}", answer.error);
        made += 1;
    }
    assert_eq!(run.download("a.txt", 0).await.unwrap().data, b"one\n");
    made += 1;
    // A process that is there is given its input, which it reads after the approval.
    run.feed(&process, 0, b"said\n", true).await.unwrap();

    // These do not wait.
    let start = v1::ProcessRequest { command: "true".to_owned(), ..Default::default() };
    let dialect = bash("true");
    let refusing = |operation: Request| CallRequest { refuse_awaiting_approval: true, ..request(operation) };
    let refused = [
        run.try_start(start).await.map(drop).unwrap_err(),
        run.try_open(v1::OpenSessionRequest::default()).await.map(drop).unwrap_err(),
        run.try_in_session(command(&session, "true")).await.map(drop).unwrap_err(),
        run.call_with(refusing(calls::exec(&["true"]).into())).await.map(drop).unwrap_err(),
        run.call(hasty()).await.map(drop).unwrap_err(),
    ];
    for status in &refused {
        assert_eq!(reason(status), "AWAITING_APPROVAL", "{status}");
        assert_eq!(status.code(), tonic::Code::FailedPrecondition);
        let metadata = status.get_details_error_info().unwrap().metadata;
        assert_eq!(metadata["approval_id"], asked.approval_id);
        assert_eq!(metadata["awaited_call_id"], asked.call_id);
        assert_eq!((&*metadata["level_needed"], &*metadata["approvals_needed"]), ("approver", "1"));
        assert!(metadata["expires_at"].ends_with('Z') && metadata["possible_meanwhile"].contains("read"));
        assert!(status.message().contains(&asked.approval_id), "{}", status.message());
    }
    made += refused.len();
    let waited = refused[4].get_details_error_info().unwrap().metadata["waited_ms"].clone();
    assert!(waited.parse::<u64>().unwrap() >= 1_000, "{waited}");
    let told = run.call_with(refusing(dialect.clone().into())).await.unwrap();
    assert_eq!(told.status(), Status::Denied);
    for part in [&*asked.approval_id, "do not repeat this call", "Files can be read"] {
        assert!(told.rendered.contains(part), "{part} is not in {}", told.rendered);
    }
    // The client's deadline counts as well.
    let mut late =
        tonic::Request::new(CallRequest { run_id: run.id().to_owned(), ..request(calls::exec(&["true"])) });
    late.set_timeout(Duration::from_secs(3));
    run.clients.tools.call(late).await.unwrap_err();
    made += 2;
    let id = run.id().to_owned();
    let late = |events: &[v1::AuditEvent]| {
        events.iter().filter(|event| reason_of(event) == "AWAITING_APPROVAL").count() == 7
    };
    let receipts = run.clients.events_when(&id, "call_receipt", late).await;
    assert!(late(&receipts), "the call of the client that gave up is not refused");

    // The rest waits, in the order of arrival, and is whole in the end.
    let mut waiting = Vec::new();
    for operation in [
        calls::exec(&["sh", "-c", "echo exec >> log"]).into(),
        calls::shell("echo shell >> log").into(),
        calls::write("b.txt", "b\n").into(),
        calls::create("c.txt", "c\n").into(),
        calls::patch("*** Begin Patch\n*** Update File: a.txt\n-one\n+two\n*** End Patch\n").into(),
        calls::delete("d.txt").into(),
        Request::from(dialect),
    ] {
        waiting.push((begin(&run, request(operation)), Status::Succeeded));
        made += 1;
        intents(&mut run, made).await;
    }
    let mut uploading = run.clone();
    let upload = tokio::spawn(async move { uploading.upload("u.txt", b"u\n").await });
    made += 1;
    intents(&mut run, made).await;
    assert!(!["b.txt", "c.txt", "log", "u.txt"].iter().any(|name| workspace.join(name).exists()));
    for (call, _) in &mut waiting {
        assert!(!call.is_finished(), "a call did not wait: {:?}", call.await);
    }

    run.clients.approve(&asked.approval_id).await.unwrap();
    let mut ids = Vec::new();
    for (call, expected) in waiting {
        let answer = call.await.unwrap().unwrap();
        assert_eq!(answer.status(), expected, "{:?}", answer.error);
        assert!(answer.timings.unwrap().queue_us > 0);
        ids.push(answer.call_id);
    }
    assert_eq!(upload.await.unwrap().bytes_written, 2);
    assert_eq!(std::fs::read_to_string(workspace.join("a.txt")).unwrap(), "two\n");
    assert_eq!(std::fs::read_to_string(workspace.join("b.txt")).unwrap(), "b\n");
    assert!(!workspace.join("d.txt").exists());
    assert_eq!(run.all_of(&process).await.text(), "said\n");
    assert_eq!(run.outcome(&asked.call_id).await.status(), Status::Succeeded);

    // Each call has one intent and one receipt, with the time that it waited.
    for id in ids {
        has_waited(&mut run, &id).await;
    }
    assert!(run.clients.verify().await.intact);
}

async fn has_waited(run: &mut RunHandle, call_id: &str) {
    let records = run.clients.of_call(call_id).await;
    let kinds: Vec<&str> = records.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["call_intent", "call_receipt"]);
    let waited = record(&records[1])["details"]["waited_for_approval_us"].as_u64();
    assert!(waited.is_some_and(|waited| waited > 0), "{:?}", record(&records[1]));
}

async fn pending(run: &RunHandle) -> Vec<v1::Approval> {
    let request =
        v1::ListApprovalsRequest { run_id: run.id().to_owned(), state: v1::approval::State::Pending.into() };
    run.clients.clone().approvals.list_approvals(request).await.unwrap().into_inner().approvals
}

fn reason_of(event: &v1::AuditEvent) -> String {
    record(event)["outcome"]["reason"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_call_ends_with_its_client_its_run_and_within_its_bounds() {
    let concurrency = "concurrency: { run: 8, principal: 64, waiting: 2, wait_s: 30 }";
    let daemon = Daemon::start_with(setup(concurrency)).await;
    let workspace = daemon.workspace("w", &[("job.sh", "sleep 2\n")]);
    let mut run = daemon.run("p", &workspace).await;
    let asked = run.asks(calls::exec(&["sh", "job.sh"])).await;
    let touch = |name: &str| request(calls::exec(&["touch", name]));
    let first = begin(&run, CallRequest { request_id: "first".to_owned(), ..touch("first") });
    intents(&mut run, 2).await;
    let leaving = begin(&run, CallRequest { cancel_on_disconnect: true, ..touch("leaving") });
    let of_leaving = intents(&mut run, 3).await[2].call_id.clone();

    let full = run.call_with(touch("full")).await.unwrap_err();
    assert_eq!(reason(&full), "OVERLOADED", "{full}");
    assert!(full.get_details_retry_info().unwrap().retry_delay.is_some());
    assert_eq!(full.get_details_error_info().unwrap().metadata["approval_id"], asked.approval_id);

    // A client that disconnects cancels its call if it said so, and frees a slot.
    leaving.abort();
    assert_eq!(run.outcome(&of_leaving).await.error.unwrap().reason, "CANCELLED");
    let cancelled = begin(&run, touch("cancelled"));
    let of_cancelled = intents(&mut run, 5).await[4].call_id.clone();
    let cancel = v1::CancelCallRequest { call_id: of_cancelled };
    run.clients.tools.cancel_call(cancel).await.unwrap();
    assert_eq!(reason(&cancelled.await.unwrap().unwrap_err()), "CANCELLED");

    // A repeated request finds the call that waits. An approved call that is executed is waited for, too.
    let again = begin(&run, CallRequest { request_id: "first".to_owned(), ..touch("first") });
    run.clients.approve(&asked.approval_id).await.unwrap();
    let (first, again) = (first.await.unwrap().unwrap(), again.await.unwrap().unwrap());
    assert_eq!((first.status(), &first.call_id), (Status::Succeeded, &again.call_id));
    assert_eq!(run.outcome(&asked.call_id).await.status(), Status::Succeeded);

    // A call that needs a reviewer itself asks at once, so that no call waits for a waiting call.
    let [one, other] = [(), ()].map(|()| run.waits(calls::exec(&["sh", "job.sh"])));
    harness::until("two calls do not ask at once", async || pending(&run).await.len() == 2).await;
    for approval in pending(&run).await.iter().rev() {
        run.clients.approve(&approval.approval_id).await.unwrap();
    }
    for call in [one, other] {
        assert_eq!(call.await.unwrap().unwrap().status(), Status::Succeeded);
    }

    run.asks(calls::exec(&["sh", "job.sh"])).await;
    let waiting = begin(&run, touch("stopped"));
    intents(&mut run, 9).await;
    run.stop().await;
    assert_eq!(reason(&waiting.await.unwrap().unwrap_err()), "CANCELLED");
    assert!(!["leaving", "full", "cancelled", "stopped"].iter().any(|name| workspace.join(name).exists()));
    assert!(workspace.join("first").exists());
}
