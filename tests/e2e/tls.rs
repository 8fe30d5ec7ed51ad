//! Certificates that change while streams go on.

use std::time::Duration;

use harness::{Certificates, Clients, Daemon, Setup, v1};
use rustix::process::Signal;

async fn logged(daemon: &Daemon, words: &str, times: usize) {
    let there = async {
        while daemon.log().matches(words).count() < times {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(30), there).await;
    assert!(waited.is_ok(), "{words} {times} times:\n{}", daemon.log());
}

/// What the daemon shows, by the real openssl: whether it is the certificate in this file.
async fn shows(daemon: &Daemon, certificates: &Certificates) -> bool {
    let mut command = tokio::process::Command::new("openssl");
    let address = daemon.address().to_string();
    command.args(["s_client", "-connect", &address, "-showcerts", "-tls1_3", "-alpn", "h2"]);
    let output = command.stdin(std::process::Stdio::null()).output().await.unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    let file = certificates.directory().join("server/cert.pem");
    let certificate = std::fs::read_to_string(file).unwrap().replace('\r', "");
    assert!(shown.contains("BEGIN CERTIFICATE"), "{shown}");
    shown.contains(certificate.trim())
}

#[tokio::test(flavor = "multi_thread")]
async fn new_certificates_are_taken_by_signal_or_by_themselves_and_no_stream_ends() {
    let certificates = Certificates::make(&["ci", "other"]);
    let config = "access: [{ certificate: ci, roles: [auditor, orchestrator] }, { certificate: other, roles: [auditor] }]\n";
    let tcp = certificates.listen("");
    let daemon = Daemon::start_with(Setup { config: config.into(), tcp, ..Default::default() }).await;
    let mut before = Clients::on(certificates.connect(&daemon, Some("ci")).await.unwrap());
    let request = v1::StreamEventsRequest { follow: true, ..Default::default() };
    let mut stream = before.audit.stream_events(request).await.unwrap().into_inner();
    assert!(shows(&daemon, &certificates).await);
    for (times, signal) in [(1, true), (2, false)] {
        let renewed = certificates.coffer("rotate", &[]);
        assert_eq!(renewed.lines().count(), 3, "{renewed}");
        if signal {
            daemon.signal(Signal::HUP);
        }
        logged(&daemon, "new TLS certificates are in force", times).await;
        assert!(shows(&daemon, &certificates).await);
        // A new connection, with the new certificate of its own.
        let mut after = Clients::on(certificates.connect(&daemon, Some("ci")).await.unwrap());
        assert!(after.verify().await.intact);
        assert!(before.verify().await.intact);
    }
    // The stream has gone on all the while: what happens now arrives by it.
    let refused =
        before.runs.create_run(v1::CreateRunRequest { profile: "nope".into(), ..Default::default() });
    refused.await.unwrap_err();
    let mut other = Clients::on(certificates.connect(&daemon, Some("other")).await.unwrap());
    other.runs.create_run(v1::CreateRunRequest::default()).await.unwrap_err();
    let arrived = async {
        loop {
            let event = stream.message().await.unwrap().expect("the stream ended").event.unwrap();
            if event.kind == "escalation_attempt" && event.principal == "cert:other" {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), arrived).await.expect("nothing arrives any more");

    // What cannot be used changes nothing.
    let key = certificates.directory().join("server/key.pem");
    std::fs::write(&key, "nothing").unwrap();
    daemon.signal(Signal::HUP);
    logged(&daemon, "the former TLS certificates stay in force", 1).await;
    let mut after = Clients::on(certificates.connect(&daemon, Some("other")).await.unwrap());
    assert!(after.verify().await.intact);
    // And a daemon does not start on it.
    assert!(daemon.log().contains("listen.tcp.tls.key: holds no private key"), "{}", daemon.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_older_than_tls_1_3_is_spoken() {
    let certificates = Certificates::make(&[]);
    let tcp = certificates.listen("tokens: {}");
    let daemon = Daemon::start_with(Setup { tcp, ..Default::default() }).await;
    let address = daemon.address().to_string();
    for (version, works) in [("-tls1_2", false), ("-tls1_3", true)] {
        let mut command = tokio::process::Command::new("openssl");
        command.args(["s_client", "-connect", &address, version, "-alpn", "h2", "-CAfile"]);
        let output =
            command.arg(certificates.authority()).stdin(std::process::Stdio::null()).output().await.unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(
            said.contains("Verify return code: 0 (ok)") && said.contains("New, TLSv1.3"),
            works,
            "{said}"
        );
    }
}
