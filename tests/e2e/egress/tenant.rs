//! The traffic of a tenant on one day.

use harness::{requests, v1};
use serde_json::json;

use super::server::Server;
use super::{daemon_of, details, rules, shell};
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
    let call = run.call(harness::calls::shell(&wget)).await.unwrap();
    let Some(v1::result::Kind::Shell(ran)) = call.into_kind() else { panic!("no command") };
    assert_ne!(ran.exit_code, Some(0));
    assert!(ran.hint.contains("of at most 2 MiB of this day"), "the agent reads why: {ran:?}");
    let refused = details(&mut run, "egress_refused", 1).await.remove(0);
    assert_eq!((&refused["rule"], &refused["host"]), (&json!("egress: tenant"), &json!("files.example.org")));
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
