//! Calls that wait for a reviewer outlive their daemon: the clock runs on, and each is executed once or not at all.

use harness::files::sha256;
use harness::v1::approval::{Remember, State};
use harness::v1::call_response::Status;
use harness::v1::decide_approval_request::Decision;
use harness::{Daemon, RunHandle, Setup, as_user, calls, outlives, reason, record, requests, v1};

/// A policy in which commands ask, and can write.
pub(crate) fn asking(section: &str) -> Vec<(&'static str, String)> {
    let profile = format!(
        "profiles:\n  p:\n    workspace: read-write\n    operations: {{read: allow, write: ask, edit: ask, exec: allow, shell: ask, delete: ask, git.commit: ask}}\n    exec: {{default: ask}}\n    approvals: {section}\n    rate_limits:\n      operations: {{default: {{minute: unlimited, hour: unlimited, day: unlimited}}}}\n      run: {{minute: unlimited, hour: unlimited, day: unlimited}}\n      principal: {{minute: unlimited, hour: unlimited, day: unlimited}}\n"
    );
    let roles = "roles: {director: {allow: '*'}}\n".to_owned();
    vec![("profile.yaml", profile), ("roles.yaml", roles)]
}

async fn intents_and_receipts(run: &mut RunHandle, call_id: &str) -> (usize, Vec<String>) {
    let events = run.clients.of_call(call_id).await;
    let receipts = events.iter().filter(|event| event.kind == "call_receipt");
    let statuses =
        receipts.map(|event| record(event)["outcome"]["status"].as_str().unwrap().to_owned()).collect();
    (events.iter().filter(|event| event.kind == "call_intent").count(), statuses)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_call_continues_under_the_next_daemon_and_is_executed_once() {
    let mut daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run("review", &workspace).await;
    let request = v1::CallRequest {
        request_id: "once".to_owned(),
        request: Some(calls::replace("a.txt", "one", "two").into()),
        ..Default::default()
    };
    let asked = run.call_with(request.clone()).await.unwrap();
    let before = run.clients.approval(&asked.approval_id).await;
    let denied = run.asks(calls::write("b.txt", "x")).await;

    let mut run = outlives(&mut daemon, run).await;
    assert_eq!(run.get(&asked.call_id).await.status(), Status::PendingApproval);
    let again = run.call_with(request.clone()).await.unwrap();
    assert_eq!((again.call_id.as_str(), again.status()), (asked.call_id.as_str(), Status::PendingApproval));
    assert_eq!(run.clients.approval(&asked.approval_id).await, before, "its clock has run on");

    run.clients.approve(&asked.approval_id).await.unwrap();
    let done = run.outcome(&asked.call_id).await;
    assert_eq!(done.status(), Status::Succeeded, "{:?}", done.error);
    assert_eq!(std::fs::read_to_string(workspace.join("a.txt")).unwrap(), "two\n");
    assert_eq!(reason(&run.clients.approve(&asked.approval_id).await.unwrap_err()), "PRECONDITION_FAILED");
    run.clients.decide(&denied.approval_id, Decision::Deny).await.unwrap();
    assert_eq!(run.outcome(&denied.call_id).await.error.unwrap().reason, "APPROVAL_DENIED");

    // The next daemon executes nothing again, and finds what was.
    let settled =
        [run.clients.approval(&asked.approval_id).await, run.clients.approval(&denied.approval_id).await];
    let mut run = outlives(&mut daemon, run).await;
    let all = v1::ListApprovalsRequest { run_id: run.id().to_owned(), ..Default::default() };
    let listed = run.clients.approvals.list_approvals(all).await.unwrap().into_inner().approvals;
    assert_eq!(listed, settled, "settled approvals are listed as they were");
    assert_eq!(run.get(&asked.call_id).await.status(), Status::Succeeded);
    assert_eq!(run.call_with(request).await.unwrap().call_id, asked.call_id);
    assert_eq!(intents_and_receipts(&mut run, &asked.call_id).await, (1, vec!["succeeded".to_owned()]));
    assert_eq!(intents_and_receipts(&mut run, &denied.call_id).await, (1, vec!["denied".to_owned()]));
    assert!(run.clients.verify().await.intact);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_upload_is_asked_and_written_once_over_kills() {
    let mut daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    let run = daemon.run("review", &workspace).await;
    let content = vec![7_u8; 3_000_000];
    let begin = v1::BeginUpload {
        request_id: "once".to_owned(),
        upload_id: "0192a7c0-0000-7000-8000-000000000001".to_owned(),
        size_bytes: Some(content.len() as u64),
        sha256: sha256(&content),
        ..run.begin("f")
    };
    let mut run = run;
    let asked = run.upload_with(begin.clone(), &content).await.unwrap();
    assert!(!asked.approval_id.is_empty() && asked.result.is_none(), "{asked:?}");

    let mut run = outlives(&mut daemon, run).await;
    // Without the bytes, too: a client begins anew, under another name.
    let anew =
        v1::BeginUpload { upload_id: "0192a7c0-0000-7000-8000-000000000002".to_owned(), ..begin.clone() };
    for (begin, content) in [(&begin, &content[..]), (&anew, &content[..]), (&anew, &[])] {
        assert_eq!(run.upload_with(begin.clone(), content).await.unwrap(), asked);
    }
    // Neither size nor hash is known before the end.
    let unsaid = v1::BeginUpload { size_bytes: None, ..anew.clone() };
    assert_eq!(run.upload_with(unsaid, &content).await.unwrap(), asked);
    let other = b"other";
    for another in [
        v1::BeginUpload { path: "g".to_owned(), ..anew.clone() },
        v1::BeginUpload { create_only: true, ..anew.clone() },
        v1::BeginUpload { size_bytes: Some(5), sha256: sha256(other), ..anew.clone() },
    ] {
        let refused = run.upload_with(another, other).await.unwrap_err();
        assert_eq!(reason(&refused), "ALREADY_EXISTS", "{refused}");
    }
    let all = v1::ListApprovalsRequest { run_id: run.id().to_owned(), ..Default::default() };
    let listed = run.clients.approvals.list_approvals(all).await.unwrap().into_inner().approvals;
    assert_eq!(listed.len(), 1, "{listed:?}");

    run.clients.approve(&asked.approval_id).await.unwrap();
    let waiting = v1::BeginUpload { wait_for_approval: true, ..anew.clone() };
    let written = run.upload_with(waiting, &[]).await.unwrap();
    let result = written.result.clone().unwrap();
    assert_eq!((&written.call_id, &result.sha256_after), (&asked.call_id, &sha256(&content)));
    assert_eq!(std::fs::read(workspace.join("f")).unwrap(), content);
    // What came of it is told again, and the file is not written again.
    std::fs::write(workspace.join("f"), "changed").unwrap();
    let mut run = outlives(&mut daemon, run).await;
    assert_eq!(run.upload_with(anew, &content).await.unwrap(), written);
    assert_eq!(std::fs::read_to_string(workspace.join("f")).unwrap(), "changed");
    assert_eq!(intents_and_receipts(&mut run, &asked.call_id).await, (1, vec!["succeeded".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_made_with_a_run_token_stays_one_under_the_next_daemon() {
    let mut daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut clients = daemon.connect().await;
    let request = v1::CreateRunRequest { issue_token: true, ..requests::bind("review", &workspace) };
    let v1::CreateRunResponse { run, token } = clients.runs.create_run(request).await.unwrap().into_inner();
    let mut run = RunHandle { run: Box::new(run.unwrap()), clients };
    let mut request = tonic::Request::new(v1::CallRequest {
        run_id: run.id().to_owned(),
        request: Some(calls::replace("a.txt", "one", "two").into()),
        ..Default::default()
    });
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    let asked = run.clients.tools.call(request).await.unwrap().into_inner();

    let mut run = outlives(&mut daemon, run).await;
    run.clients.approve(&asked.approval_id).await.unwrap();
    assert_eq!(run.outcome(&asked.call_id).await.status(), Status::Succeeded);
    let events = run.clients.of_call(&asked.call_id).await;
    let via = |kind: &str| {
        let event = events.iter().find(|event| event.kind == kind).unwrap();
        record(event)["details"]["via"].as_str().map(str::to_owned)
    };
    assert_eq!(
        [via("call_intent"), via("call_receipt")],
        [Some("run_token".to_owned()), Some("run_token".to_owned())]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_orderly_stop_that_leaves_the_runs_leaves_waiting_calls() {
    let config = "runs: { on_stop: leave }\n".to_owned();
    let mut daemon = Daemon::start_with(Setup { config, ..Default::default() }).await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run("review", &workspace).await;
    let waiting = run.waits(calls::replace("a.txt", "one", "two"));
    let id = run.id().to_owned();
    let approval = run.clients.pending_approval(&id).await;
    daemon.stop().await;
    if let Ok(told) = waiting.await.unwrap() {
        assert_eq!(told.status(), Status::PendingApproval, "{told:?}");
    }

    daemon.launch().await;
    let mut run = RunHandle { clients: daemon.connect().await, ..run };
    run.clients.approve(&approval.approval_id).await.unwrap();
    assert_eq!(run.outcome(&approval.call_id).await.status(), Status::Succeeded);
    assert_eq!(intents_and_receipts(&mut run, &approval.call_id).await, (1, vec!["succeeded".to_owned()]));
}

/// What was bound under one daemon is bound under the next, whatever happened to the files meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_bound_to_the_shown_state_under_the_next_daemon() {
    let mut daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n"), ("job.sh", "echo GOOD\n")]);
    let mut run = daemon.run("review", &workspace).await;
    let write = run.asks(calls::write("a.txt", "two\n")).await;
    let command = run.asks(calls::exec(&["sh", "--", "job.sh"])).await;
    let mut run = outlives(&mut daemon, run).await;
    for (name, content) in [("a.txt", "six\n"), ("job.sh", "echo EVIL\n")] {
        std::fs::write(workspace.join(name), content).unwrap();
    }
    for asked in [&write, &command] {
        run.clients.approve(&asked.approval_id).await.unwrap();
        let call = run.outcome(&asked.call_id).await;
        let failure = call.error.clone().unwrap();
        assert_eq!((call.status(), failure.reason.as_str()), (Status::Denied, "PRECONDITION_FAILED"));
        assert!(
            failure.message.contains("the content that the reviewer saw has changed"),
            "{}",
            failure.message
        );
    }
    assert_eq!(std::fs::read_to_string(workspace.join("a.txt")).unwrap(), "six\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_run_is_gone_is_cancelled_with_that_reason() {
    let mut daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run("review", &workspace).await;
    let asked = run.asks(calls::replace("a.txt", "one", "two")).await;
    daemon.kill().await;
    let removed = std::process::Command::new("docker").args(["rm", "-f", &run.run.container_id]).output();
    assert!(removed.unwrap().status.success());
    daemon.launch().await;
    let mut run = RunHandle { clients: daemon.connect().await, ..run };
    let call = run.outcome(&asked.call_id).await;
    let failure = call.error.clone().unwrap();
    assert_eq!((call.status(), failure.reason.as_str()), (Status::Denied, "CANCELLED"));
    assert!(failure.message.contains("did not survive"), "{}", failure.message);
    assert_eq!(run.clients.approval(&asked.approval_id).await.state(), State::Cancelled);
    assert_eq!(intents_and_receipts(&mut run, &asked.call_id).await, (1, vec!["denied".to_owned()]));
    assert_eq!(std::fs::read_to_string(workspace.join("a.txt")).unwrap(), "one\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn approvals_expire_without_a_daemon_and_remind_once() {
    let config = "approvals: { timeout: 6s, allow_self_approval: true }\n".to_owned();
    let mut daemon = Daemon::start_with(Setup { config, ..Default::default() }).await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run("review", &workspace).await;
    let asked = run.asks(calls::replace("a.txt", "one", "two")).await;
    // The reminder is an event; it is waited for on the stream of changes.
    let request = v1::WatchApprovalsRequest { run_id: run.id().to_owned() };
    let mut changes = run.clients.approvals.watch_approvals(request).await.unwrap().into_inner();
    while !changes.message().await.unwrap().unwrap().approval.unwrap().reminded {}
    drop(changes);
    let mut run = outlives(&mut daemon, run).await;
    let call = run.outcome(&asked.call_id).await;
    assert_eq!((call.status(), call.error.unwrap().reason.as_str()), (Status::Denied, "APPROVAL_EXPIRED"));
    let events = run.clients.of_call(&asked.call_id).await;
    let kinds: Vec<_> = events.iter().map(|event| event.kind.as_str()).collect();
    let expected =
        ["call_intent", "approval_requested", "approval_reminded", "approval_decided", "call_receipt"];
    assert_eq!(kinds, expected, "one reminder, and one end");
}

#[tokio::test(flavor = "multi_thread")]
async fn votes_and_remembered_consents_outlive_a_daemon() {
    let config = "access: [{ uid: 20001, roles: [director] }]\n".to_owned();
    let policy = asking("{quorum: 2, remember: [digest, prefix], freeze: false}");
    let mut daemon = Daemon::start_with(Setup { config, policy, ..Default::default() }).await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run("p", &workspace).await;
    let delete = v1::DeleteRequest { path: "a.txt".to_owned(), ..Default::default() };
    let asked = run.asks(v1::operation::Kind::Delete(delete)).await;
    let voted = run.clients.approve(&asked.approval_id).await.unwrap();
    assert_eq!((voted.state(), voted.votes.len(), voted.approvals_needed), (State::Pending, 1, 2));
    let wc = run.asks(calls::exec(&["wc", "-c", "a.txt"])).await;
    let remembered =
        run.clients.approve_and_remember(&wc.approval_id, Remember::Prefix, &["wc"]).await.unwrap();
    run.outcome(&wc.call_id).await;

    let mut run = outlives(&mut daemon, run).await;
    let kept = run.clients.approval(&asked.approval_id).await;
    assert_eq!((kept.state(), &kept.votes), (State::Pending, &voted.votes));
    let twice = run.clients.approve(&asked.approval_id).await.unwrap_err();
    assert_eq!(reason(&twice), "PRECONDITION_FAILED", "each approver has one vote, also after a restart");
    let called = run.call(calls::exec(&["wc", "-l", "a.txt"])).await.unwrap();
    assert_eq!(called.status(), Status::Succeeded, "{:?}", called.error);
    let intent = &record(&run.clients.of_call(&called.call_id).await[0])["decision"];
    assert!(intent["rule"].as_str().unwrap().contains(&remembered.consent_id), "{intent}");

    daemon.expose();
    let approval_id = asked.approval_id.clone();
    let decided =
        as_user(20_001, &daemon.socket(), async move |mut clients| clients.approve(&approval_id).await).await;
    assert_eq!(decided.unwrap().state(), State::Approved);
    assert_eq!(run.outcome(&asked.call_id).await.status(), Status::Succeeded);
    assert!(!workspace.join("a.txt").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_32_approvers_decides_and_a_killed_daemon_executes_at_most_once() {
    const APPROVERS: u32 = 32;
    let access: Vec<_> =
        (0..APPROVERS).map(|n| format!("{{ uid: {}, roles: [approver] }}", 21_000 + n)).collect();
    let config = format!("access: [{}]\n", access.join(", "));
    let policy = asking("{}");
    let mut daemon = Daemon::start_with(Setup { config, policy, ..Default::default() }).await;
    let workspace = daemon.workspace("w", &[("times", "")]);
    let mut run = daemon.run("p", &workspace).await;
    let mut executed = 0;
    for round in 0..6_u32 {
        let asked = run.asks(calls::exec(&["sh", "-c", &format!("echo {round} >> times")])).await;
        daemon.expose();
        let decide = |n: u32| {
            let (socket, approval_id) = (daemon.socket(), asked.approval_id.clone());
            tokio::spawn(async move {
                as_user(21_000 + n, &socket, async move |mut clients| clients.approve(&approval_id).await)
                    .await
            })
        };
        let all: Vec<_> = (0..APPROVERS).map(decide).collect();
        // The first round goes to its end; in the others the daemon dies a little later each time.
        let killed = round > 0;
        if killed {
            tokio::time::sleep(std::time::Duration::from_millis(u64::from(round) * 12)).await;
            daemon.kill().await;
        }
        let mut won = 0;
        for one in all {
            // Those that the daemon died under have no answer that counts.
            let Ok(decided) = one.await else { continue };
            match decided {
                Ok(_) => won += 1,
                Err(lost) if !killed => assert_eq!(reason(&lost), "PRECONDITION_FAILED"),
                Err(_) => {}
            }
        }
        assert!(won <= 1 && (killed || won == 1), "{won} approvers won in round {round}");
        if killed {
            daemon.launch().await;
            run.clients = daemon.connect().await;
            if run.clients.approvals_pending(&asked.approval_id).await {
                run.clients.approve(&asked.approval_id).await.unwrap();
            }
        }
        let call = run.outcome(&asked.call_id).await;
        let written = std::fs::read_to_string(workspace.join("times")).unwrap();
        let times = written.lines().filter(|line| *line == round.to_string()).count();
        match call.status() {
            Status::Succeeded => assert_eq!(times, 1, "round {round}: {written}"),
            _ if !killed => panic!("{call:?}"),
            // Spent when the daemon died: it is not known, and it is never done again.
            _ => assert!(times <= 1, "round {round}: {written}"),
        }
        executed += times;
        let (intents, receipts) = intents_and_receipts(&mut run, &asked.call_id).await;
        assert_eq!((intents, receipts.len()), (1, 1), "round {round}: {receipts:?}");
        let decided = run.clients.of_call(&asked.call_id).await;
        assert_eq!(decided.iter().filter(|event| event.kind == "approval_decided").count(), 1);
    }
    assert!(executed > 0);
    println!("{executed} of 6 calls executed, each once");
    assert!(run.clients.verify().await.intact);
}
