//! The unchanged example of `clients/rust`, by each way to the daemon, and that of the book.

use std::time::Duration;

use harness::{Certificates, Clients, Daemon, Setup, binary, v1};

const EXAMPLE: &str = include_str!("../../clients/rust/examples/first_run.rs");

/// What it prints, with these variables and no others of ours.
async fn printed(variables: &[(&str, String)]) -> Result<String, String> {
    let mut command = tokio::process::Command::new(binary("examples/first_run"));
    for name in ["COFFERDAM_ENDPOINT", "COFFERDAM_TOKEN", "COFFERDAM_TLS"] {
        command.env_remove(name);
    }
    command.envs(variables.iter().map(|(name, value)| (name, value))).kill_on_drop(true);
    let output = tokio::time::timeout(Duration::from_secs(60), command.output()).await;
    let output = output.expect("the example does not end").unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

#[tokio::test(flavor = "multi_thread")]
async fn example_of_thirty_lines_works_over_every_transport() {
    assert!(EXAMPLE.lines().count() <= 30, "{} lines", EXAMPLE.lines().count());
    let certificates = Certificates::make(&["ci"]);
    let setup = Setup {
        config: "access: [{ certificate: ci, roles: [orchestrator] }]\n".into(),
        tcp: certificates.listen("tokens: {}"),
        ..Default::default()
    };
    let tls = Daemon::start_with(setup).await;
    let tcp = "address: '127.0.0.1:0', plaintext: true, tokens: {}".to_owned();
    let plain = Daemon::start_with(Setup { tcp, ..Default::default() }).await;
    let orchestrator =
        v1::Token { name: "a".into(), roles: vec!["orchestrator".into()], ..Default::default() };
    let secret = async |daemon: &Daemon| daemon.token(orchestrator.clone(), None).await.1;
    let directory = certificates.client("ci").display().to_string();
    let authority = certificates.authority().parent().unwrap().join("only-the-authority");
    std::fs::create_dir(&authority).unwrap();
    std::fs::copy(certificates.authority(), authority.join("ca.pem")).unwrap();
    let authority = authority.display().to_string();
    let (socket, https, http) =
        (format!("unix:{}", tls.socket().display()), tls.url("https"), plain.url("http"));
    let (of_tls, of_plain) = (secret(&tls).await, secret(&plain).await);

    for variables in [
        vec![("COFFERDAM_ENDPOINT", socket)],
        vec![("COFFERDAM_ENDPOINT", https.clone()), ("COFFERDAM_TLS", directory)],
        vec![
            ("COFFERDAM_ENDPOINT", https.clone()),
            ("COFFERDAM_TLS", authority.clone()),
            ("COFFERDAM_TOKEN", of_tls),
        ],
        vec![("COFFERDAM_ENDPOINT", http.clone()), ("COFFERDAM_TOKEN", of_plain)],
    ] {
        let out = printed(&variables).await.unwrap();
        assert!(out.starts_with("hello\n") && out.contains(" Ready\n"), "{out}");
    }
    // Nothing else is a way in: no token, another daemon's authority, and another host in the clear.
    for (variables, says) in [
        (vec![("COFFERDAM_ENDPOINT", http)], "no token and the connection no client certificate"),
        (vec![("COFFERDAM_ENDPOINT", https)], "Unreachable"),
        (vec![("COFFERDAM_ENDPOINT", "http://192.0.2.1:1".to_owned())], "InTheClear"),
        (vec![("COFFERDAM_ENDPOINT", "unix:/nonexistent/cofferd.sock".to_owned())], "Unreachable"),
    ] {
        let failed = printed(&variables).await.unwrap_err();
        assert!(failed.contains(says), "{says}: {failed}");
    }
    // Its runs are over.
    let mut clients = Clients::on(tls.connect().await.channel);
    let runs = clients.runs.list_runs(v1::ListRunsRequest::default()).await.unwrap().into_inner().runs;
    assert!(runs.len() == 3 && runs.iter().all(|run| run.state() != v1::run::State::Ready), "{runs:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn loop_of_the_book_repairs_a_program_and_exports_the_change() {
    let daemon = Daemon::start().await;
    let test = ". ./area.sh\n[ \"$(area 6 7)\" = 42 ] && echo passed\n";
    let area = "area() { echo $(($1 + $2)); }\n";
    let repository = daemon.repository("area", &[("area.sh", area), ("test.sh", test)]);
    let place = tempfile::tempdir().unwrap();
    let mut command = tokio::process::Command::new(binary("examples/book_loop"));
    command
        .arg(repository)
        .current_dir(place.path())
        .env("COFFERDAM_ENDPOINT", format!("unix:{}", daemon.socket().display()))
        .env_remove("COFFERDAM_TOKEN")
        .env_remove("COFFERDAM_TLS")
        .kill_on_drop(true);
    let output = tokio::time::timeout(Duration::from_secs(60), command.output()).await;
    let output = output.expect("the example does not end").unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told = String::from_utf8(output.stdout).unwrap();
    let expected = "before: Some(1)\nafter: passed\nrefused: COMMAND_NOT_ALLOWED\n\
                    event: exec\nevent: write\nevent: exec\nevent: exec\n";
    assert_eq!(told, expected);
    let change = std::fs::read_to_string(place.path().join("change.diff")).unwrap();
    assert!(change.contains("\n+area() { echo $(($1 * $2)); }\n"), "{change}");
}
