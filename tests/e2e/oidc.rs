//! Tests tokens of an issuer: their principals, the methods that they open, and changes of the issuer's keys.

use std::sync::Arc;
use std::time::Duration;

use harness::{
    Bearer, Certificates, Clients, Daemon, Issuer, Setup, binary, calls, reason, record, requests, v1,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tonic::Code;
use wire::v1::token_service_client::TokenServiceClient;

const HOUR: Duration = Duration::from_secs(3_600);
const PATIENCE: Duration = Duration::from_secs(60);

const GRANTS: &str = "{ claim: groups, value: ml, roles: [orchestrator], profiles: [open] },
    { claim: groups, value: audit, roles: [auditor] }, { claim: sub, value: root, roles: [operator] }";

#[tokio::test(flavor = "multi_thread")]
async fn j6_a_token_of_an_issuer_opens_the_methods_of_its_claims_and_its_subject_is_on_record() {
    let (issuer, certificates) = (Issuer::default(), Certificates::make(&[]));
    let config = format!("log: {{ level: debug }}\n{}", issuer.config_with_file(GRANTS));
    let daemon =
        Daemon::start_with(Setup { config, tcp: certificates.listen("tokens: {}"), ..Default::default() })
            .await;
    let mut remote = Clients::on(certificates.connect(&daemon, None).await.unwrap());
    let mut local = daemon.connect().await;
    let secret = issuer.token("alice", &["all", "ml"], HOUR);
    let alice = Bearer::new(&secret);

    let made = remote.runs.create_run(alice.shows(requests::managed("open"))).await.unwrap().into_inner();
    let run = made.run.unwrap();
    let call = |request| v1::CallRequest {
        run_id: run.run_id.clone(),
        request: Some(request),
        ..Default::default()
    };
    remote.tools.call(alice.shows(call(calls::exec(&["echo", "hi"]).into()))).await.unwrap();
    // On the socket it is its subject as well, and nobody else.
    local.tools.call(alice.shows(call(calls::list(".").into()))).await.unwrap();
    let other = local.runs.create_run(requests::managed("open")).await.unwrap().into_inner().run.unwrap();
    let of_other = v1::CallRequest { run_id: other.run_id, ..call(calls::list(".").into()) };
    assert_eq!(local.tools.call(alice.shows(of_other)).await.unwrap_err().code(), Code::NotFound);
    for refused in [
        remote.runs.create_run(alice.shows(requests::managed("build"))).await.unwrap_err(),
        remote.audit.verify_log(alice.shows(v1::VerifyLogRequest {})).await.unwrap_err(),
    ] {
        assert_eq!(reason(&refused), "PERMISSION_DENIED", "{refused}");
    }
    // Another one of its groups, another subject, and nobody.
    let auditor = Bearer::new(&issuer.token("bob", &["audit"], HOUR));
    remote.audit.verify_log(auditor.shows(v1::VerifyLogRequest {})).await.unwrap();
    let nobody = Bearer::new(&issuer.token("carol", &["MLs"], HOUR));
    let refused = remote.audit.verify_log(nobody.shows(v1::VerifyLogRequest {})).await.unwrap_err();
    assert!(refused.message().starts_with("oidc:corp:carol has no role"), "{refused}");
    // Not even an operator's makes a token of its own.
    let operator = Bearer::new(&issuer.token("root", &[], HOUR));
    let mut tokens = TokenServiceClient::new(remote.channel.clone());
    let refused = tokens.list_tokens(operator.shows(v1::ListTokensRequest::default())).await.unwrap_err();
    assert!(refused.message().contains("accepts no token"), "{refused}");
    // What does not count, and no word of it: half a token, and one of another issuer with the same name.
    let forged = Issuer::default().token("root", &[], HOUR);
    for bad in [&secret[..secret.len() - 4], &forged, "a.b.c", ".."] {
        let refused =
            remote.audit.verify_log(Bearer::new(bad).shows(v1::VerifyLogRequest {})).await.unwrap_err();
        assert_eq!(reason(&refused), "PERMISSION_DENIED", "{refused}");
        assert!(refused.message().contains("issuer is not in the configuration"), "{refused}");
    }

    let created = local.events(&run.run_id, "run_created").await;
    assert_eq!(created[0].principal, "oidc:corp:alice");
    let expected = [
        ("oidc:corp:alice", "method_with_api_token"),
        ("oidc:corp:carol", "method"),
        ("oidc:corp:root", "method_with_api_token"),
        ("anonymous", "bad_token"),
    ];
    let attempt = |event: &v1::AuditEvent| record(event)["details"]["attempt"].clone();
    let missing = |attempts: &[v1::AuditEvent]| {
        let is_missing = |(who, what): &(&str, &str)| {
            !attempts.iter().any(|event| event.principal == *who && attempt(event) == *what)
        };
        expected.into_iter().find(is_missing)
    };
    // No refusal waits for its record.
    let told = |attempts: &[v1::AuditEvent]| missing(attempts).is_none();
    let attempts = local.events_when("", "escalation_attempt", told).await;
    assert_eq!(missing(&attempts), None, "{attempts:?}");
    let all = format!("{:?}", local.events("", "").await);
    let signature = &secret[secret.rfind('.').unwrap() + 1..secret.len() - 4];
    assert!(!all.contains(signature) && !daemon.log().contains(signature));
}

#[tokio::test(flavor = "multi_thread")]
async fn j6_a_stream_ends_with_the_token_of_an_issuer_that_opened_it() {
    let issuer = Issuer::default();
    let config = issuer.config_with_file(GRANTS).replace("audience:", "leeway: 0s, audience:");
    let tcp = "address: '127.0.0.1:0', plaintext: true, tokens: {}".to_owned();
    let daemon = Daemon::start_with(Setup { config, tcp, ..Default::default() }).await;
    let channel =
        tonic::transport::Channel::from_shared(daemon.url("http")).unwrap().connect().await.unwrap();
    let mut remote = Clients::on(channel);
    let secret = issuer.token("bob", &["audit"], Duration::from_secs(5));
    let bearer = Bearer::new(&secret);
    let request = v1::StreamEventsRequest { follow: true, ..Default::default() };
    let mut stream = remote.audit.stream_events(bearer.shows(request)).await.unwrap().into_inner();
    let end = async {
        loop {
            if let Err(status) = stream.message().await {
                return status;
            }
        }
    };
    let ended = tokio::time::timeout(PATIENCE, end).await.expect("it goes on");
    assert!(ended.message().contains("has expired or was revoked"), "{ended}");
    let refused = remote.audit.verify_log(bearer.shows(v1::VerifyLogRequest {})).await.unwrap_err();
    assert!(refused.message().contains("has expired"), "{refused}");
    let mut local = daemon.connect().await;
    let attempts = local.events_when("", "escalation_attempt", |attempts| !attempts.is_empty()).await;
    assert_eq!(record(&attempts[0])["details"]["attempt"], "expired_token");
}

/// Serves what is said at the moment, over TLS, as `localhost`. Returns the port.
async fn serve(certificates: &Certificates, said: watch::Receiver<String>) -> u16 {
    let at = certificates.directory().join("server");
    let chain = CertificateDer::pem_file_iter(at.join("cert.pem")).unwrap().map(Result::unwrap).collect();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_file(at.join("key.pem")).unwrap())
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let acceptor = TlsAcceptor::from(Arc::new(config));
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let _ = stream.read(&mut [0; 4_096]).await;
            let answer = said.borrow().clone();
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn j4_keys_of_a_url_are_fetched_rotated_and_kept_while_it_is_down() {
    let (mut issuer, certificates) = (Issuer::default(), Certificates::make(&[]));
    let ok = |keys: String| format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{keys}", keys.len());
    let (say, said) = watch::channel("HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n".to_owned());
    let port = serve(&certificates, said).await;
    let config = issuer.config(&format!("url: 'https://localhost:{port}/keys'"), GRANTS);
    let environment = vec![("SSL_CERT_FILE", certificates.authority().display().to_string())];
    let setup = Setup { config, tcp: certificates.listen("tokens: {}"), environment, ..Default::default() };
    // Its issuer is down, and it starts.
    let daemon = Daemon::start_with(setup).await;
    let mut remote = Clients::on(certificates.connect(&daemon, None).await.unwrap());
    let mut ask =
        async |token: &str| remote.audit.verify_log(Bearer::new(token).shows(v1::VerifyLogRequest {})).await;
    let first = issuer.token("bob", &["audit"], HOUR);
    let refused = ask(&first).await.unwrap_err();
    assert_eq!(
        (reason(&refused).as_str(), refused.code()),
        ("OVERLOADED", Code::ResourceExhausted),
        "{refused}"
    );
    let warned = async {
        while !daemon.log().contains("answered 503") {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, warned).await.expect("nobody is told that the issuer is down");
    say.send_replace(ok(issuer.keys()));
    let opened = async {
        while ask(&first).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, opened).await.expect("the keys do not come");
    // Another key: the issuer is asked, and not too often.
    issuer.rotate();
    let second = issuer.token("bob", &["audit"], HOUR);
    say.send_replace(ok(issuer.keys()));
    let opened = async {
        while ask(&second).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, opened).await.expect("the new key does not come");
    let refused = ask(&first).await.unwrap_err();
    assert!(matches!(reason(&refused).as_str(), "PERMISSION_DENIED" | "OVERLOADED"), "{refused}");
    // It is down again, and whom it has named goes on.
    say.send_replace("nonsense".to_owned());
    issuer.rotate();
    ask(&issuer.token("bob", &["audit"], HOUR)).await.unwrap_err();
    ask(&second).await.unwrap();
}

/// What `coffer doctor` says.
async fn doctor(daemon: &Daemon) -> String {
    let mut coffer = tokio::process::Command::new(binary("coffer"));
    coffer.env("COFFERDAM_ENDPOINT", format!("unix:{}", daemon.socket().display())).arg("doctor");
    let output = tokio::time::timeout(PATIENCE, coffer.kill_on_drop(true).output()).await;
    let output = output.expect("it does not end").unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn j7_the_doctor_reports_for_each_issuer_if_its_keys_can_be_fetched() {
    let issuer = Issuer::default();
    // It takes connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let keys = format!("url: 'https://localhost:{}/keys?secret'", silent.local_addr().unwrap().port());
    let other = issuer
        .config(&keys, GRANTS)
        .replace("name: corp, issuer: 'https://login", "name: other, issuer: 'https://other");
    let first = issuer.config_with_file(GRANTS);
    let config =
        format!("{}, {}", first.trim_end().trim_end_matches(']'), other.trim_start_matches("oidc: ["));
    let daemon = Daemon::start_with(Setup { config, ..Default::default() }).await;
    let said = doctor(&daemon).await;
    let line = |name: &str| {
        let line = said.lines().find(|line| line.contains(&format!(" {name}: ")));
        line.unwrap_or_else(|| panic!("{name}: {said}")).to_owned()
    };
    assert!(line("corp").starts_with("ok "), "{said}");
    assert!(line("corp").ends_with("corp: 1 key in force, until the file changes"), "{said}");
    assert!(line("other").starts_with("limited "), "{said}");
    assert!(line("other").contains("other: no key in force: no answer"), "{said}");
    assert!(!said.contains("secret"), "{said}");
    std::fs::write(issuer.file(), "nonsense").unwrap();
    let told = async {
        while !doctor(&daemon)
            .await
            .contains("corp: holds no JWK Set: a JSON object with `keys`; 1 key in force")
        {}
    };
    tokio::time::timeout(PATIENCE, told).await.expect("a file that is broken is not told");
}
