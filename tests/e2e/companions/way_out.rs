//! Companions with rules for connections of their own.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use harness::egress::workers;
use harness::server::Server;
use harness::v1::companion_status::State;
use harness::v1::decide_approval_request::Decision;
use harness::v1::watch_connections_response::Update;
use harness::{pending, reason};
use parking_lot::Mutex;
use v1::egress_service_client::EgressServiceClient;

use super::*;

/// Serves files, and gets what a program of the run asks for by the query of `/cgi-bin/get`.
const RELAY: &str = "busybox mkdir -p /www/cgi-bin; \
    printf '#!/bin/sh\\necho \"Content-Type: text/plain\"; echo; busybox wget -qO- \"http://$QUERY_STRING\" 2>&1\\n' \
    >/www/cgi-bin/get; busybox chmod 755 /www/cgi-bin/get; exec httpd -f -p 5432 -h /www";
/// Names of servers of the tests.
const HOSTS: &str = "egress: { hosts: { files.example.org: 127.0.0.1, git.example.org: 127.0.0.1, api.example.org: 127.0.0.1 } }\n";

/// Returns keys of a profile that opens a host over HTTP to each companion.
fn opens(host: &str, port: u16, decision: &str) -> String {
    keys(&format!("{{ host: {host}, ports: [{port}], scheme: http, decision: {decision} }}"), "")
}

fn keys(rule: &str, more: &str) -> String {
    format!(
        ", egress: {{ \"cofferdam-test/companion-*\": {{ networks: [\"127.0.0.0/8\"], rules: [{rule}]{more} }} }}"
    )
}

/// Has the companion `db` get a page, and returns what it says.
async fn gets(run: &mut RunHandle, page: &str) -> String {
    shell(run, &format!("wget -qO- 'http://db:5432/cgi-bin/get?{page}'")).await.1
}

/// Returns the run's connections and refused hosts.
async fn listed(run: &RunHandle) -> (Vec<v1::Connection>, Vec<v1::RefusedHost>) {
    let request = v1::WatchConnectionsRequest { run_id: run.id().to_owned(), follow: false };
    let mut client = EgressServiceClient::new(run.clients.channel.clone());
    let mut stream = client.watch_connections(request).await.unwrap().into_inner();
    let (mut connections, mut refused) = (Vec::new(), Vec::new());
    while let Some(response) = stream.message().await.unwrap() {
        match response.update.unwrap() {
            Update::Connection(connection) => connections.push(connection),
            Update::Refused(host) => refused.push(host),
        }
    }
    (connections, refused)
}

fn is_of_db(details: &serde_json::Value) -> bool {
    details["companion"] == "db"
}

#[tokio::test(flavor = "multi_thread")]
async fn co19_a_companion_reaches_the_hosts_of_its_rules_alone_and_on_record() {
    let (http, other) = (Server::http().await, Server::http().await);
    let daemon = daemon_with(HOSTS, &opens("files.example.org", http.port, "allow"), "").await;
    let image = image("co19");
    let both = vec![companion("db", &image, RELAY), companion("cache", &image, SERVE)];
    let mut run = daemon.run_on(request(both)).await;
    let page = format!("files.example.org:{}/x", http.port);
    assert_eq!(gets(&mut run, &page).await, "GET /x HTTP/1.1\n");
    let intent = details(&mut run, "egress_intent", is_of_db).await;
    assert_eq!((&intent["host"], &intent["port"]), (&"files.example.org".into(), &http.port.into()));
    assert_eq!(intent["calls"], serde_json::Value::Null, "no call is known to have opened it");
    let receipt = details(&mut run, "egress_receipt", is_of_db).await;
    assert_eq!((&receipt["connection"], &receipt["cause"]), (&intent["connection"], &"closed".into()));
    // Other hosts, other ports, addresses, the run and the other companion are not open to it.
    for closed in [
        format!("git.example.org:{}/", http.port),
        format!("files.example.org:{}/", other.port),
        format!("127.0.0.1:{}/", http.port),
        "10.1.2.3/".to_owned(),
        "cache:5432/page".to_owned(),
    ] {
        let said = gets(&mut run, &closed).await;
        assert!(!said.contains("GET /") && !said.contains("hello"), "{closed}: {said}");
    }
    assert_eq!((http.connections(), other.connections()), (1, 0));
    let refused = details(&mut run, "egress_refused", |details| details["host"] == "git.example.org").await;
    assert_eq!((&refused["companion"], &refused["rule"]), (&"db".into(), &"egress: unknown name".into()));
    let refused = details(&mut run, "egress_refused", |details| details["host"] == "10.1.2.3").await;
    assert_eq!(refused["companion"], "db");
    // Nothing of this is open to the run.
    assert_ne!(shell(&mut run, &format!("wget -qO- http://{page}")).await.0, Some(0));
    assert_eq!(http.connections(), 1);
    let (connections, refused) = listed(&run).await;
    let of_files: Vec<_> = connections
        .iter()
        .filter(|one| one.host == "files.example.org" && one.port == u32::from(http.port))
        .collect();
    assert!(of_files.len() == 1 && of_files[0].companion == "db", "{connections:?}");
    let of_run = connections.iter().filter(|one| one.host == "companion:db");
    assert!(of_run.clone().count() > 0 && of_run.clone().all(|one| one.companion.is_empty()));
    let refused = |companion: &str, host: &str| {
        refused.iter().any(|one| one.companion == companion && one.host == host)
    };
    assert!(refused("db", "git.example.org") && refused("db", "cache") && refused("", "files.example.org"));
    let shown = run.show().await.companions;
    assert!(shown.iter().all(|companion| companion.egress.contains("files.example.org")), "{shown:?}");
    assert!(run.clients.verify().await.intact);
}

#[tokio::test(flavor = "multi_thread")]
async fn co20_what_a_companion_fetches_before_it_is_ready_arrives() {
    let http = Server::http().await;
    let daemon = daemon_with(HOSTS, &opens("files.example.org", http.port, "allow"), "").await;
    let image = image("co20");
    let script = format!(
        "busybox wget -qO /www/first http://files.example.org:{}/first || exit 9; {SERVE}",
        http.port
    );
    let mut run = daemon.run_on(request(vec![companion("db", &image, &script)])).await;
    assert_eq!(page(&mut run, "first").await, "GET /first HTTP/1.1\n");
    assert_eq!(details(&mut run, "egress_intent", is_of_db).await["requests"][0]["path"], "/first");
    run.stop().await;
    // The names of a launch that fails are removed, too.
    let refused = refused(&daemon, vec![companion("db", &image, &format!("{script} -x"))]).await;
    assert!(refused.message().contains("db"), "{refused}");
    assert_eq!(daemon.left_by_runs(), (Vec::new(), Vec::new()));
    assert_eq!(workers(&daemon), Vec::<u32>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn co21_a_reviewer_decides_about_a_connection_of_a_companion() {
    let http = Server::http().await;
    let asks = opens("files.example.org", http.port, "ask");
    let daemon = daemon_with(HOSTS, &asks, "    approvals: { remember: [digest] }\n").await;
    let image = image("co21");
    let mut run = daemon.run_on(request(vec![companion("db", &image, RELAY)])).await;
    let get = format!("wget -qO- 'http://db:5432/cgi-bin/get?files.example.org:{}/x'", http.port);
    for (decision, answered) in [(Decision::Approve, true), (Decision::Deny, false)] {
        let waits = run.waits(calls::shell(&get));
        let approval = pending(&mut run).await;
        assert_eq!(approval.operation, "connect");
        assert!(approval.preview.contains("A program in the run's companion db wants files.example.org"));
        assert!(approval.operation_json.contains("\"companion\":\"db\""), "{}", approval.operation_json);
        run.clients.decide(&approval.approval_id, decision).await.unwrap();
        let Some(v1::result::Kind::Shell(ran)) = waits.await.unwrap().unwrap().into_kind() else {
            panic!("no shell")
        };
        assert_eq!(ran.stdout.contains("GET /x HTTP/1.1"), answered, "{}", ran.stdout);
    }
    assert_eq!(http.connections(), 1);
    let id = run.id().to_owned();
    let events = run.clients.events(&id, "approval_requested").await;
    assert_eq!(events.len(), 2);
    // Consent to it opens nothing to the run.
    assert_ne!(
        shell(&mut run, &format!("wget -qO- http://files.example.org:{}/x", http.port)).await.0,
        Some(0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn co22_a_request_narrows_the_rules_of_an_image_and_widens_none() {
    let http = Server::http().await;
    let daemon = daemon_with(HOSTS, &opens("\"*.example.org\"", http.port, "allow"), "").await;
    let image = image("co22");
    let with = |egress_json: &str| v1::Companion {
        egress_json: egress_json.to_owned(),
        ..companion("db", &image, RELAY)
    };
    let wider = refused(&daemon, vec![with(r#"{"only": ["files.example.net"]}"#)]).await;
    assert_eq!(reason(&wider), "INVALID_ARGUMENT");
    assert!(wider.message().contains("db: egress_json"), "{wider}");
    let files = format!("files.example.org:{}/x", http.port);
    let git = format!("git.example.org:{}/x", http.port);
    let mut run = daemon.run_on(request(vec![with(r#"{"only": ["files.example.org"]}"#)])).await;
    assert_eq!(gets(&mut run, &files).await, "GET /x HTTP/1.1\n");
    assert!(!gets(&mut run, &git).await.contains("GET /x"));
    let created = details(&mut run, "run_created", |_| true).await;
    assert!(created["companions"][0]["egress"].is_object(), "{created}");
    // Without connections, by its own list and by that of its run.
    let closed = CreateRunRequest { egress_json: "{}".to_owned(), ..request(vec![with("")]) };
    for without in [request(vec![with("{}")]), closed] {
        let mut run = daemon.run_on(without).await;
        assert!(!gets(&mut run, &files).await.contains("GET /x"));
        assert_eq!(run.show().await.companions[0].egress, "");
    }
    assert_eq!(http.connections(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn co23_the_connections_of_a_companion_end_with_it_and_with_its_run() {
    let echo = Server::echo().await;
    let rule = format!("{{ host: files.example.org, ports: [{}], scheme: tcp, decision: allow }}", echo.port);
    let daemon = daemon_with(HOSTS, &keys(&rule, ""), "").await;
    let image = image("co23");
    let holds = format!("(sleep 1000 | busybox nc files.example.org {}) & {SERVE}", echo.port);
    let brief = format!("(sleep 1000 | busybox nc files.example.org {}) & sleep 3", echo.port);
    let brief = v1::Companion { ready: None, ..companion("brief", &image, &brief) };
    let mut run = daemon.run_on(request(vec![companion("db", &image, &holds), brief])).await;
    for name in ["db", "brief"] {
        let is_of = |details: &serde_json::Value| details["companion"] == name;
        assert_eq!(details(&mut run, "egress_intent", is_of).await["host"], "files.example.org");
    }
    let ended = details(&mut run, "egress_receipt", |details| details["companion"] == "brief").await;
    assert_eq!(ended["host"], "files.example.org", "{ended}");
    details(&mut run, "worker_event", |details| details["worker"] == "companion:brief").await;
    assert_eq!(run.show().await.companions.iter().filter(|one| one.state() == State::Ready).count(), 1);
    assert_eq!(workers(&daemon).len(), 2, "those of the run and of the companion that goes on");
    run.stop().await;
    let receipt = details(&mut run, "egress_receipt", is_of_db).await;
    assert_eq!(receipt["why"], "the companion has ended, or its run", "{receipt}");
    assert_eq!(workers(&daemon), Vec::<u32>::new());
    assert_eq!(daemon.left_by_runs(), (Vec::new(), Vec::new()));
    assert!(daemon.roots_are_gone());
}

#[tokio::test(flavor = "multi_thread")]
async fn co24_the_next_daemon_opens_the_way_out_of_a_companion_again() {
    let http = Server::http().await;
    let mut daemon = daemon_with(HOSTS, &opens("files.example.org", http.port, "allow"), "").await;
    let image = image("co24");
    let mut run = daemon.run_on(request(vec![companion("db", &image, RELAY)])).await;
    let files = format!("files.example.org:{}/x", http.port);
    assert_eq!(gets(&mut run, &files).await, "GET /x HTTP/1.1\n");
    daemon.relaunch().await;
    run.clients = daemon.connect().await;
    assert_eq!(run.show().await.restarts, 1);
    assert_eq!(gets(&mut run, &files).await, "GET /x HTTP/1.1\n");
    let closed = gets(&mut run, &format!("git.example.org:{}/x", http.port)).await;
    assert!(!closed.contains("GET /x"), "{closed}");
    // Without its process for a moment, as the run's would be.
    for worker in workers(&daemon) {
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(i32::try_from(worker).unwrap()).unwrap(),
            rustix::process::Signal::KILL,
        )
        .unwrap();
    }
    details(&mut run, "worker_event", |details| details["worker"] == "coffer-egress" && is_of_db(details))
        .await;
    let mut said = String::new();
    for _ in 0..600 {
        said = gets(&mut run, &files).await;
        if said == "GET /x HTTP/1.1\n" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(said, "GET /x HTTP/1.1\n", "another process serves");
    run.stop().await;
    assert_eq!(daemon.left_by_runs(), (Vec::new(), Vec::new()));
}

/// Answers each request over HTTP, and keeps the heads.
fn keeps_heads() -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let heads = Arc::<Mutex<Vec<String>>>::default();
    let kept = Arc::clone(&heads);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (mut head, mut piece) = (Vec::new(), [0; 4096]);
            while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                match stream.read(&mut piece) {
                    Ok(0) | Err(_) => break,
                    Ok(read) => head.extend_from_slice(&piece[..read]),
                }
            }
            kept.lock().push(String::from_utf8_lossy(&head).into_owned());
            let _ =
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n");
        }
    });
    (port, heads)
}

#[tokio::test(flavor = "multi_thread")]
async fn co25_a_companion_has_a_placeholder_and_its_requests_the_secret() {
    const SECRET: &str = "open-sesame-9876543210";
    let files = tempfile::tempdir().unwrap();
    let secret = files.path().join("model");
    std::fs::write(&secret, format!("{SECRET}\n")).unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let (port, heads) = keeps_heads();
    let config = format!("{HOSTS}secrets: {{ model: {{ file: '{}' }} }}\n", secret.display());
    let inject = "inject: { header: Authorization, value: \"Bearer ${secret:model}\" }";
    let rules = format!(
        "{{ host: api.example.org, ports: [{port}], scheme: http, {inject}, inject_over_http: true, decision: allow }}, \
         {{ host: files.example.org, ports: [443], {inject}, decision: allow }}"
    );
    let placeholder = ", placeholders: { MODEL_API_KEY: { secret: model, shape: \"key-{40}\" } }";
    let daemon = daemon_with(&config, &keys(&rules, placeholder), "").await;
    let image = image("co25");
    let script = format!(
        "echo \"$MODEL_API_KEY\" >/www/key; echo \"$SSL_CERT_FILE\" >/www/bundle; \
         busybox grep -c BEGIN \"$SSL_CERT_FILE\" >/www/certificates; {RELAY}"
    );
    let mut run = daemon.run_on(request(vec![companion("db", &image, &script)])).await;
    let key = page(&mut run, "key").await;
    assert!(key.starts_with("key-") && key.trim().len() == 44, "{key}");
    assert_eq!(page(&mut run, "bundle").await, "/.cofferdam/ca-bundle.pem\n");
    assert!(page(&mut run, "certificates").await.trim().parse::<u32>().unwrap() > 0);
    assert_eq!(gets(&mut run, &format!("api.example.org:{port}/v1")).await, "ok\n");
    let head = heads.lock().remove(0);
    assert!(head.contains(&format!("Bearer {SECRET}")), "{head}");
    let receipt = details(&mut run, "egress_receipt", |details| {
        is_of_db(details) && details["host"] == "api.example.org"
    });
    assert_eq!(receipt.await["injected"], serde_json::json!(["model"]));
    // The run has neither the variable nor the value, and neither is in a description.
    assert_eq!(shell(&mut run, "printf %s \"$MODEL_API_KEY\"").await.1, "");
    let described = serde_json::to_string(&beside(&daemon)).unwrap();
    assert!(!described.contains(SECRET) && !described.contains(key.trim()));
    let mut other = daemon.run_on(request(vec![companion("db", &image, &script)])).await;
    assert_ne!(page(&mut other, "key").await, key, "each run has another");
}

#[tokio::test(flavor = "multi_thread")]
async fn co26_bytes_of_companions_count_for_the_bound_of_their_run() {
    let http = Server::http().await;
    let of_run = "    egress: { max_bytes: 4KiB }\n";
    let daemon = daemon_with(HOSTS, &opens("files.example.org", http.port, "allow"), of_run).await;
    let image = image("co26");
    let fills = format!(
        "i=0; while [ $i -lt 60 ]; do busybox wget -qO- http://files.example.org:{}/$i; i=$((i+1)); done >/www/all; {SERVE}",
        http.port
    );
    let mut run = daemon.run_on(request(vec![companion("db", &image, &fills)])).await;
    let refused = details(&mut run, "egress_refused", is_of_db).await;
    assert!(refused["why"].as_str().unwrap().contains("max_bytes"), "{refused}");
    // None is left for the run.
    assert_ne!(shell(&mut run, "wget -qO- http://db:5432/page").await.0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn co26_bytes_of_a_companion_that_has_ended_count_after_a_restart() {
    let http = Server::http().await;
    let of_run = "    egress: { max_bytes: 4KiB }\n";
    let mut daemon = daemon_with(HOSTS, &opens("files.example.org", http.port, "allow"), of_run).await;
    let image = image("co26-ended");
    let fills = format!(
        "i=0; while [ $i -lt 60 ]; do busybox wget -qO- http://files.example.org:{}/$i; i=$((i+1)); done >/www/all; sleep 3",
        http.port
    );
    let brief = v1::Companion { ready: None, ..companion("brief", &image, &fills) };
    let mut run = daemon.run_on(request(vec![companion("db", &image, SERVE), brief])).await;
    let is_of_brief = |details: &serde_json::Value| details["companion"] == "brief";
    let refused = details(&mut run, "egress_refused", is_of_brief).await;
    assert!(refused["why"].as_str().unwrap().contains("max_bytes"), "{refused}");
    details(&mut run, "worker_event", |details| details["worker"] == "companion:brief").await;
    daemon.relaunch().await;
    run.clients = daemon.connect().await;
    assert_eq!(run.show().await.restarts, 1);
    // The run has moved none itself, and none is left for it.
    assert_ne!(shell(&mut run, "wget -qO- http://db:5432/page").await.0, Some(0));
    let refused = details(&mut run, "egress_refused", |details| details["host"] == "companion:db").await;
    assert!(refused["why"].as_str().unwrap().contains("max_bytes"), "{refused}");
}
