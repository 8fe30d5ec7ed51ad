//! The page on TLS.

use harness::{Daemon, until};

use super::{Operator, REFUSED, UNREACHABLE, block};

const PAGE: &str = include_str!("../../../docs/src/operating/tls.md");

/// Returns the page's keys of the configuration.
fn configuration() -> &'static str {
    PAGE.split_once("```yaml config\n").unwrap().1.split_once("```").unwrap().0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_connects_by_the_pages_commands_and_is_refused_without_its_certificate() {
    let mut daemon = Daemon::start().await;
    let mut operator = Operator::of(&daemon);
    let etc = operator.home().join("etc").display().to_string();
    operator.replaced = vec![
        // The same host plays all parts.
        ("scp -r", "cp -R".to_owned()),
        ("root@cofferd.example.org:", String::new()),
        ("/etc/cofferdam", etc),
        ("/run/cofferdam/cofferd.sock", daemon.socket().display().to_string()),
        ("0.0.0.0:7443", "'127.0.0.1:0'".to_owned()),
        ("--host cofferd.example.org", "--host localhost".to_owned()),
    ];
    for name in ["make", "prepare", "copy"] {
        operator.does(block(PAGE, name)).await;
    }
    daemon.stop().await;
    let before = std::fs::read_to_string(daemon.config_path()).unwrap();
    let rest: Vec<_> = before.lines().filter(|line| !line.starts_with("listen:")).collect();
    let config = format!("{}{}\n", operator.adapt(configuration()), rest.join("\n"));
    std::fs::write(daemon.config_path(), config).unwrap();
    operator.does("cofferd --check-config").await;
    daemon.launch().await;
    operator.replaced.push(("https://cofferd.example.org:7443", daemon.url("https")));

    let told = operator.does(block(PAGE, "use")).await;
    assert!(told.contains("intact: "), "{told}");
    let anonymous =
        format!("coffer --endpoint {} --ca ~/cofferdam-tls/clients/ci/ca.pem run list", daemon.url("https"));
    let refused = operator.fails(UNREACHABLE, &anonymous).await;
    let words = "it requires a client certificate";
    assert!(refused.contains(words) && PAGE.contains(words), "{refused}");

    let made = operator.does(block(PAGE, "another")).await;
    assert!(made.trim().ends_with("cofferdam-tls/clients/bob"), "{made}");
    let bob = block(PAGE, "use").replace("clients/ci", "clients/bob");
    let refused = operator.fails(REFUSED, &bob).await;
    assert!(refused.contains("cert:bob has no role that allows this"), "{refused}");

    operator.does(block(PAGE, "renew")).await;
    let renewed = async || daemon.log().contains("new TLS certificates are in force");
    until("the new certificates are not read", renewed).await;
    operator.does(block(PAGE, "use")).await;

    let doctor = operator.does("coffer doctor").await;
    assert!(doctor.contains("TLS certificates") && doctor.contains("is valid until"), "{doctor}");
    operator.does(&block(PAGE, "renew").replace("rotate", "rotate --days 7")).await;
    let warned =
        async || daemon.log().contains("listen.tcp.tls.certificate: certificate 1 of the file expires in");
    until("the daemon does not warn", warned).await;
    let doctor = operator.does("coffer doctor").await;
    assert!(
        doctor.contains("certificate 1 of the file expires in") && PAGE.contains("TLS certificates"),
        "{doctor}"
    );
}
