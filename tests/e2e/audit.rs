//! Tests the audit log for its readers: queries, exports, and many followers.

use harness::v1::query_events_request::Order;
use harness::v1::result::Kind as Answer;
use harness::v1::{AuditEvent, EventFilter, QueryEventsRequest, RebuildIndexRequest};
use harness::{Clients, Daemon, calls, reason, requests};

async fn query(clients: &mut Clients, filter: EventFilter) -> Vec<AuditEvent> {
    let (mut events, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = QueryEventsRequest {
            filter: Some(filter.clone()),
            order: Order::OldestFirst.into(),
            page_size: 3,
            page_token,
        };
        let page = clients.indexed(&request).await;
        events.extend(page.events);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return events;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn recent_calls_are_found_by_every_filter() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run("open", &workspace).await;
    let mut other = daemon.run_on(requests::managed("open")).await;
    run.ok(calls::read("a.txt")).await;
    run.ok(calls::write("b.txt", "two")).await;
    run.call(calls::read("missing.txt")).await.unwrap();
    other.ok(calls::write("c.txt", "three")).await;

    let id = run.id().to_owned();
    let all = run.clients.events("", "").await;
    let streamed: Vec<_> = all.iter().filter(|event| event.run_id == id).cloned().collect();
    let by_run = EventFilter { run_id: id.clone(), ..Default::default() };
    assert_eq!(query(&mut run.clients, by_run.clone()).await, streamed);

    let receipt = streamed.iter().find(|event| event.record_json.contains("NOT_FOUND")).unwrap().clone();
    let mut just_after = receipt.time.unwrap();
    just_after.nanos += 1;
    let one = |filter: EventFilter| EventFilter { run_id: id.clone(), ..filter };
    for filter in [
        one(EventFilter { status: "failed".into(), ..Default::default() }),
        one(EventFilter { reason: "NOT_FOUND".into(), ..Default::default() }),
        one(EventFilter { text: "NOT_found".into(), ..Default::default() }),
        EventFilter {
            call_id: receipt.call_id.clone(),
            kinds: vec!["call_receipt".into()],
            ..Default::default()
        },
        one(EventFilter { from: receipt.time, until: Some(just_after), ..Default::default() }),
    ] {
        assert_eq!(
            query(&mut run.clients, filter.clone()).await,
            std::slice::from_ref(&receipt),
            "{filter:?}"
        );
    }
    let writes = EventFilter { operation: "write".into(), ..Default::default() };
    assert_eq!(query(&mut run.clients, writes).await.len(), 4, "an intent and a receipt in each of two runs");

    // Made anew, it says the same.
    let mut progress = run.clients.audit.rebuild_index(RebuildIndexRequest {}).await.unwrap().into_inner();
    let mut last = None;
    while let Some(step) = progress.message().await.unwrap() {
        last = Some(step);
    }
    assert!(last.is_some_and(|step| step.indexed_through >= all.len() as u64));
    assert_eq!(query(&mut run.clients, by_run.clone()).await, streamed);

    // Another query's token is none of this one's.
    let request = QueryEventsRequest { filter: Some(by_run.clone()), page_size: 1, ..Default::default() };
    let page = run.clients.audit.query_events(request).await.unwrap().into_inner();
    let request = QueryEventsRequest { page_token: page.next_page_token, ..Default::default() };
    assert_eq!(reason(&run.clients.audit.query_events(request).await.unwrap_err()), "INVALID_ARGUMENT");
    let bad = QueryEventsRequest {
        filter: Some(EventFilter { status: "good".into(), ..Default::default() }),
        ..Default::default()
    };
    assert_eq!(reason(&run.clients.audit.query_events(bad).await.unwrap_err()), "INVALID_ARGUMENT");
}

fn coffer_on(daemon: &Daemon, arguments: &[&str]) -> std::process::Output {
    let mut command = std::process::Command::new(harness::binary("coffer"));
    command.env("COFFERDAM_ENDPOINT", format!("unix:{}", daemon.socket().display()));
    command.args(arguments).output().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_queries_exports_and_indexes() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("open")).await;
    run.ok(calls::write("b.txt", "two")).await;
    let id = run.id().to_owned();
    let coffer = |arguments: &[&str]| {
        let output = coffer_on(&daemon, arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    // The command line does not wait for an index that is behind.
    query(&mut run.clients, EventFilter { run_id: id.clone(), ..Default::default() }).await;
    let table = coffer(&["audit", "query", "--run", &id, "--operation", "write", "--status", "succeeded"]);
    assert_eq!(table.lines().count(), 1, "{table}");
    assert!(table.contains("call_receipt") && table.contains("succeeded"), "{table}");
    let newest = coffer(&["--output", "json", "audit", "query", "-n", "1", "--from", "1h"]);
    let newest: serde_json::Value = serde_json::from_str(&newest).unwrap();
    assert!(newest["sequence"].as_u64() > Some(3));
    coffer(&["audit", "reindex"]);

    let lines = coffer(&["audit", "export", "--run", &id]);
    let expected: Vec<_> =
        run.clients.events(&id, "").await.into_iter().map(|event| event.record_json).collect();
    assert_eq!(lines.lines().collect::<Vec<_>>(), expected);
    let file = daemon.outside().join("ocsf.jsonl");
    let path = file.display().to_string();
    coffer(&["audit", "export", "--format", "ocsf", "--file", &path]);
    let ocsf = std::fs::read_to_string(&file).unwrap();
    assert!(ocsf.lines().count() >= expected.len());
    for line in ocsf.lines() {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(event["class_uid"], 6003);
    }
    // Never over what is there.
    assert!(!coffer_on(&daemon, &["audit", "export", "--file", &path]).status.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_reads_its_own_calls_and_cannot_write_them() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("open")).await;
    run.ok(calls::write("a.txt", "one")).await;
    run.call(calls::read("missing.txt")).await.unwrap();
    let lines = async {
        loop {
            let text = run.exec(&["cat", "/state/logs/execution.jsonl"]).await.stdout;
            let lines: Vec<serde_json::Value> =
                text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            // It follows the log; nobody waits for it.
            if lines.len() >= 2 {
                return lines;
            }
        }
    };
    let lines = tokio::time::timeout(std::time::Duration::from_secs(30), lines).await.unwrap();
    let said: Vec<_> = lines[..2]
        .iter()
        .map(|line| {
            assert_eq!(
                (&line["kind"], &line["agentId"]),
                (&"tool.exec".into(), &run.run.agent_id.as_str().into())
            );
            let (tool, path) = (&line["toolName"], &line["input"]["path"]);
            let path = path.as_str().unwrap().trim_start_matches("@project/");
            (tool.as_str().unwrap(), path, line["output"]["ok"].as_bool().unwrap())
        })
        .collect();
    assert_eq!(said, [("write", "a.txt", true), ("read", "missing.txt", false)]);
    // Never a content, however short it is.
    assert_eq!(
        (&lines[0]["input"]["content"]["bytes"], lines[0]["input"]["content"]["sha256"].is_string()),
        (&3.into(), true)
    );

    run.stop().await;
    run.delete().await;
    let left: Vec<_> = std::fs::read_dir(daemon.state_dir().join("logs")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// By no tool and by no command, whoever owns the workspace: with an owner that the container's user stands for on disk, and with
/// root.
#[tokio::test(flavor = "multi_thread")]
async fn run_cannot_write_its_log_under_any_owner() {
    const LOG: &str = "/state/logs/execution.jsonl";
    let daemon = Daemon::start().await;
    for uid in [0, 4321] {
        let workspace = daemon.workspace(&format!("of-{uid}"), &[("a.txt", "one\n")]);
        harness::own(&workspace, uid);
        let mut run = daemon.run("open", &workspace).await;
        let script = format!(
            "ln -s logs /state/l; ln -s logs/execution.jsonl /state/f; \
             for at in {LOG} /state/l/execution.jsonl /state/f /proc/self/cwd/../state/logs/execution.jsonl; do \
               echo x >> $at; true > $at; truncate -s 0 $at; chmod 666 $at; cp /etc/passwd $at; mv $at /state/moved; \
               unlink $at; ln -f $at /state/hard; touch $at; done; \
             mv /state/logs /state/aside; rmdir /state/logs; chmod 777 /state/logs; echo x > /state/logs/y; \
             mkdir /state/logs/z; ln -s /etc/passwd /state/logs/s; mv /state /gone; umount /state/logs; \
             ls /state/logs"
        );
        // As a file, since some of the programs are on the deny list.
        run.ok(calls::write("try.sh", &script)).await;
        let out = run.exec(&["sh", "try.sh"]).await;
        assert_eq!(out.stdout, "execution.jsonl\n", "{uid}: {}", out.stderr);
        for path in [
            "@state/logs/execution.jsonl",
            LOG,
            "/state/logs//./execution.jsonl",
            "@state/Logs/execution.jsonl",
            "@state/logs/other",
            "@state/logs",
        ] {
            let patch = format!("*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch\n");
            for operation in [
                calls::write(path, "x"),
                calls::create(path, "x"),
                calls::replace(path, "kind", "x"),
                calls::patch(&patch),
            ] {
                let answer = run.call(operation).await;
                let refused = match answer {
                    Err(status) => reason(&status),
                    Ok(response) => response.error.map(|error| error.reason).unwrap_or_default(),
                };
                assert_eq!(refused, "SANDBOX_VIOLATION", "{uid}: {path}");
            }
            let removed = match run.call(calls::delete(path)).await {
                Ok(asked) if !asked.approval_id.is_empty() => {
                    run.clients.approve(&asked.approval_id).await.unwrap();
                    run.outcome(&asked.call_id).await.error
                }
                Ok(response) => response.error,
                Err(_) => continue,
            };
            assert!(removed.is_some(), "{uid}: {path} was deleted");
        }
        let failure = run.fails(calls::write("@state/l/execution.jsonl", "x")).await;
        assert!(!failure.reason.is_empty(), "{uid}: by a link");
        // All calls are there, and the tools that read show them.
        run.ok(calls::read("a.txt")).await;
        let id = run.id().to_owned();
        let receipts = run.clients.events(&id, "call_receipt").await.len();
        let lines = async {
            loop {
                let Answer::Read(read) = run.ok(calls::read("@state/logs/execution.jsonl")).await else {
                    panic!("not a read")
                };
                let log = std::fs::read_to_string(
                    daemon.state_dir().join("logs").join(&id).join("execution.jsonl"),
                )
                .unwrap();
                assert!(log.starts_with(&read.content) || read.truncated, "{}", read.content);
                if log.lines().count() >= receipts {
                    return log;
                }
            }
        };
        let log = tokio::time::timeout(std::time::Duration::from_secs(30), lines).await.unwrap();
        assert!(log.lines().all(|line| line.contains("\"kind\":\"tool.exec\"")), "{log}");
        let Answer::Grep(found) = run.ok(calls::grep("@state", "tool.exec")).await else {
            panic!("not a grep")
        };
        assert!(!found.matches.is_empty(), "grep does not look into the log");
        let Answer::List(list) = run.ok(calls::list("@state/logs")).await else { panic!("not a list") };
        assert_eq!(list.entries.len(), 1, "{list:?}");
    }
}
