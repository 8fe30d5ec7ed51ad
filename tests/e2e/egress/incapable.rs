//! A daemon that cannot steer, because it lacks capabilities as in `deploy/compose.yaml`.

use harness::{Daemon, Setup, reason, requests, v1};
use v1::host_service_client::HostServiceClient;

use super::shell;

const POLICY: &str = "profiles:
  out:
    operations: { shell: allow }
    exec: { default: allow }
    egress: { rules: [{ host: files.example.org, ports: [443], decision: allow }] }
  none:
    operations: { shell: allow }
    exec: { default: allow }
roles: { director: { allow: \"*\" } }
";

#[tokio::test(flavor = "multi_thread")]
async fn n101_without_capabilities_runs_with_rules_are_refused_with_what_to_give_and_others_are_made() {
    let lacks: &[&str] = &["net_admin", "net_raw"];
    let policy = vec![("out.yaml", POLICY.to_owned())];
    let daemon = Daemon::start_with(Setup { policy, lacks, ..Setup::default() }).await;
    let refused = daemon.run_with(requests::managed("out")).await.err().unwrap();
    assert_eq!(reason(&refused), "PRECONDITION_FAILED", "{refused}");
    for said in ["cannot steer", "CAP_NET_ADMIN", "CAP_NET_RAW", "`coffer doctor`", "without `egress`"] {
        assert!(refused.message().contains(said), "{said}: {refused}");
    }
    assert_eq!(daemon.left_by_runs(), (Vec::new(), Vec::new()), "the launch is undone");

    let narrowed = v1::CreateRunRequest { egress_json: "{}".to_owned(), ..requests::managed("out") };
    for request in [requests::managed("none"), narrowed] {
        let mut run = daemon.run_on(request).await;
        assert_eq!(shell(&mut run, "echo ready").await, (Some(0), "ready\n".to_owned()));
        let mut host = HostServiceClient::new(run.clients.channel.clone());
        let findings = host.examine_host(v1::ExamineHostRequest {}).await.unwrap().into_inner().findings;
        let finding = findings.iter().find(|finding| finding.topic == "egress").unwrap();
        assert_eq!(finding.verdict(), v1::host_finding::Verdict::Limited, "{finding:?}");
        assert!(finding.follows.contains("CAP_NET_ADMIN"), "{finding:?}");
    }
}
