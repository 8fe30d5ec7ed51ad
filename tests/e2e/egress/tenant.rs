//! The traffic of a tenant on one day.

use harness::{calls, requests, until, v1};
use serde_json::json;

use super::server::Server;
use super::{daemon_of, details, listed, rules, shell};
use crate::cli::json as printed;

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_that_has_moved_its_bytes_has_no_further_connection_that_day() {
    let (http, echo) = (Server::http().await, Server::echo().await);
    let bounds = "tenants:\n  all: { match: \"uid:*\", egress_mib_per_day: 2 }\n";
    let mut daemon = daemon_of("", &rules(http.port, echo.port), bounds).await;
    let mut run = daemon.run_on(requests::managed("out")).await;
    let wget = format!("wget -qO- http://files.example.org:{}/", http.port);
    let (code, said) = shell(&mut run, &wget).await;
    assert_eq!(code, Some(0), "{said}");
    // Back and forth, three MiB: one connection ends over the bound, and none begins after it.
    let script = format!("head -c 1572864 /dev/zero | nc -w 3 git.example.org {} | wc -c", echo.port);
    shell(&mut run, &script).await;
    details(&mut run, "egress_receipt", 2).await;
    let call = run.call(calls::shell(&wget)).await.unwrap();
    let Some(v1::result::Kind::Shell(ran)) = call.into_kind() else { panic!("no command") };
    assert_ne!(ran.exit_code, Some(0));
    assert!(ran.hint.contains("of at most 2 MiB of this day"), "the agent reads why: {ran:?}");
    // The connection that passed the bound may have been ended, which is on record as well.
    let mut refused = details(&mut run, "egress_refused", 1).await;
    if refused.iter().all(|one| one["host"] != "files.example.org") {
        refused = details(&mut run, "egress_refused", 2).await;
    }
    let refused = refused.iter().find(|one| one["host"] == "files.example.org").unwrap();
    assert_eq!(refused["rule"], "egress: tenant");
    let shown = printed(&daemon, &["limits"]).await;
    let resources = shown["tenants"][0]["resources"].as_array().unwrap().clone();
    let egress = resources.iter().find(|one| one["resource"] == "EGRESS_MIB_TODAY").unwrap();
    let used: u64 = egress["used"].as_str().unwrap().parse().unwrap();
    assert!(used >= 3 && egress["limit"] == "2", "{egress}");

    daemon.stop().await;
    daemon.launch().await;
    let mut run = daemon.run_on(requests::managed("out")).await;
    let (code, _) = shell(&mut run, &wget).await;
    assert_ne!(code, Some(0), "the bytes of the day outlive the daemon");
    assert_eq!(http.connections(), 1);
}

/// Sends a part of a MiB over a connection that stays open.
fn open_with(bytes: u32, port: u16) -> String {
    format!("(head -c {bytes} /dev/zero; sleep 60) | nc git.example.org {port} | wc -c")
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_of_an_open_connection_count_for_its_run_and_its_tenant() {
    let (http, echo) = (Server::http().await, Server::echo().await);
    let bounds = "tenants:\n  all: { match: \"uid:*\", egress_mib_per_day: 100 }\n";
    let daemon = daemon_of("", &rules(http.port, echo.port), bounds).await;
    let mut run = daemon.run_on(requests::managed("out")).await;
    let waits = run.waits(calls::shell(&open_with(1_572_864, echo.port)));
    until("the bytes of the run do not count", async || {
        let request = v1::GetRunRequest { run_id: run.id().to_owned() };
        let shown =
            run.clients.runs.get_run(request).await.unwrap().into_inner().run.unwrap().egress.unwrap();
        (shown.bytes_out, shown.bytes_in, shown.open_connections) == (1_572_864, 1_572_864, 1)
    })
    .await;
    let (connections, _) = listed(&mut run).await;
    assert_eq!((connections[0].bytes_out, connections[0].bytes_in), (1_572_864, 1_572_864));
    until("the bytes of the tenant do not count", async || {
        let shown = printed(&daemon, &["limits"]).await;
        let resources = shown["tenants"][0]["resources"].as_array().unwrap().clone();
        resources.iter().any(|one| one["resource"] == "EGRESS_MIB_TODAY" && one["used"] == "3")
    })
    .await;
    run.stop().await;
    drop(waits);
    let receipt = details(&mut run, "egress_receipt", 1).await.remove(0);
    assert_eq!((&receipt["bytes_out"], &receipt["bytes_in"]), (&json!(1_572_864), &json!(1_572_864)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_connection_that_passes_the_bytes_of_the_day_is_ended_on_record() {
    let (http, echo) = (Server::http().await, Server::echo().await);
    let bounds = "tenants:\n  all: { match: \"uid:*\", egress_mib_per_day: 2 }\n";
    let daemon = daemon_of("", &rules(http.port, echo.port), bounds).await;
    let mut run = daemon.run_on(requests::managed("out")).await;
    let waits = run.waits(calls::shell(&open_with(1_572_864, echo.port)));
    let receipt = details(&mut run, "egress_receipt", 1).await.remove(0);
    assert_eq!(receipt["cause"], "ended", "{receipt}");
    let why = receipt["why"].as_str().unwrap();
    assert!(why.contains("of at most 2 MiB of this day"), "{why}");
    let refused = details(&mut run, "egress_refused", 1).await.remove(0);
    assert_eq!((&refused["rule"], &refused["host"]), (&json!("egress: tenant"), &json!("git.example.org")));
    run.stop().await;
    drop(waits);
}
