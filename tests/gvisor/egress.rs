//! Connections out of a run, which cannot be steered in the network of a separate kernel.

use harness::{Daemon, RunHandle, Setup, calls, reason, requests, v1};
use wire::v1::host_service_client::HostServiceClient;

use crate::POLICY;

const EGRESS: &str = "    egress: { rules: [{ host: files.example.org, ports: [443], decision: allow }] }\n";

fn policy(egress: &str) -> String {
    format!("{POLICY}{egress}")
}

async fn daemon(egress: &str) -> Daemon {
    let roles = include_str!("../../crates/policy/policies/roles.yaml").to_owned();
    let policy = vec![("open.yaml", policy(egress)), ("roles.yaml", roles)];
    Daemon::start_with(Setup { policy, ..Setup::default() }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn n100_a_run_with_rules_is_refused_with_its_reason_and_one_narrowed_to_none_is_made() {
    let daemon = daemon(EGRESS).await;
    let refused = daemon.run_with(requests::managed("open")).await.err().unwrap();
    assert_eq!(reason(&refused), "PRECONDITION_FAILED", "{refused}");
    for said in ["gVisor", "the host cannot steer", "leave `runtime` out", "--egress '{}'"] {
        assert!(refused.message().contains(said), "{said}: {refused}");
    }
    assert!(daemon.containers().is_empty());

    let request = v1::CreateRunRequest { egress_json: "{}".to_owned(), ..requests::managed("open") };
    let mut run = daemon.run_on(request).await;
    let ran = run.ran(calls::shell("cat /etc/resolv.conf; echo end")).await;
    assert!(ran.stdout.ends_with("end\n") && !ran.stdout.contains("nameserver"), "{ran:?}");

    let mut host = HostServiceClient::new(run.clients.channel.clone());
    let findings = host.examine_host(v1::ExamineHostRequest {}).await.unwrap().into_inner().findings;
    let finding = findings.iter().find(|finding| finding.topic == "egress in gVisor").unwrap();
    assert!(finding.found.contains("runsc"), "{finding:?}");
    assert!(finding.follows.contains("are refused"), "{finding:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn n100_a_run_outlives_a_daemon_whose_policy_got_rules_meanwhile() {
    let mut daemon = daemon("").await;
    let run = daemon.run_on(requests::managed("open")).await;
    daemon.kill().await;
    std::fs::write(daemon.policy_dir().join("open.yaml"), policy(EGRESS)).unwrap();
    daemon.launch().await;
    let mut run = RunHandle { clients: daemon.connect().await, ..run };
    assert_eq!(run.show().await.state(), v1::run::State::Ready, "{}", daemon.log());
    assert_eq!(run.ran(calls::shell("echo ready")).await.stdout, "ready\n");
}
