//! Calls that cannot be made: each a clear error with a stable reason, on record, and without any effect.

use harness::v1::call_request::Request;
use harness::v1::call_response::Status;
use harness::v1::operation::Kind as Operation;
use harness::v1::result::Kind as Answer;
use harness::{Daemon, RunHandle, calls, reason, record, requests, v1};
use serde_json::json;
use tonic::Code;

async fn refused(run: &mut RunHandle, operation: Operation) -> (String, String) {
    match run.call(operation.clone()).await {
        Err(status) => (reason(&status), status.message().to_owned()),
        Ok(response) => panic!("{operation:?} was not refused: {response:?}"),
    }
}

fn exec_with(change: impl FnOnce(&mut v1::ExecRequest)) -> Operation {
    let mut exec = v1::ExecRequest { command: "wc".to_owned(), ..Default::default() };
    change(&mut exec);
    Operation::Exec(exec)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_call_is_refused_with_a_reason_and_recorded() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run("open", &workspace).await;
    let invalid = "INVALID_ARGUMENT";
    let diff = |flag: &str| calls::git_diff(&[flag]);
    let cases: Vec<(Operation, &str)> = vec![
        (calls::exec(&[""]), invalid),
        (calls::exec(&["wc", "a\0b"]), invalid),
        (exec_with(|exec| exec.cwd = "../..".to_owned()), "SANDBOX_VIOLATION"),
        (exec_with(|exec| exec.env = [("A=B".to_owned(), "x".to_owned())].into()), invalid),
        (exec_with(|exec| exec.timeout_ms = Some(0)), invalid),
        (exec_with(|exec| exec.timeout_ms = Some(10_000_000)), invalid),
        (calls::exec(&["sudo", "id"]), "COMMAND_NOT_ALLOWED"),
        (calls::exec(&["/bin/RM", "a.txt"]), "COMMAND_NOT_ALLOWED"),
        (calls::exec(&["sh", "-c", "rm a.txt"]), "COMMAND_NOT_ALLOWED"),
        (calls::replace("a.txt", "one", "one"), invalid),
        (calls::replace("a.txt", "", "one"), invalid),
        (Operation::Edit(v1::EditRequest { path: "a.txt".to_owned(), ..Default::default() }), invalid),
        (Operation::Git(v1::GitRequest { command: None }), invalid),
        (calls::git_commit("  \n"), invalid),
        (calls::git_add(&[]), invalid),
        (diff("--output=/tmp/x"), invalid),
        (diff("--ext-diff"), invalid),
        (Operation::List(v1::ListRequest { depth: Some(17), ..Default::default() }), invalid),
    ];
    for (operation, expected) in cases {
        let (reason, message) = refused(&mut run, operation.clone()).await;
        assert_eq!(reason, expected, "{operation:?}: {message}");
        assert!(!message.contains("/var/tmp"), "a host's path reached the agent: {message}");
    }
    let pattern = v1::GrepRequest { pattern: "(".to_owned(), regex: true, ..Default::default() };
    let failure = run.fails(Operation::Grep(pattern)).await;
    assert!(failure.reason == invalid && failure.message.contains("unclosed group"), "{}", failure.message);
    let none = run.call_with(v1::CallRequest::default()).await.unwrap_err();
    assert_eq!(reason(&none), invalid);
    let named = v1::CallRequest {
        task_id: "t\n".to_owned(),
        request: Some(calls::read("a.txt").into()),
        ..Default::default()
    };
    assert_eq!(reason(&run.call_with(named).await.unwrap_err()), invalid);
    let someone_else = v1::CallRequest {
        agent_id: "someone-else".to_owned(),
        request: Some(calls::read("a.txt").into()),
        ..Default::default()
    };
    assert_eq!(reason(&run.call_with(someone_else).await.unwrap_err()), "PERMISSION_DENIED");

    assert_eq!(std::fs::read_dir(&workspace).unwrap().count(), 1, "nothing was made");
    assert_eq!(std::fs::read_to_string(workspace.join("a.txt")).unwrap(), "one\n");
    let id = run.id().to_owned();
    let (intents, receipts) =
        (run.clients.events(&id, "call_intent").await, run.clients.events(&id, "call_receipt").await);
    assert_eq!((intents.len(), receipts.len()), (22, 22));
    let denied = receipts.iter().filter(|receipt| record(receipt)["outcome"]["status"] == "denied").count();
    assert_eq!(denied, 21, "all but the pattern");
}

/// Whoever looks for an agent that tries the doors finds it, with what it tried.
#[tokio::test(flavor = "multi_thread")]
async fn refusals_before_policy_are_recorded_with_agent_and_operation() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run("open", &daemon.workspace("w", &[])).await;
    let dialect = |dialect: &str, tool: &str, arguments: serde_json::Value| {
        let (dialect, name) = (dialect.to_owned(), tool.to_owned());
        Request::from(v1::DialectCall { dialect, name, arguments_json: arguments.to_string() })
    };
    let cases: Vec<(Request, _, _)> = vec![
        (calls::read("../x").into(), "read", json!({"path": "../x"})),
        (calls::write("/etc/x", "SECRET").into(), "write", json!({"path": "/etc/x"})),
        (calls::list("@nowhere").into(), "list", json!({"path": "@nowhere"})),
        (calls::git_add(&["../x"]).into(), "git.add", json!({"paths": ["../x"]})),
        (
            exec_with(|exec| exec.cwd = "../..".to_owned()).into(),
            "exec",
            json!({"command": "wc", "args": [], "cwd": "../.."}),
        ),
        (
            dialect("fs", "fs.write", json!({"path": "/etc/x", "content": "SECRET"})),
            "",
            json!({"path": "/etc/x"}),
        ),
        (dialect("fs", "no.such.tool", json!({"path": "a"})), "", json!({"path": "a"})),
        (
            dialect("nobody's", "read", json!({"command": ["rm", "-rf"]})),
            "",
            json!({"command": ["rm", "-rf"]}),
        ),
    ];
    let id = run.id().to_owned();
    for (number, (operation, name, input)) in cases.into_iter().enumerate() {
        match run.call(operation.clone()).await {
            Err(_) => {}
            Ok(response) => assert_eq!(response.status(), Status::Denied, "{operation:?}"),
        }
        let filter = v1::EventFilter {
            run_id: id.clone(),
            agent_id: "tester".to_owned(),
            kinds: vec!["call_intent".to_owned()],
            ..Default::default()
        };
        let query = v1::QueryEventsRequest { filter: Some(filter), ..Default::default() };
        let found = run.clients.indexed(&query).await.events;
        assert_eq!(found.len(), number + 1, "{operation:?}");
        let records: Vec<_> = found.iter().map(record).collect();
        let latest = records.iter().max_by_key(|record| record["sequence"].as_u64()).unwrap();
        assert_eq!(latest["operation"].as_str().unwrap_or_default(), name, "{latest}");
        assert_eq!(latest["input"], input, "{latest}");
        assert!(!latest.to_string().contains("SECRET"), "{latest}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_that_could_lead_out_is_refused_in_every_form() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n"), ("d/b.txt", "two\n")]);
    std::os::unix::fs::symlink("/etc/passwd", workspace.join("link")).unwrap();
    std::os::unix::fs::symlink("..", workspace.join("up")).unwrap();
    let mut run = daemon.run("open", &workspace).await;
    let (long, deep) = ("n".repeat(256), "d/".repeat(2_100));
    let paths = [
        "..",
        "../w/a.txt",
        "d/../../a.txt",
        "@project/../a.txt",
        "/workspace/../etc/passwd",
        "/etc/passwd",
        "/",
        "@nowhere/a.txt",
        "@pkg/a.txt",
        "/pkg/a.txt",
        "@",
        "C:\\a.txt",
        "a\0b",
        &long,
        &deep,
    ];
    for path in paths {
        for operation in [calls::read(path), calls::list(path), calls::write(path, "x")] {
            let (reason, message) = refused(&mut run, operation).await;
            assert_eq!(reason, "SANDBOX_VIOLATION", "{path:.40}: {message}");
        }
    }
    assert_eq!(refused(&mut run, calls::git_add(&["d/../../a.txt"])).await.0, "SANDBOX_VIOLATION");
    for path in ["link", "up/w/a.txt", "up"] {
        let failure = run.fails(calls::read(path)).await;
        assert_eq!(failure.reason, "SANDBOX_VIOLATION", "{path}: {}", failure.message);
    }
    for path in [".git/hooks/pre-commit", ".git/config", "node_modules/.bin/x"] {
        let response = run.call(calls::write(path, "x")).await;
        let failed =
            response.map_or_else(|status| reason(&status), |response| response.error.unwrap().reason);
        assert_eq!(failed, "SANDBOX_VIOLATION", "{path}");
    }
    for operation in [calls::read("none.txt"), calls::list("none"), calls::replace("none.txt", "a", "b")] {
        assert_eq!(run.fails(operation).await.reason, "NOT_FOUND");
    }
    let Answer::Read(read) = run.ok(calls::read("/workspace/.//a.txt")).await else { panic!("not a read") };
    assert_eq!((read.path.as_str(), read.content.as_str()), ("@project/a.txt", "one\n"));
    assert!(!workspace.join(".git").exists() && !workspace.join("node_modules").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_nothing_has_are_not_found() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("build")).await;
    let nobody = "0198a1b2-0000-7000-8000-000000000000";
    let read = |run_id: &str| v1::CallRequest {
        run_id: run_id.to_owned(),
        request: Some(calls::read("a").into()),
        ..Default::default()
    };
    let tools = &mut run.clients.tools;
    assert_eq!(reason(&tools.call(read(nobody)).await.unwrap_err()), "NOT_FOUND");
    assert_eq!(reason(&tools.call(read("")).await.unwrap_err()), "INVALID_ARGUMENT");
    for malformed in ["x", "../../etc", "0198a1b2", "0198A1B2-0000-7000-8000-000000000000"] {
        assert_eq!(reason(&tools.call(read(malformed)).await.unwrap_err()), "NOT_FOUND", "{malformed}");
    }
    let call = v1::GetCallRequest { call_id: nobody.to_owned(), ..Default::default() };
    assert_eq!(reason(&tools.get_call(call).await.unwrap_err()), "NOT_FOUND");
    let call = v1::CancelCallRequest { call_id: nobody.to_owned() };
    assert_eq!(reason(&tools.cancel_call(call).await.unwrap_err()), "NOT_FOUND");
    let runs = &mut run.clients.runs;
    let unknown = || nobody.to_owned();
    assert_eq!(
        reason(&runs.get_run(v1::GetRunRequest { run_id: unknown() }).await.unwrap_err()),
        "NOT_FOUND"
    );
    assert_eq!(
        reason(&runs.stop_run(v1::StopRunRequest { run_id: unknown() }).await.unwrap_err()),
        "NOT_FOUND"
    );
    assert_eq!(
        reason(
            &runs
                .delete_run(v1::DeleteRunRequest { run_id: unknown(), ..Default::default() })
                .await
                .unwrap_err()
        ),
        "NOT_FOUND"
    );
    let living = v1::DeleteRunRequest { run_id: run.run.run_id.clone(), ..Default::default() };
    assert_eq!(reason(&runs.delete_run(living).await.unwrap_err()), "PRECONDITION_FAILED");

    // A dialect's caller gets every outcome as an answer that a model can read.
    for (dialect, name, arguments, expected) in [
        ("klingon", "read_file", "{}", "NOT_FOUND"),
        ("native", "no_such_tool", "{}", "NOT_FOUND"),
        ("native", "read_file", "not json", "INVALID_ARGUMENT"),
        ("native", "read_file", "{\"path\":\"a\",\"pth\":1}", "INVALID_ARGUMENT"),
    ] {
        let call = v1::DialectCall {
            dialect: dialect.to_owned(),
            name: name.to_owned(),
            arguments_json: arguments.to_owned(),
        };
        let response = run.call(call).await.unwrap();
        assert_eq!(response.status(), Status::Denied);
        assert_eq!(response.error.unwrap().reason, expected, "{dialect} {name} {arguments}");
        assert!(!response.rendered.is_empty());
    }
    let list = v1::ListToolsRequest { run_id: run.id().to_owned(), dialect: "klingon".to_owned(), format: 0 };
    assert_eq!(reason(&run.clients.tools.list_tools(list).await.unwrap_err()), "NOT_FOUND");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_too_large_is_refused_and_the_next_one_accepted() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("open")).await;
    let status = run.call(calls::write("big.txt", &"x".repeat(5 << 20))).await.unwrap_err();
    assert_eq!(reason(&status), "INVALID_ARGUMENT");
    assert!(status.message().contains("4194304"), "{}", status.message());

    // Small enough to be read, more than the profile lets be written.
    let status = run.call(calls::write("big.txt", &"x".repeat(2_000_000))).await.unwrap_err();
    assert_eq!(reason(&status), "WRITE_LIMIT");
    let Answer::Write(written) = run.ok(calls::write("small.txt", "x")).await else { panic!("not a write") };
    assert_eq!(written.bytes_written, 1);
    let Answer::List(list) = run.ok(calls::list(".")).await else { panic!("not a list") };
    assert_eq!(list.entries.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn request_id_identifies_one_call() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("open")).await;
    let request = |id: &str, operation: Operation| v1::CallRequest {
        request_id: id.to_owned(),
        request: Some(operation.into()),
        ..Default::default()
    };
    // The second would fail if it were executed: the file exists.
    let create = request("r1", calls::create("a.txt", "one\n"));
    let first = run.call_with(create.clone()).await.unwrap();
    assert_eq!(first.status(), Status::Succeeded, "{:?}", first.error);
    let again = run.call_with(create).await.unwrap();
    assert_eq!(again, first);
    let other = run.call_with(request("r1", calls::create("b.txt", "two\n"))).await.unwrap_err();
    assert_eq!((other.code(), reason(&other).as_str()), (Code::AlreadyExists, "ALREADY_EXISTS"));
    assert_eq!(run.fails(calls::read("b.txt")).await.reason, "NOT_FOUND");

    // Both at once: one execution, one outcome.
    let (mut one, mut other) = (run.clone(), run.clone());
    let append = || request("r2", calls::exec(&["sh", "-c", "echo line >> log"]));
    let (one, other) = tokio::join!(one.call_with(append()), other.call_with(append()));
    assert_eq!(one.unwrap().call_id, other.unwrap().call_id);
    let Answer::Read(read) = run.ok(calls::read("log")).await else { panic!("not a read") };
    assert_eq!(read.content, "line\n");
    let long = run.call_with(request(&"x".repeat(129), calls::read("log"))).await.unwrap_err();
    assert_eq!(reason(&long), "INVALID_ARGUMENT");
    let id = run.id().to_owned();
    let receipts = run.clients.events(&id, "call_receipt").await;
    assert_eq!(receipts.iter().filter(|event| event.call_id == first.call_id).count(), 1);

    // What is refused stays refused, too.
    let denied = request("r3", calls::exec(&["rm", "a.txt"]));
    let first = run.call_with(denied.clone()).await.unwrap_err();
    let again = run.call_with(denied).await.unwrap_err();
    assert_eq!(
        (again.code(), again.message(), reason(&again)),
        (first.code(), first.message(), reason(&first))
    );
}

/// Of a run that has ended it is known whose it was.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_in_a_run_that_has_ended_is_on_record_with_its_agent() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run("open", &daemon.workspace("w", &[])).await;
    run.stop().await;
    assert_eq!(reason(&run.call(calls::read("a.txt")).await.unwrap_err()), "RUN_NOT_READY");
    let id = run.id().to_owned();
    for kind in ["call_intent", "call_receipt"] {
        let events = run.clients.events(&id, kind).await;
        let [event] = &events[..] else { panic!("{events:?}") };
        let event = record(event);
        assert_eq!((&event["agent_id"], &event["operation"]), (&json!("tester"), &json!("read")), "{event}");
    }
}
