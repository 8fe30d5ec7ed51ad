//! Ways around the policy, each tried on a real run.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use harness::v1::decide_approval_request::Decision;
use harness::v1::{self, CallRequest, call_response::Status as CallStatus, operation::Kind as Operation};
use harness::{Clients, Daemon, RunHandle, calls, reason, record, requests};
use tonic::{Request, Status};

const FILE: (&str, &str) = ("keep.txt", "one\n");

async fn open(daemon: &Daemon) -> (RunHandle, PathBuf) {
    let workspace = daemon.workspace("w", &[FILE]);
    (daemon.run("open", &workspace).await, workspace)
}

/// Under the most permissive profile, by a director: whatever is refused here is refused everywhere.
async fn all_refused(lines: &[&[&str]]) {
    let daemon = Daemon::start().await;
    let (mut run, workspace) = open(&daemon).await;
    for line in lines {
        let refused = run.call(calls::exec(line)).await.unwrap_err();
        assert_eq!(reason(&refused), "COMMAND_NOT_ALLOWED", "{line:?}: {}", refused.message());
    }
    assert!(workspace.join("keep.txt").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn find_does_not_run_denied_programs() {
    all_refused(&[
        &["find", ".", "-exec", "rm", "{}", ";"],
        &["find", ".", "-execdir", "rm", "{}", "+"],
        &["find", ".", "-ok", "/bin/rm", "{}", ";"],
        &["find", ".", "-exec", "sh", "-c", "rm keep.txt", ";"],
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrapped_commands_are_seen() {
    all_refused(&[
        &["env", "rm", "keep.txt"],
        &["env", "-S", "rm keep.txt"],
        &["nice", "-n", "5", "timeout", "9", "rm", "keep.txt"],
        &["xargs", "rm"],
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_known_in_any_case_and_at_any_path() {
    all_refused(&[
        &["RM", "keep.txt"],
        &["Rm", "keep.txt"],
        &["/bin/rm", "keep.txt"],
        &["/usr/bin/../bin/rm", "keep.txt"],
        &["/bin//rm", "keep.txt"],
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_multi_call_binary_is_seen_through() {
    all_refused(&[
        &["busybox", "rm", "keep.txt"],
        &["busybox", "env", "RM", "keep.txt"],
        &["toybox", "rm", "keep.txt"],
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shell_is_seen_through() {
    all_refused(&[
        &["sh", "-c", "rm keep.txt"],
        &["bash", "-ec", "true && \\rm keep.txt"],
        &["sh", "-c", "eval 'r''m keep.txt'"],
        &["sh", "-c", "$(echo rm) keep.txt; rm keep.txt"],
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_called_ls_that_leads_to_rm_does_not_run() {
    let daemon = Daemon::start().await;
    let (mut run, workspace) = open(&daemon).await;
    // The default image's one binary is what it is called by.
    symlink("/bin/busybox", workspace.join("rm")).unwrap();
    symlink("rm", workspace.join("ls")).unwrap();
    let response = run.call(calls::exec(&["/workspace/ls", "keep.txt"])).await;
    let (said, status) = match &response {
        Ok(response) => (response.error.clone().unwrap_or_default().reason, response.status()),
        Err(refused) => (reason(refused), CallStatus::Denied),
    };
    assert_eq!(said, "COMMAND_NOT_ALLOWED", "{response:?}");
    assert!([CallStatus::Failed, CallStatus::Denied].contains(&status));
    assert!(workspace.join("keep.txt").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn unseen_commands_ask_with_a_reason() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[FILE]);
    let mut run = daemon.run("build", &workspace).await;
    let fed = v1::ExecRequest {
        command: "make".into(),
        args: vec!["-f".into(), "-".into()],
        stdin: b"x:\n\trm -f keep.txt\n".to_vec(),
        ..Default::default()
    };
    for (operation, why) in [
        (Operation::Exec(fed), "cannot be judged in advance: `make` takes code with `-`"),
        (
            calls::exec(&["awk", "BEGIN{system(\"rm -f keep.txt\")}"]),
            "cannot be judged in advance: `awk` runs commands that it reads or makes from its arguments",
        ),
        (calls::shell("c=rm; $c keep.txt"), "cannot be judged in advance: a script with `c=rm` in it"),
        (
            calls::shell("ls; let 'x=a[$(rm -f keep.txt)]'"),
            "cannot be judged in advance: a script with `let` in it",
        ),
    ] {
        let asked = run.asks(operation).await;
        let id = run.id().to_owned();
        let approval = run.clients.pending_approval(&id).await;
        assert_eq!(
            (approval.call_id.as_str(), approval.justification.as_str()),
            (asked.call_id.as_str(), why)
        );
        run.clients.decide(&approval.approval_id, Decision::Deny).await.unwrap();
        run.outcome(&asked.call_id).await;
    }
    assert!(workspace.join("keep.txt").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_operation_by_another_dialects_name_is_the_same_operation() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[FILE]);
    let mut run = daemon
        .run_on(v1::CreateRunRequest { role: "manager".into(), ..requests::bind("review", &workspace) })
        .await;
    let canonical = run.call(calls::write("keep.txt", "two\n")).await.unwrap();
    assert_eq!(canonical.status(), CallStatus::PendingApproval);
    let by_name = |dialect: &str, name: &str, arguments: &str| v1::DialectCall {
        dialect: dialect.into(),
        name: name.into(),
        arguments_json: arguments.into(),
    };
    let foreign = by_name("fs", "fs.write", r#"{"path":"@project/keep.txt","content":"two\n"}"#);
    let foreign = run.call(foreign).await.unwrap();
    assert_eq!(foreign.status(), CallStatus::PendingApproval, "{foreign:?}");
    let rules =
        [rule(&mut run.clients, &canonical.call_id).await, rule(&mut run.clients, &foreign.call_id).await];
    assert_eq!(rules, ["profile review: operations.write"; 2]);
    assert_eq!(std::fs::read_to_string(workspace.join("keep.txt")).unwrap(), "one\n");
    // A name that no dialect has is no way to anything.
    let unknown = run.call(by_name("fs", "fs.rm", r#"{"path":"keep.txt"}"#)).await.unwrap();
    assert_eq!(unknown.status(), CallStatus::Denied);
}

/// The rule that a call was decided on by.
async fn rule(clients: &mut Clients, call_id: &str) -> String {
    let events = clients.of_call(call_id).await;
    record(&events[0])["decision"]["rule"].as_str().unwrap().to_owned()
}

fn bearing<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    request
}

fn permission_denied<T: std::fmt::Debug>(answer: Result<T, Status>) {
    assert_eq!(reason(&answer.unwrap_err()), "PERMISSION_DENIED");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runs_token_opens_that_runs_tools_and_nothing_else() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[FILE]);
    let mut clients = daemon.connect().await;
    let request = v1::CreateRunRequest { issue_token: true, ..requests::bind("review", &workspace) };
    let created = clients.runs.create_run(request).await.unwrap().into_inner();
    let (run, token) = (created.run.unwrap().run_id, created.token);
    assert!(token.len() > 80, "{token}");
    let mut other = daemon.run("open", &daemon.workspace("v", &[FILE])).await;
    let of_other = other.call(calls::read("keep.txt")).await.unwrap();

    let call = |run: &str, operation: Operation| CallRequest {
        run_id: run.to_owned(),
        request: Some(operation.into()),
        ..Default::default()
    };
    let read =
        clients.tools.call(bearing(&token, call(&run, calls::read("keep.txt")))).await.unwrap().into_inner();
    assert_eq!(read.status(), CallStatus::Succeeded);
    let get = |call_id: &str| v1::GetCallRequest { call_id: call_id.to_owned(), ..Default::default() };
    clients.tools.get_call(bearing(&token, get(&read.call_id))).await.unwrap();
    let list = v1::ListToolsRequest { run_id: run.clone(), ..Default::default() };
    clients.tools.list_tools(bearing(&token, list)).await.unwrap();

    // Another run is not there for it, nor are the calls in it.
    let refused = clients.tools.call(bearing(&token, call(other.id(), calls::read("keep.txt")))).await;
    assert_eq!(reason(&refused.unwrap_err()), "NOT_FOUND");
    let refused = clients.tools.get_call(bearing(&token, get(&of_other.call_id))).await;
    assert_eq!(reason(&refused.unwrap_err()), "NOT_FOUND");

    // It decides on nothing, not even on its own call, and grants nothing.
    let asked =
        clients.tools.call(bearing(&token, call(&run, calls::replace("keep.txt", "one", "two")))).await;
    let asked = asked.unwrap().into_inner();
    assert_eq!(asked.status(), CallStatus::PendingApproval);
    let decide = v1::DecideApprovalRequest {
        approval_id: asked.approval_id.clone(),
        decision: Decision::Approve.into(),
        ..Default::default()
    };
    permission_denied(clients.approvals.decide_approval(bearing(&token, decide)).await);
    permission_denied(
        clients.permissions.grant_permission(bearing(&token, v1::GrantPermissionRequest::default())).await,
    );
    permission_denied(clients.policy.get_policy(bearing(&token, v1::GetPolicyRequest {})).await);
    permission_denied(clients.runs.get_run(bearing(&token, v1::GetRunRequest { run_id: run.clone() })).await);
    permission_denied(clients.runs.list_runs(bearing(&token, v1::ListRunsRequest::default())).await);
    permission_denied(clients.audit.verify_log(bearing(&token, v1::VerifyLogRequest {})).await);
    // A token that is none is no way back to what the uid may do.
    let (all_but_one, end) = token.split_at(token.len() - 1);
    let forged = format!("{all_but_one}{}", if end == "A" { "E" } else { "A" });
    for bad in ["", "x", forged.as_str()] {
        permission_denied(clients.tools.call(bearing(bad, call(&run, calls::read("keep.txt")))).await);
    }
    assert_eq!(std::fs::read_to_string(workspace.join("keep.txt")).unwrap(), "one\n");

    // All of that is on record, and the token is nowhere.
    let tried = clients.events_when("", "escalation_attempt", |tried| tried.len() >= 10).await;
    let tried: Vec<_> = tried.iter().map(record).collect();
    let attempts = |name: &str| tried.iter().filter(|tried| tried["details"]["attempt"] == name).count();
    assert_eq!(attempts("method_with_run_token"), 6, "{tried:#?}");
    assert_eq!((attempts("other_run"), attempts("bad_token")), (1, 3), "{tried:#?}");
    let intent = record(&clients.of_call(&read.call_id).await[0]);
    assert_eq!(intent["details"]["via"], "run_token");
    let everything: String =
        clients.events("", "").await.iter().map(|event| event.record_json.clone()).collect();
    assert!(!everything.contains(&token));
    let secret = token.rsplit('_').next().unwrap();
    let store = std::fs::read(daemon.state_dir().join("store.db")).unwrap();
    assert!(!store.windows(secret.len()).any(|window| window == secret.as_bytes()));

    // It ends with its run.
    clients.runs.stop_run(v1::StopRunRequest { run_id: run.clone() }).await.unwrap();
    permission_denied(clients.tools.call(bearing(&token, call(&run, calls::read("keep.txt")))).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_cannot_name_another_agent() {
    let daemon = Daemon::start().await;
    let (mut run, _) = open(&daemon).await;
    let asked = |agent: &str| CallRequest {
        agent_id: agent.to_owned(),
        request: Some(calls::read("keep.txt").into()),
        ..Default::default()
    };
    assert_eq!(run.call_with(asked("tester")).await.unwrap().status(), CallStatus::Succeeded);
    permission_denied(run.call_with(asked("admin")).await);
    let id = run.id().to_owned();
    let tried = run.clients.events_when(&id, "escalation_attempt", |tried| !tried.is_empty()).await;
    assert_eq!(tried.len(), 1);
    let tried = record(&tried[0]);
    assert_eq!(
        (&tried["details"]["attempt"], &tried["details"]["target"]),
        (&"other_agent".into(), &"admin".into())
    );
}
