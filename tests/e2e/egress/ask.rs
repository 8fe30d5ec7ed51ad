//! Connections that a reviewer decides about, and rules that widen a run.

use harness::v1::approval::{Remember, State};
use harness::v1::connection::Phase;
use harness::v1::decide_approval_request::Decision;
use harness::{as_user, binary, pending};

use super::*;

/// Lines of a profile that lets a reviewer have consent remembered.
const REMEMBER: &str = "\n    approvals: { remember: [digest] }";

/// Asks about one host over HTTP, and about another over anything.
fn asking(http: u16, tcp: u16) -> String {
    rules(http, tcp).replace("decision: allow", "decision: ask") + REMEMBER
}

fn wget(port: u16) -> String {
    format!("wget -qO- http://files.example.org:{port}/a?b 2>&1")
}

/// All approvals of the run, oldest first.
async fn approvals(run: &mut RunHandle) -> Vec<v1::Approval> {
    let request = v1::ListApprovalsRequest { run_id: run.id().to_owned(), ..Default::default() };
    run.clients.approvals.list_approvals(request).await.unwrap().into_inner().approvals
}

/// Waits until an approval is in this state.
async fn until(run: &mut RunHandle, approval: &v1::Approval, state: State) -> v1::Approval {
    for _ in 0..800 {
        let now = run.clients.approval(&approval.approval_id).await;
        if now.state() == state {
            return now;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("the approval is not {state:?}");
}

fn output(response: Result<v1::CallResponse, tonic::Status>) -> String {
    let Some(v1::result::Kind::Shell(ran)) = response.unwrap().into_kind() else { panic!("no shell") };
    ran.stdout
}

async fn widen(
    run: &RunHandle,
    host: &str,
    port: u16,
    scheme: &str,
) -> Result<v1::WidenEgressResponse, tonic::Status> {
    let egress_json = format!(
        r#"{{"rules":[{{"host":"{host}","ports":[{port}],"scheme":"{scheme}","decision":"allow"}}]}}"#
    );
    let request = v1::WidenEgressRequest { run_id: run.id().to_owned(), egress_json };
    client(run).widen_egress(request).await.map(tonic::Response::into_inner)
}

#[tokio::test(flavor = "multi_thread")]
async fn n50_a_connection_waits_for_a_reviewer_and_goes_on_with_consent() {
    let http = Server::http().await;
    let daemon = daemon(&asking(http.port, 9)).await;
    let mut run = daemon.run_on(requests::managed("out")).await;
    let waits = run.waits(calls::shell(&wget(http.port)));
    let approval = pending(&mut run).await;
    assert_eq!((approval.operation.as_str(), approval.call_id.as_str()), ("connect", ""));
    let host = format!("files.example.org:{} over HTTP", http.port);
    assert!(approval.preview.contains(&host), "{}", approval.preview);
    assert!(approval.preview.contains("  | wget -qO-"), "the command is shown: {}", approval.preview);
    assert!(!approval.freezes_run);
    let (connections, _) = listed(&mut run).await;
    assert_eq!(connections[0].phase(), Phase::Waiting);
    let id = run.id().to_owned();
    assert_eq!(run.clients.events(&id, "egress_intent").await.len(), 0);
    assert_eq!(http.connections(), 0, "nothing goes out before the decision");

    run.clients.approve(&approval.approval_id).await.unwrap();
    assert_eq!(output(waits.await.unwrap()), "GET /a?b HTTP/1.1\n");
    for kind in ["approval_requested", "approval_decided", "egress_intent", "egress_receipt"] {
        details(&mut run, kind, 1).await;
        let event = run.clients.events(&id, kind).await.remove(0);
        assert_eq!(record(&event)["approval_id"], approval.approval_id.as_str(), "{kind}");
    }
    assert!(run.clients.verify().await.intact);

    // Consent counts once.
    let waits = run.waits(calls::shell(&wget(http.port)));
    let again = pending(&mut run).await;
    assert_ne!(again.approval_id, approval.approval_id);
    assert!(run.clients.approve(&approval.approval_id).await.is_err());
    run.clients.approve(&again.approval_id).await.unwrap();
    assert_eq!(output(waits.await.unwrap()), "GET /a?b HTTP/1.1\n");
    assert_eq!(http.connections(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn n51_a_denial_is_said_and_holds_for_a_loop() {
    let (http, echo) = (Server::http().await, Server::echo().await);
    let daemon = daemon(&asking(http.port, echo.port)).await;
    let mut run = daemon.run_on(requests::managed("out")).await;
    let get = format!(
        "printf 'GET / HTTP/1.1\\r\\nHost: files.example.org:{0}\\r\\n\\r\\n' | nc -w 60 files.example.org {0}",
        http.port
    );
    let waits = run.waits(calls::shell(&get));
    let approval = pending(&mut run).await;
    run.clients.decide(&approval.approval_id, Decision::Deny).await.unwrap();
    let said = output(waits.await.unwrap());
    assert!(said.starts_with("HTTP/1.1 403 "), "{said}");
    for part in
        ["A reviewer denied it", &approval.approval_id, "decided by a test", "go on without this host"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    let (_, said) = shell(&mut run, &format!("for i in 1 2 3 4 5; do {get}; done")).await;
    assert_eq!(said.matches("HTTP/1.1 403 ").count(), 5, "{said}");

    let waits = run.waits(calls::shell(&format!("echo x | nc -w 60 git.example.org {}", echo.port)));
    let other = pending(&mut run).await;
    run.clients.decide(&other.approval_id, Decision::Deny).await.unwrap();
    assert_eq!(output(waits.await.unwrap()), "");
    assert_eq!(approvals(&mut run).await.len(), 2, "a loop asks once");
    assert_eq!((http.connections(), echo.connections()), (0, 0));
    let refused = details(&mut run, "egress_refused", 2).await;
    assert!(refused[0]["why"].as_str().unwrap().contains("a reviewer denied it"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn n52_nobody_decides_or_nobody_waits_any_longer() {
    let http = Server::http().await;
    let egress = asking(http.port, 9).replace(REMEMBER, "\n    approvals: { timeout_s: 3 }");
    let daemon = daemon(&egress).await;
    let mut run = daemon.run_on(requests::managed("out")).await;
    let waits = run.waits(calls::shell(&wget(http.port)));
    let approval = pending(&mut run).await;
    let said = output(waits.await.unwrap());
    assert!(said.contains("403"), "{said}");
    assert_eq!(until(&mut run, &approval, State::Expired).await.decided_by, "");
    assert_eq!(http.connections(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn n52_a_question_is_withdrawn_when_its_programs_have_left() {
    let http = Server::http().await;
    let daemon = daemon(&asking(9, http.port)).await;
    let mut run = daemon.run_on(requests::managed("out")).await;
    let program =
        format!("(sleep 1 | timeout -s KILL 1 nc git.example.org {}) >/dev/null 2>&1; echo left", http.port);
    let waits = run.waits(calls::shell(&program));
    let approval = pending(&mut run).await;
    assert_eq!(output(waits.await.unwrap()), "left\n");
    until(&mut run, &approval, State::Cancelled).await;
    let decided = details(&mut run, "approval_decided", 1).await.remove(0);
    assert_eq!(decided["state"], "CANCELLED");
    assert!(run.clients.approve(&approval.approval_id).await.is_err());
    assert_eq!(http.connections(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn n53_two_connections_share_an_approval() {
    let http = Server::http().await;
    let daemon = daemon(&asking(http.port, 9)).await;
    let mut run = daemon.run_on(requests::managed("out")).await;
    let get = wget(http.port);
    let waits = run.waits(calls::shell(&format!("({get}) & ({get}) & ({get}) & wait")));
    let approval = pending(&mut run).await;
    loop {
        let (connections, _) = listed(&mut run).await;
        if connections.iter().filter(|connection| connection.phase() == Phase::Waiting).count() == 3 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    run.clients.approve(&approval.approval_id).await.unwrap();
    assert_eq!(output(waits.await.unwrap()), "GET /a?b HTTP/1.1\n".repeat(3));
    assert_eq!((approvals(&mut run).await.len(), http.connections()), (1, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn n54_consent_that_is_remembered_widens_the_run_over_a_restart() {
    let (http, echo) = (Server::http().await, Server::echo().await);
    let mut daemon = daemon(&asking(http.port, echo.port)).await;
    let mut run = daemon.run_on(requests::managed("out")).await;
    let waits = run.waits(calls::shell(&wget(http.port)));
    let approval = pending(&mut run).await;
    let remembered = run.clients.approve_and_remember(&approval.approval_id, Remember::Digest, &[]).await;
    assert_ne!(remembered.unwrap().consent_id, "");
    assert_eq!(output(waits.await.unwrap()), "GET /a?b HTTP/1.1\n");
    let get = v1::GetEgressRequest { run_id: run.id().to_owned() };
    let egress = client(&run).get_egress(get.clone()).await.unwrap().into_inner().egress.unwrap();
    assert!(egress.words.contains("You can reach: files.example.org over HTTP"), "{}", egress.words);
    assert_eq!(shell(&mut run, &wget(http.port)).await.1, "GET /a?b HTTP/1.1\n");

    daemon.relaunch().await;
    run.clients = daemon.connect().await;
    assert_eq!(
        client(&run).get_egress(get).await.unwrap().into_inner().egress.unwrap().digest,
        egress.digest
    );
    assert_eq!(shell(&mut run, &wget(http.port)).await.1, "GET /a?b HTTP/1.1\n");
    // It covers this host and port alone, and the rule's method.
    assert!(shell(&mut run, &wget(http.port).replace("-qO-", "-qO- --post-data x")).await.1.contains("403"));
    let waits = run.waits(calls::shell(&format!("echo x | nc -w 60 git.example.org {}", echo.port)));
    let other = pending(&mut run).await;
    run.clients.approve(&other.approval_id).await.unwrap();
    assert_eq!(output(waits.await.unwrap()), "x\n");
    assert_eq!(approvals(&mut run).await.len(), 2);
    let states = details(&mut run, "run_state", 1).await;
    let widened: Vec<_> = states.iter().filter(|state| state.get("widening").is_some()).collect();
    assert_eq!(
        widened.iter().map(|state| state["is"].as_str().unwrap()).collect::<Vec<_>>(),
        ["intent", "receipt"]
    );
    assert_eq!(widened[0]["by"], "uid:0");
}

#[tokio::test(flavor = "multi_thread")]
async fn n55_an_operator_widens_a_run_and_its_owner_does_not() {
    let (http, echo) = (Server::http().await, Server::echo().await);
    let egress = format!(
        "{{ networks: [\"127.0.0.0/8\"], rules: [\
         {{ host: files.example.org, ports: [{}], scheme: http, decision: ask }}, \
         {{ host: inner.example.org, decision: deny }}] }}",
        http.port
    );
    let daemon = daemon_with("access: [{ uid: 12301, roles: [orchestrator] }]\n", &egress).await;
    daemon.expose();
    let (made, refused) = as_user(12_301, &daemon.socket(), async |mut clients| {
        let run = clients.runs.create_run(requests::managed("out")).await.unwrap().into_inner().run.unwrap();
        let mut client = EgressServiceClient::new(clients.channel.clone());
        let rules = r#"{"rules":[{"host":"git.example.org","ports":[443],"decision":"allow"}]}"#;
        let request = v1::WidenEgressRequest { run_id: run.run_id.clone(), egress_json: rules.to_owned() };
        (run, reason(&client.widen_egress(request).await.unwrap_err()))
    })
    .await;
    assert_eq!(refused, "PERMISSION_DENIED");
    let mut run = RunHandle { run: Box::new(made), clients: daemon.connect().await };

    let waits = run.waits(calls::shell(&wget(http.port)));
    let approval = pending(&mut run).await;
    let response = widen(&run, "files.example.org", http.port, "http").await.unwrap();
    assert!(response.egress.unwrap().words.contains("You can reach: files.example.org over HTTP"));
    assert_eq!(output(waits.await.unwrap()), "GET /a?b HTTP/1.1\n", "the connection that waited goes on");
    until(&mut run, &approval, State::Cancelled).await;

    assert!(shell(&mut run, "nc -w 2 git.example.org 443").await.0 != Some(0));
    widen(&run, "git.example.org", echo.port, "tcp").await.unwrap();
    let echoed = format!("echo x | nc -w 5 git.example.org {}", echo.port);
    // The program's refusal is cached for some seconds.
    let mut said = String::new();
    for _ in 0..60 {
        said = shell(&mut run, &echoed).await.1;
        if said == "x\n" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert_eq!(said, "x\n");
    for (host, port) in [("inner.example.org", 443), ("10.1.2.3", 443)] {
        let status = widen(&run, host, port, "tcp").await.unwrap_err();
        assert_eq!(reason(&status), "INVALID_ARGUMENT", "{host}: {status}");
    }
    let huge = v1::WidenEgressRequest { run_id: run.id().to_owned(), egress_json: " ".repeat(20_000) };
    assert_eq!(reason(&client(&run).widen_egress(huge).await.unwrap_err()), "INVALID_ARGUMENT");

    // A list that narrows holds whatever widened before or after it.
    let narrow = format!(
        r#"{{"networks":["127.0.0.0/8"],"rules":[{{"host":"files.example.org","ports":[{}],"scheme":"http","decision":"allow"}}]}}"#,
        http.port
    );
    let request = v1::NarrowEgressRequest { run_id: run.id().to_owned(), egress_json: narrow };
    client(&run).narrow_egress(request).await.unwrap();
    assert!(!shell(&mut run, &echoed).await.1.lines().any(|line| line == "x"));
    assert_eq!(shell(&mut run, &wget(http.port)).await.1, "GET /a?b HTTP/1.1\n");
    let status = widen(&run, "git.example.org", echo.port, "tcp").await.unwrap_err();
    assert!(status.message().contains("narrowed egress default: deny"), "{status}");
    assert_eq!(echo.connections(), 1);
    let records = details(&mut run, "run_state", 1).await;
    let widened = records.iter().filter(|state| state.get("widening").is_some()).count();
    assert_eq!(widened, 4, "an intent and a receipt each");
}

#[tokio::test(flavor = "multi_thread")]
async fn n55_the_command_line_widens_a_run() {
    let echo = Server::echo().await;
    let daemon = daemon(&rules(9, 10)).await;
    let mut run = daemon.run_on(requests::managed("out")).await;
    let output = std::process::Command::new(binary("coffer"))
        .args(["run", "widen", run.id(), "--rule", &format!("git.example.org:{}/tcp", echo.port)])
        .env("COFFERDAM_ENDPOINT", format!("unix:{}", daemon.socket().display()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let (_, said) = shell(&mut run, &format!("echo x | nc -w 5 git.example.org {}", echo.port)).await;
    assert_eq!(said, "x\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn n56_a_lost_process_ends_what_waits_and_the_question_stays_for_the_next() {
    let http = Server::http().await;
    let daemon = daemon(&asking(http.port, 9)).await;
    let mut run = daemon.run_on(requests::managed("out")).await;
    let waits = run.waits(calls::shell(&wget(http.port)));
    let approval = pending(&mut run).await;
    kill_workers(&daemon);
    assert!(!output(waits.await.unwrap()).contains("GET /a?b"));
    assert_eq!(http.connections(), 0);
    // A program that tries again soon finds the same question.
    let retries = format!("for i in 1 2 3 4 5 6 7 8 9; do {} && break; sleep 0.3; done", wget(http.port));
    let waits = run.waits(calls::shell(&retries));
    loop {
        let (connections, _) = listed(&mut run).await;
        if connections.iter().any(|connection| connection.phase() == Phase::Waiting) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    run.clients.approve(&approval.approval_id).await.unwrap();
    assert!(output(waits.await.unwrap()).ends_with("GET /a?b HTTP/1.1\n"));
    assert_eq!(approvals(&mut run).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn n57_the_end_of_the_run_of_the_daemon_and_of_the_policy_end_a_question() {
    let http = Server::http().await;
    let mut daemon = daemon(&asking(http.port, 9)).await;
    let mut run = daemon.run_on(requests::managed("out")).await;

    // The policy changes, and asks still.
    let waits = run.waits(calls::shell(&wget(http.port)));
    let approval = pending(&mut run).await;
    let file = daemon.policy_dir().join("out.yaml");
    let policy = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, policy.replace("remember: [digest]", "remember: []")).unwrap();
    run.clients.policy.reload_policy(v1::ReloadPolicyRequest::default()).await.unwrap();
    until(&mut run, &approval, State::Cancelled).await;
    assert!(output(waits.await.unwrap()).contains("403"));

    // The daemon is killed.
    let waits = run.waits(calls::shell(&wget(http.port)));
    let approval = pending(&mut run).await;
    daemon.kill().await;
    let _ = waits.await;
    daemon.launch().await;
    run.clients = daemon.connect().await;
    let cancelled = until(&mut run, &approval, State::Cancelled).await;
    assert!(cancelled.comment.contains("the daemon ended"), "{}", cancelled.comment);
    let decided = details(&mut run, "approval_decided", 2).await;
    assert_eq!(decided.iter().filter(|decided| decided["state"] == "CANCELLED").count(), 2);

    // The run ends.
    let waits = run.waits(calls::shell(&wget(http.port)));
    let approval = pending(&mut run).await;
    run.stop().await;
    let _ = waits.await;
    until(&mut run, &approval, State::Cancelled).await;
    assert!(run.clients.approve(&approval.approval_id).await.is_err());
    assert_eq!(details(&mut run, "approval_decided", 3).await.len(), 3);
    assert_eq!(http.connections(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn n58_with_a_default_that_asks_any_name_waits_at_these_ports_and_nowhere_else() {
    let http = Server::http().await;
    let egress = format!(
        "{{ default: ask, ask_ports: [{}], networks: [\"127.0.0.0/8\"], names_per_minute: 3, rules: [\
         {{ host: inner.example.org, decision: deny }}] }}",
        http.port
    );
    let daemon = daemon(&egress).await;
    let mut run = daemon.run_on(requests::managed("out")).await;
    let tcp =
        |host: &str, port: u16| format!("printf 'GET /t HTTP/1.1\\r\\n\\r\\n' | nc -w 60 {host} {port}");
    let waits = run.waits(calls::shell(&tcp("git.example.org", http.port)));
    let approval = pending(&mut run).await;
    assert!(approval.rule.contains("egress default: ask"), "{}", approval.rule);
    run.clients.approve(&approval.approval_id).await.unwrap();
    assert!(output(waits.await.unwrap()).contains("GET /t HTTP/1.1"));
    let (_, said) = shell(&mut run, &tcp("git.example.org", 9)).await;
    assert!(!said.contains("GET"), "{said}");
    let (code, _) = shell(&mut run, &tcp("inner.example.org", http.port)).await;
    assert_ne!(code, Some(0), "a denied name does not exist");
    let many = "for i in 1 2 3 4 5 6; do nslookup n$i.example.org 2>/dev/null | grep -A1 '^Name' | grep -c 11.200; done";
    let (_, said) = shell(&mut run, many).await;
    let found = said.lines().filter(|line| *line != "0").count();
    assert!((1..=3).contains(&found), "{said}");
    assert_eq!((approvals(&mut run).await.len(), http.connections()), (1, 1));
}
