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
async fn new_certificates_are_loaded_by_signal_or_on_change_and_no_stream_ends() {
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
    logged(&daemon, "the previous TLS certificates stay in force", 1).await;
    let mut after = Clients::on(certificates.connect(&daemon, Some("other")).await.unwrap());
    assert!(after.verify().await.intact);
    // And a daemon does not start on it.
    assert!(daemon.log().contains("listen.tcp.tls.key: holds no private key"), "{}", daemon.log());
}

/// Whether a new connection with the certificate of `client` is good for anything.
async fn gets_in(certificates: &Certificates, daemon: &Daemon, client: &str) -> bool {
    match certificates.connect(daemon, Some(client)).await {
        Ok(channel) => Clients::on(channel).audit.verify_log(v1::VerifyLogRequest {}).await.is_ok(),
        Err(_) => false,
    }
}

/// How the authority of clients is changed without a moment in which somebody is shut out.
#[tokio::test(flavor = "multi_thread")]
async fn two_authorities_of_clients_count_at_once_and_the_old_one_ends_with_its_line() {
    let (old, new) = (Certificates::make(&["ci"]), Certificates::make(&["next"]));
    std::fs::create_dir(old.client("next")).unwrap();
    for name in ["cert.pem", "key.pem"] {
        std::fs::copy(new.client("next").join(name), old.client("next").join(name)).unwrap();
    }
    let pem = |of: &Certificates| std::fs::read_to_string(of.authority()).unwrap();
    let bundle = old.directory().join("server/clients.pem");
    std::fs::write(&bundle, pem(&old)).unwrap();
    let config = "access: [{ certificate: ci, roles: [auditor] }, { certificate: next, roles: [auditor] }]\n";
    let tcp = old.listen("").replace("server/ca.pem", "server/clients.pem");
    let daemon = Daemon::start_with(Setup { config: config.into(), tcp, ..Default::default() }).await;
    let mut before = Clients::on(old.connect(&daemon, Some("ci")).await.unwrap());
    for (times, authorities, expected) in [
        (0, pem(&old), [true, false]),
        (1, pem(&old) + &pem(&new), [true, true]),
        (2, pem(&new), [false, true]),
    ] {
        if times > 0 {
            std::fs::write(&bundle, authorities).unwrap();
            daemon.signal(Signal::HUP);
            logged(&daemon, "new TLS certificates are in force", times).await;
        }
        let found = [gets_in(&old, &daemon, "ci").await, gets_in(&old, &daemon, "next").await];
        assert_eq!(found, expected, "{times}");
        // A connection keeps what it began with.
        assert!(before.verify().await.intact);
    }
}

/// A certificate that is lost: it ends at once, with its streams and connections, and no other one does.
#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_certificate_ends_with_its_streams_and_connections() {
    let certificates = Certificates::make(&["lost", "kept"]);
    let file = certificates.directory().join("server/revoked");
    std::fs::write(&file, "# none yet\n").unwrap();
    let config =
        "access: [{ certificate: lost, roles: [auditor] }, { certificate: kept, roles: [auditor] }]\n";
    let revoked = format!("client_ca: {0}/ca.pem, revoked: {0}/revoked", file.parent().unwrap().display());
    let tcp = certificates.listen("");
    let client_ca = format!("client_ca: {}", certificates.authority().display());
    let tcp = tcp.replace(&client_ca, &revoked);
    let daemon = Daemon::start_with(Setup { config: config.into(), tcp, ..Default::default() }).await;
    let mut lost = Clients::on(certificates.connect(&daemon, Some("lost")).await.unwrap());
    let mut kept = Clients::on(certificates.connect(&daemon, Some("kept")).await.unwrap());
    let follow = || v1::StreamEventsRequest { follow: true, ..Default::default() };
    let mut stream = lost.audit.stream_events(follow()).await.unwrap().into_inner();
    let mut other = kept.audit.stream_events(follow()).await.unwrap().into_inner();
    other.message().await.unwrap().unwrap();
    let mut openssl = std::process::Command::new("openssl");
    openssl.args(["x509", "-noout", "-fingerprint", "-sha256", "-in"]);
    let printed = openssl.arg(certificates.client("lost").join("cert.pem")).output().unwrap();
    std::fs::write(&file, printed.stdout).unwrap();
    daemon.signal(Signal::HUP);
    let ended = async {
        loop {
            if let Err(status) = stream.message().await {
                return status;
            }
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(30), ended).await.expect("the stream goes on");
    assert!(ended.message().contains("has expired or was revoked"), "{ended}");
    let refused = lost.audit.verify_log(v1::VerifyLogRequest {}).await.unwrap_err();
    assert!(refused.message().contains("was revoked"), "{refused}");
    assert!(!gets_in(&certificates, &daemon, "lost").await);
    assert!(kept.verify().await.intact && gets_in(&certificates, &daemon, "kept").await);
    let next = async {
        loop {
            let event = other.message().await.unwrap().expect("the other stream ended").event.unwrap();
            if event.kind == "escalation_attempt" && event.principal == "cert:lost" {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), next).await.expect("the other stream has stopped");
    // The refusal did not wait for its record, which is there by now.
    let attempts = daemon.connect().await.events("", "escalation_attempt").await;
    let with = |who: &str| attempts.iter().filter(|event| event.principal == who).count();
    assert!(with("cert:lost") == 1 && with("cert:kept") == 0, "{attempts:?}");
    // What is no list changes nothing.
    std::fs::write(&file, "ci\n").unwrap();
    daemon.signal(Signal::HUP);
    logged(&daemon, "listen.tcp.tls.revoked: line 1 is no SHA-256 fingerprint", 1).await;
    assert!(!gets_in(&certificates, &daemon, "lost").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_1_2_is_refused() {
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
