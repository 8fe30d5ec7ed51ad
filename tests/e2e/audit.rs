//! The audit log as its readers have it: found by what it says, exported, followed by many.

use harness::v1::query_events_request::Order;
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
        let page = clients.audit.query_events(request).await.unwrap().into_inner();
        assert!(page.indexed_through >= page.head_sequence);
        events.extend(page.events);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return events;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_just_done_is_found_by_every_side_of_it() {
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

    let script = "echo x >> /state/logs/execution.jsonl; true > /state/logs/execution.jsonl; \
                  mv /state/logs/execution.jsonl /state/moved; echo x > /state/logs/y; \
                  ln -sf /etc/passwd /state/logs/z; cat /state/logs/execution.jsonl | head -n 1; ls /state/logs";
    let out = run.exec(&["sh", "-c", script]).await.stdout;
    assert!(out.starts_with("{\"") && out.ends_with("}\nexecution.jsonl\n"), "{out}");
    let failure = run.fails(calls::write("@state/logs/execution.jsonl", "x")).await;
    assert!(!failure.reason.is_empty());
}
