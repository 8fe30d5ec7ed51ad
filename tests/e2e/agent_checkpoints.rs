//! Checkpoints that agents make and restore, and those that the daemon makes by itself.

use std::process::Stdio;
use std::time::Duration;

use harness::forks::fill;
use harness::process::script;
use harness::v1::automatic_checkpoints::Every;
use harness::v1::call_response::Status;
use harness::v1::checkpoint_request::Action;
use harness::v1::decide_approval_request::Decision;
use harness::v1::operation::Kind as Operation;
use harness::v1::result::Kind as Answer;
use harness::{Clients, Daemon, RunHandle, Setup, binary, calls, reason, requests, until, v1};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// Time for a call that would otherwise wait for itself.
const PATIENCE: Duration = Duration::from_secs(60);

fn profile(name: &str, more: &str) -> String {
    format!(
        "  {name}:
    workspace: read-write
    operations: {{ read: allow, write: allow, exec: allow, process: allow{more} }}
    exec: {{ deny_list: 'off', default: allow }}
    rate_limits:
      operations: {{ default: {{ minute: unlimited, hour: unlimited, day: unlimited }} }}
      run: {{ minute: unlimited, hour: unlimited, day: unlimited }}
      principal: {{ minute: unlimited, hour: unlimited, day: unlimited }}
"
    )
}

/// Starts a daemon with the profiles `without`, `with` and `careful`, of which the last asks before a restore.
async fn start() -> Daemon {
    let kept = ", checkpoint.create: allow, checkpoint.list: allow";
    let policy = format!(
        "profiles:\n{}{}{}roles: {{ director: {{ allow: '*' }} }}\n",
        profile("without", ""),
        profile("with", &format!("{kept}, checkpoint.restore: allow")),
        profile("careful", &format!("{kept}, checkpoint.restore: ask")),
    );
    let config = "harness_on_bind: allow\n".to_owned();
    Daemon::start_with(Setup { policy: vec![("p.yaml", policy)], config, ..Default::default() }).await
}

fn checkpoint(action: Action) -> Operation {
    Operation::Checkpoint(v1::CheckpointRequest { action: Some(action) })
}

fn create(label: &str) -> Operation {
    checkpoint(Action::Create(v1::CheckpointCreate { label: label.to_owned() }))
}

fn restore(id: &str) -> Operation {
    checkpoint(Action::Restore(v1::CheckpointRestore { checkpoint_id: id.to_owned() }))
}

/// Makes a checkpoint as the agent does, and returns its id.
async fn make(run: &mut RunHandle) -> String {
    let Answer::Checkpoint(result) = run.ok(create("mine")).await else { panic!("no checkpoint") };
    result.made.unwrap().checkpoint_id
}

async fn seen(run: &mut RunHandle) -> Vec<v1::AgentCheckpoint> {
    let asked = checkpoint(Action::List(v1::CheckpointList {}));
    let Answer::Checkpoint(result) = run.ok(asked).await else { panic!("no list") };
    result.checkpoints
}

/// Returns the reason for which a call does nothing.
async fn refused(run: &mut RunHandle, operation: Operation) -> String {
    match run.call(operation).await {
        Ok(answer) => answer.error.expect("the call succeeded").reason,
        Err(status) => reason(&status),
    }
}

/// Says something in the dialect `code`.
async fn say(run: &mut RunHandle, arguments: &Value) -> v1::CallResponse {
    let (dialect, name) = ("code".to_owned(), "checkpoint".to_owned());
    let call = v1::DialectCall { dialect, name, arguments_json: arguments.to_string() };
    tokio::time::timeout(PATIENCE, run.call(call)).await.expect("the call waits for itself").unwrap()
}

/// Returns all checkpoints of the run, newest first, as the owner sees them.
async fn all(clients: &mut Clients, run: &str) -> Vec<v1::RunCheckpoint> {
    let request = v1::ListCheckpointsRequest { run_id: run.to_owned(), ..Default::default() };
    clients.checkpoints.list_checkpoints(request).await.unwrap().into_inner().checkpoints
}

fn labels(checkpoints: &[v1::RunCheckpoint], automatic: bool) -> Vec<&str> {
    let of_kind = checkpoints.iter().filter(|found| found.automatic == automatic);
    of_kind.map(|found| found.label.as_str()).collect()
}

fn every(every: Every, keep: u32, request: v1::CreateRunRequest) -> v1::CreateRunRequest {
    let checkpoints = Some(v1::AutomaticCheckpoints { every: every.into(), keep });
    v1::CreateRunRequest { checkpoints, ..request }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_may_do_nothing_with_checkpoints_unless_its_profile_says_so() {
    let daemon = start().await;
    let mut run = daemon.run_on(requests::managed("without")).await;
    let id = "0190b0c0-0000-7000-8000-000000000001";
    for operation in [create(""), checkpoint(Action::List(v1::CheckpointList {})), restore(id)] {
        assert_eq!(refused(&mut run, operation).await, "PERMISSION_DENIED");
    }
    let mut clients = daemon.connect().await;
    let (owner, run_id) = (run.id().to_owned(), run.id().to_owned());
    assert!(all(&mut clients, &owner).await.is_empty());
    let format = v1::list_tools_request::Format::Mcp.into();
    let request = v1::ListToolsRequest { run_id, dialect: "code".to_owned(), format };
    let listed = run.clients.tools.list_tools(request).await.unwrap().into_inner().tools_json;
    assert!(listed.contains("\"read\"") && !listed.contains("\"checkpoint\""), "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_restores_its_own_run_and_ends_what_runs_beside_its_call() {
    let daemon = start().await;
    let mut run = daemon.run_on(requests::managed("with")).await;
    run.ok(calls::write("a.txt", "one\n")).await;
    let made = say(&mut run, &json!({"action": "create", "label": "before the change"})).await;
    assert_eq!(made.status(), Status::Succeeded, "{made:?}");
    let own = seen(&mut run).await;
    assert_eq!((own.len(), own[0].label.as_str()), (1, "before the change"));
    assert!(made.rendered.contains(&own[0].checkpoint_id), "{}", made.rendered);

    run.ok(calls::write("a.txt", "two\n")).await;
    let process = run.start(script("sleep 1000")).await;
    let beside = run.waits(calls::exec(&["sh", "-c", "echo >begun; sleep 1000"]));
    let begun = async {
        while run.exec(&["ls"]).await.stdout != "a.txt\nbegun\n" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, begun).await.expect("the command has not begun");
    let arguments = json!({"action": "restore", "checkpoint_id": own[0].checkpoint_id});
    let done = say(&mut run, &arguments).await;
    assert_eq!(done.status(), Status::Succeeded, "{done:?}");
    assert!(done.rendered.contains("Restored checkpoint"), "{}", done.rendered);
    let ended = tokio::time::timeout(PATIENCE, beside).await.expect("the command goes on").unwrap();
    if let Ok(answer) = ended {
        // The signal ended the command and not the call.
        let Some(Answer::Exec(result)) = answer.kind() else { panic!("{answer:?}") };
        assert_ne!(result.exit_code, Some(0), "{answer:?}");
    }
    run.waited(&process.process_id).await;
    assert_eq!(run.exec(&["sh", "-c", "ls; cat a.txt"]).await.stdout, "a.txt\none\n");

    // The state before is kept, so that the restore can be undone.
    let before = seen(&mut run).await.remove(0);
    assert_eq!(before.label, "before restore");
    run.ok(restore(&before.checkpoint_id)).await;
    assert_eq!(run.exec(&["cat", "a.txt"]).await.stdout, "two\n");
    assert!(run.show().await.holds.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_sees_and_restores_checkpoints_of_its_own_run_alone() {
    let daemon = start().await;
    let mut run = daemon.run_on(requests::managed("with")).await;
    let mut other = daemon.run_on(requests::managed("with")).await;
    run.ok(calls::write("a.txt", "one\n")).await;
    let (made, foreign) = (make(&mut run).await, make(&mut other).await);
    let own: Vec<_> = seen(&mut run).await.into_iter().map(|found| found.checkpoint_id).collect();
    assert_eq!(own, [made]);
    assert_eq!(refused(&mut run, restore(&foreign)).await, "NOT_FOUND");
    let shown = say(&mut run, &json!({"action": "list"})).await.rendered;
    assert!(shown.contains(&own[0]) && !shown.contains(&foreign), "{shown}");
    let place = daemon.state_dir().display().to_string();
    assert!(!shown.contains("uid:") && !shown.contains(&place), "{shown}");
    assert_eq!(run.exec(&["cat", "a.txt"]).await.stdout, "one\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_that_asks_is_made_after_the_approval_alone() {
    let daemon = start().await;
    let mut run = daemon.run_on(requests::managed("careful")).await;
    run.ok(calls::write("a.txt", "one\n")).await;
    let made = make(&mut run).await;
    run.ok(calls::write("a.txt", "two\n")).await;

    let waiting = run.waits(restore(&made));
    let id = run.id().to_owned();
    let approval = run.clients.pending_approval(&id).await;
    run.clients.decide(&approval.approval_id, Decision::Deny).await.unwrap();
    let denied = waiting.await.unwrap();
    assert!(denied.is_err() || denied.is_ok_and(|answer| answer.status() != Status::Succeeded));
    assert_eq!(run.exec(&["cat", "a.txt"]).await.stdout, "two\n");

    let consented = tokio::time::timeout(PATIENCE, run.consented(restore(&made)));
    let (_, done) = consented.await.expect("the restore waits for itself");
    assert_eq!(done.status(), Status::Succeeded, "{done:?}");
    assert_eq!(run.exec(&["cat", "a.txt"]).await.stdout, "one\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn before_each_task_a_checkpoint_is_made_and_the_newest_three_are_kept() {
    let daemon = start().await;
    let mut run = daemon.run_on(every(Every::Turn, 3, requests::managed("without"))).await;
    assert_eq!(run.show().await.checkpoints.unwrap().keep, 3);
    for task in 1..=4 {
        for _ in 0..2 {
            let request = v1::CallRequest {
                task_id: format!("t{task}"),
                request: Some(calls::write("a.txt", &format!("{task}\n")).into()),
                ..Default::default()
            };
            assert_eq!(run.call_with(request).await.unwrap().status(), Status::Succeeded);
        }
    }
    let mut clients = daemon.connect().await;
    let kept = all(&mut clients, run.id()).await;
    assert_eq!(labels(&kept, true), ["auto: before t4", "auto: before t3", "auto: before t2"]);
    // The oldest of them has the files from before its task.
    let request =
        v1::RestoreRunRequest { run_id: run.id().to_owned(), checkpoint_id: kept[2].checkpoint_id.clone() };
    clients.checkpoints.restore_run(request).await.unwrap();
    assert_eq!(run.exec(&["cat", "a.txt"]).await.stdout, "1\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_each_write_a_checkpoint_is_made_and_those_of_the_owner_stay() {
    let daemon = start().await;
    let mut run = daemon.run_on(every(Every::Write, 3, requests::managed("with"))).await;
    let mut clients = daemon.connect().await;
    for label in ["first", "second"] {
        let request = v1::CheckpointRunRequest { run_id: run.id().to_owned(), label: label.to_owned() };
        clients.checkpoints.checkpoint_run(request).await.unwrap();
    }
    let mut written = Vec::new();
    for number in 0..5 {
        let answer = run.call(calls::write("a.txt", &format!("{number}\n"))).await.unwrap();
        written.push(format!("auto: after call {}", answer.call_id));
        run.ok(calls::read("a.txt")).await;
    }
    let newest: Vec<&str> = written.iter().rev().take(3).map(String::as_str).collect();
    let kept = all(&mut clients, run.id()).await;
    assert_eq!(labels(&kept, true), newest);
    assert_eq!(labels(&kept, false), ["second", "first"]);

    // Those that the agent asks for count among the three.
    for _ in 0..4 {
        make(&mut run).await;
    }
    let kept = all(&mut clients, run.id()).await;
    assert_eq!(labels(&kept, true), ["mine"; 3]);
    assert_eq!(labels(&kept, false), ["second", "first"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_on_a_directory_in_place_has_no_automatic_checkpoints() {
    let daemon = start().await;
    let workspace = daemon.workspace("w", &[]);
    let asked = every(Every::Write, 0, requests::bind("with", &workspace));
    let Err(refused) = daemon.run_with(asked).await else { panic!("the run was made") };
    assert!(
        reason(&refused) == "INVALID_ARGUMENT" && refused.message().contains("workspace.bind"),
        "{refused}"
    );
    assert!(daemon.containers().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_makes_checkpoints_in_a_loop_keeps_nobody_from_theirs() {
    const CALLS: usize = 20;
    let daemon = start().await;
    let mut run = daemon.run_on(requests::managed("with")).await;
    fill(&mut run, "one").await;
    let making: Vec<_> = (0..CALLS).map(|_| run.waits(create("again"))).collect();
    let mut clients = daemon.connect().await;
    let id = run.id().to_owned();
    until("the agent makes no checkpoint", async || !all(&mut clients, &id).await.is_empty()).await;
    let request = v1::CheckpointRunRequest { run_id: id, label: "of the owner".to_owned() };
    clients.checkpoints.checkpoint_run(request).await.unwrap();
    let waiting = making.iter().filter(|call| !call.is_finished()).count();
    assert!(waiting > CALLS / 4, "the owner waited for all but {waiting} calls of the agent");
    for call in making {
        let answer = call.await.unwrap().unwrap();
        assert_eq!(answer.status(), Status::Succeeded, "{answer:?}");
    }
    let kept = all(&mut clients, run.id()).await;
    assert_eq!(labels(&kept, false), ["of the owner"]);
    assert_eq!(labels(&kept, true), ["again"; 10]);
}

/// `coffer mcp` of one run.
struct Server {
    _program: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    next: u64,
}

impl Server {
    async fn start(daemon: &Daemon, profile: &str) -> (Self, RunHandle) {
        let request = v1::CreateRunRequest { issue_token: true, ..requests::managed(profile) };
        let mut clients = daemon.connect().await;
        let created = clients.runs.create_run(request).await.unwrap().into_inner();
        let run = RunHandle { run: Box::new(created.run.unwrap()), clients };
        let mut command = Command::new(binary("coffer"));
        command.args(["mcp", "--run", run.id()]).kill_on_drop(true);
        command.env("COFFERDAM_ENDPOINT", format!("unix:{}", daemon.socket().display()));
        command.env("COFFERDAM_TOKEN", created.token);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = command.spawn().unwrap();
        let (input, output) = (program.stdin.take().unwrap(), program.stdout.take().unwrap());
        let mut server = Self { _program: program, input, output: BufReader::new(output).lines(), next: 0 };
        let client = json!({"name": "t", "version": "1"});
        let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client});
        server.ask("initialize", hello).await;
        server.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        (server, run)
    }

    async fn send(&mut self, message: &Value) {
        self.input.write_all(format!("{message}\n").as_bytes()).await.unwrap();
        self.input.flush().await.unwrap();
    }

    /// Makes a request, and returns its result.
    async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = self.next;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        let answer = async {
            loop {
                let line = self.output.next_line().await.unwrap().expect("the server has ended");
                let message: Value = serde_json::from_str(&line).unwrap();
                if message["id"] == id {
                    return message["result"].clone();
                }
            }
        };
        tokio::time::timeout(PATIENCE, answer).await.expect("no answer")
    }

    /// Calls the tool `checkpoint`, and returns its text.
    async fn checkpoint(&mut self, arguments: Value) -> String {
        let result = self.ask("tools/call", json!({"name": "checkpoint", "arguments": arguments})).await;
        result["content"].to_string()
    }

    async fn has_tool(&mut self) -> bool {
        let listed = self.ask("tools/list", json!({})).await;
        listed["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "checkpoint")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tool_is_offered_over_mcp_to_those_who_may_use_it() {
    let daemon = start().await;
    let (mut server, mut run) = Server::start(&daemon, "without").await;
    assert!(!server.has_tool().await);
    server.checkpoint(json!({"action": "create"})).await;
    assert!(all(&mut run.clients, &run.run.run_id).await.is_empty());

    let (mut server, mut run) = Server::start(&daemon, "with").await;
    assert!(server.has_tool().await);
    run.ok(calls::write("a.txt", "one\n")).await;
    let made = server.checkpoint(json!({"action": "create", "label": "over mcp"})).await;
    assert!(made.contains("Made checkpoint"), "{made}");
    run.ok(calls::write("a.txt", "two\n")).await;
    let own = all(&mut run.clients, &run.run.run_id).await;
    assert_eq!((own.len(), own[0].automatic), (1, true));
    let restore = json!({"action": "restore", "checkpoint_id": own[0].checkpoint_id});
    let done = server.checkpoint(restore.clone()).await;
    assert!(done.contains("Restored checkpoint") && !done.contains("uid:"), "{done}");
    assert_eq!(run.exec(&["cat", "a.txt"]).await.stdout, "one\n");

    let (mut server, mut run) = Server::start(&daemon, "careful").await;
    let made = make(&mut run).await;
    let asked = server.checkpoint(json!({"action": "restore", "checkpoint_id": made})).await;
    assert!(asked.contains("PENDING_APPROVAL"), "{asked}");
    // The checkpoint of another run is not there.
    let foreign = server.checkpoint(restore).await;
    assert!(!foreign.contains("Restored"), "{foreign}");
}
