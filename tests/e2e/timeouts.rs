//! Tests commands without a timeout: they get the timeout of their run's profile.

use harness::v1::call_response::Status;
use harness::v1::exec_result::EndedBy;
use harness::v1::result::Kind as Answer;
use harness::{Daemon, Setup, calls, reason, v1};

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_is_given_no_time_has_that_of_its_profile() {
    let profile = "profiles:
  p:
    workspace: read-write
    unattended: true
    operations: { exec: allow, shell: allow }
    exec: { default: allow, default_timeout_s: 1, max_timeout_s: 30 }
    rate_limits: { operations: { default: { minute: 90, hour: 90, day: 90 } } }
roles: { director: { allow: \"*\" } }
";
    let policy = vec![("p.yaml", profile.to_owned())];
    let daemon = Daemon::start_with(Setup { policy, ..Default::default() }).await;
    let mut run = daemon.run("p", &daemon.workspace("w", &[])).await;

    for operation in [calls::exec(&["sleep", "30"]), calls::shell("sleep 30")] {
        let done = run.call(operation).await.unwrap();
        assert_eq!(
            (done.status(), done.error.as_ref().unwrap().reason.as_str()),
            (Status::Failed, "TIMED_OUT")
        );
        let rendered: serde_json::Value = serde_json::from_str(&done.rendered).unwrap();
        assert_eq!((&rendered["ok"], &rendered["error"]["code"]), (&false.into(), &"TIMED_OUT".into()));
        let (Some(Answer::Exec(result) | Answer::Shell(result)), id) = (done.kind().cloned(), done.call_id)
        else {
            panic!("no command")
        };
        assert!(result.timed_out && result.ended_by() == EndedBy::Timeout, "{result:?}");
        assert_eq!(rendered["timed_out"], true, "what there is of a result is there: {rendered}");
        let intent = harness::record(&run.clients.of_call(&id).await[0]);
        assert_eq!(intent["input"]["timeoutMs"], "1000", "the record says what held");
    }
    // A call may say otherwise, up to what the profile lets it.
    let exec = |timeout_ms| {
        let args = vec!["1.2".to_owned()];
        let command = "sleep".to_owned();
        v1::operation::Kind::Exec(v1::ExecRequest { command, args, timeout_ms, ..Default::default() })
    };
    assert_eq!(run.call(exec(Some(30_000))).await.unwrap().status(), Status::Succeeded);
    assert_eq!(reason(&run.call(exec(Some(30_001))).await.unwrap_err()), "INVALID_ARGUMENT");

    // In an agent's tongue, which says it in the tool's description as well.
    let dialect = |arguments: &str| {
        v1::call_request::Request::Dialect(v1::DialectCall {
            dialect: "exec".to_owned(),
            name: "exec".to_owned(),
            arguments_json: arguments.to_owned(),
        })
    };
    let told = run.call(dialect(r#"{"command": "sleep", "args": ["30"]}"#)).await.unwrap();
    assert!(told.rendered.contains("Command timed out after 1s"), "{}", told.rendered);
    let request = v1::ListToolsRequest {
        run_id: run.id().to_owned(),
        dialect: "exec".to_owned(),
        format: v1::list_tools_request::Format::Openai.into(),
    };
    let listed = run.clients.tools.list_tools(request).await.unwrap().into_inner();
    assert!(listed.tools_json.contains("Ended after 1 seconds"), "{}", listed.tools_json);
}

/// A program may hear SIGTERM and end with 0. It was cut short all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_exits_with_zero_at_its_timeout_has_failed() {
    let profile = "profiles:
  p:
    workspace: read-write
    unattended: true
    operations: { exec: allow, shell: allow }
    exec: { default: allow, max_timeout_s: 60 }
    bounds: { max_spool_bytes: 4096 }
    rate_limits: { operations: { default: { minute: 90, hour: 90, day: 90 } } }
roles: { director: { allow: \"*\" } }
";
    let policy = vec![("p.yaml", profile.to_owned())];
    let daemon = Daemon::start_with(Setup { policy, ..Default::default() }).await;
    let workspace = daemon.workspace("w", &[]);
    let mut run = daemon.run("p", &workspace).await;
    let late = ("trap 'exit 0' TERM; echo begun; sleep 60 & wait", "TIMED_OUT", EndedBy::Timeout);
    let flood = ("trap 'exit 0' TERM; yes begun & wait", "WRITE_LIMIT", EndedBy::OutputLimit);
    for (script, why, ended_by) in [late, flood] {
        for (dialect, tool, failed) in [
            ("", "", "\"ok\":false"),
            ("exec", "exec", "\"error\":{"),
            ("gateway", "run_command", "\"status\":\"failure\""),
            ("forge", "bash", "status: failed"),
        ] {
            let arguments = match tool {
                "bash" => serde_json::json!({ "command": script }),
                _ => serde_json::json!({ "command": "sh", "args": ["-c", script] }),
            };
            let dialect_call = v1::call_request::Request::Dialect(v1::DialectCall {
                dialect: dialect.to_owned(),
                name: tool.to_owned(),
                arguments_json: arguments.to_string(),
            });
            let request = v1::CallRequest {
                timeout: Some(wire::duration(std::time::Duration::from_secs(4))),
                request: Some(if dialect.is_empty() { calls::shell(script).into() } else { dialect_call }),
                ..Default::default()
            };
            let done = run.call_with(request).await.unwrap();
            let told = (done.status(), done.error.as_ref().map(|error| error.reason.as_str()));
            assert_eq!(told, (Status::Failed, Some(why)), "{dialect}: {done:?}");
            assert!(done.rendered.contains(failed), "{dialect}: {}", done.rendered);
            let Some(Answer::Exec(result) | Answer::Shell(result)) = done.kind().cloned() else {
                panic!("no command")
            };
            assert_eq!((result.exit_code, result.ended_by()), (Some(0), ended_by), "{dialect}");
            assert!(result.stdout.starts_with("begun\n"), "{dialect}: {}", result.stdout);
            let events = run.clients.of_call(&done.call_id).await;
            let outcome = &harness::record(events.last().unwrap())["outcome"];
            assert_eq!(
                (&outcome["status"], &outcome["reason"]),
                (&"failed".into(), &why.into()),
                "{dialect}"
            );
        }
    }

    let script = "trap 'exit 0' TERM; echo > begun; sleep 60 & wait";
    let waiting = run.waits(calls::shell(script));
    let begins = async {
        // A command has no other way to tell.
        while !workspace.join("begun").exists() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), begins).await.expect("it does not begin");
    let id = run.id().to_owned();
    let call_id = run.clients.events(&id, "call_intent").await.last().unwrap().call_id.clone();
    let request = v1::CancelCallRequest { call_id: call_id.clone() };
    assert!(run.clients.tools.cancel_call(request).await.unwrap().into_inner().cancelled);
    let done = waiting.await.unwrap().unwrap();
    assert_eq!((done.status(), done.error.as_ref().unwrap().reason.as_str()), (Status::Failed, "CANCELLED"));
    let Some(Answer::Shell(result)) = done.kind().cloned() else { panic!("no script") };
    assert_eq!((result.exit_code, result.ended_by()), (Some(0), EndedBy::Cancelled));
    let receipt = harness::record(run.clients.of_call(&call_id).await.last().unwrap());
    assert_eq!(
        (&receipt["outcome"]["status"], &receipt["outcome"]["reason"]),
        (&"failed".into(), &"CANCELLED".into())
    );
}
