//! Runs with a way out: names, rules, records, and what stays closed.

mod ask;
mod encrypted_hello;
mod hostile;
mod incapable;
mod opened;
mod programs;
mod seen;
mod share;
mod site;
mod spent;
mod tenant;
mod traced;
mod trust;
mod upstream;
mod witness;
mod world;

use std::time::Duration;

use harness::egress::workers;
use harness::{Daemon, RunHandle, Setup, calls, dev_image, reason, record, requests, server, v1};
use tonic::transport::Channel;
use v1::egress_service_client::EgressServiceClient;
use v1::watch_connections_response::Update;

use server::Server;

/// A daemon that gives `*.example.org` addresses of the host's loopback, with a profile `out`.
async fn daemon(egress: &str) -> Daemon {
    daemon_with("", egress).await
}

/// The same with further lines of the configuration.
async fn daemon_with(config: &str, egress: &str) -> Daemon {
    daemon_of(config, egress, "").await
}

/// The same with further lines of the policy.
async fn daemon_of(config: &str, egress: &str, more: &str) -> Daemon {
    daemon_trusting("", config, egress, more).await
}

/// The same with a file of authorities by which servers of opened connections are signed, or none.
async fn daemon_trusting(authorities: &str, config: &str, egress: &str, more: &str) -> Daemon {
    daemon_in(Vec::new(), authorities, config, egress, more).await
}

/// The same with further variables of its environment.
async fn daemon_in(
    environment: Vec<(&'static str, String)>,
    authorities: &str,
    config: &str,
    egress: &str,
    more: &str,
) -> Daemon {
    let hosts = format!(
        "harness_on_bind: allow\negress: {{ authorities: [{authorities}], hosts: {{ files.example.org: 127.0.0.1, git.example.org: 127.0.0.1, \
         inner.example.org: 10.1.2.3, mixed.example.org: [10.1.2.3, 127.0.0.1] }} }}\n"
    );
    let policy = format!(
        "profiles:\n  out:\n    workspace: read-write\n    operations: {{ shell: allow, read: allow, write: allow }}\n    \
         allowed_images: [\"*\"]\n    limits: {{ open_files: 8192 }}\n    exec: {{ default: allow, deny_list: off, default_timeout_s: 240, max_timeout_s: 240 }}\n    \
         rate_limits: {{ operations: {{ default: {{ minute: unlimited, hour: unlimited, day: unlimited }} }} }}\n    egress: {egress}\n  none:\n    operations: {{ shell: allow }}\n    \
         exec: {{ default: allow }}\nroles: {{ director: {{ allow: \"*\" }} }}\n{more}"
    );
    let policy = vec![("out.yaml", policy)];
    let config = format!("{hosts}{config}");
    Daemon::start_with(Setup { config, policy, environment, ..Default::default() }).await
}

/// Rules for one host over HTTP, and for another over anything.
fn rules(http: u16, tcp: u16) -> String {
    format!(
        "{{ networks: [\"127.0.0.0/8\"], rules: [\
         {{ host: files.example.org, ports: [{http}], scheme: http, methods: [GET], decision: allow }}, \
         {{ host: git.example.org, ports: [{tcp}], scheme: tcp, decision: allow }}] }}"
    )
}

fn client(run: &RunHandle) -> EgressServiceClient<Channel> {
    EgressServiceClient::new(run.clients.channel.clone())
}

async fn shell(run: &mut RunHandle, script: &str) -> (Option<i32>, String) {
    let ran = run.ran(calls::shell(script)).await;
    (ran.exit_code, format!("{}{}", ran.stdout, ran.stderr))
}

/// Waits until the log has so many events of a kind, and returns their details.
async fn details(run: &mut RunHandle, kind: &str, count: usize) -> Vec<serde_json::Value> {
    let id = run.id().to_owned();
    for _ in 0..1_200 {
        let events = run.clients.events(&id, kind).await;
        if events.len() >= count {
            return events.iter().map(|event| record(event)["details"].clone()).collect();
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("the log has fewer than {count} events {kind}");
}

async fn listed(run: &mut RunHandle) -> (Vec<v1::Connection>, Vec<v1::RefusedHost>) {
    let request = v1::WatchConnectionsRequest { run_id: run.id().to_owned(), follow: false };
    let mut stream = client(run).watch_connections(request).await.unwrap().into_inner();
    let (mut connections, mut refused) = (Vec::new(), Vec::new());
    while let Some(response) = stream.message().await.unwrap() {
        match response.update.unwrap() {
            Update::Connection(connection) => connections.push(connection),
            Update::Refused(host) => refused.push(host),
        }
    }
    (connections, refused)
}

#[tokio::test(flavor = "multi_thread")]
async fn n1_an_allowed_name_is_reached_and_is_on_record_before_and_after() {
    let (http, echo) = (Server::http().await, Server::echo().await);
    let daemon = daemon(&rules(http.port, echo.port)).await;
    let mut run = daemon.run_on(requests::managed("out")).await;
    let call = run.call(calls::shell(&format!("wget -qO- http://files.example.org:{}/a?b", http.port))).await;
    let call = call.unwrap();
    let Some(v1::result::Kind::Shell(ran)) = call.clone().into_kind() else { panic!("{call:?}") };
    assert_eq!((ran.stdout.as_str(), ran.exit_code), ("GET /a?b HTTP/1.1\n", Some(0)), "{ran:?}");

    let intent = details(&mut run, "egress_intent", 1).await.remove(0);
    assert_eq!(intent["host"], "files.example.org");
    assert_eq!(intent["port"], http.port);
    assert_eq!(intent["calls"], serde_json::json!([call.call_id]));
    assert_eq!(intent["requests"][0]["path"], "/a?b");
    let receipt = details(&mut run, "egress_receipt", 1).await.remove(0);
    assert_eq!(receipt["connection"], intent["connection"]);
    assert_eq!(
        (&receipt["address"], &receipt["cause"]),
        (&"127.0.0.1".into(), &"closed".into()),
        "{receipt}"
    );
    assert_eq!(receipt["requests"][0]["status"], 200, "{receipt}");
    assert!(receipt["bytes_in"].as_u64().unwrap() > 19, "{receipt}");
    let (connections, refused) = listed(&mut run).await;
    assert_eq!((connections.len(), refused), (1, Vec::new()));
    assert_eq!(connections[0].connection_id, intent["connection"].as_str().unwrap());

    // A program may close its side and wait.
    let half = format!(
        "printf 'GET /h HTTP/1.1\\r\\nHost: files.example.org\\r\\n\\r\\n' | nc -w 5 files.example.org {}",
        http.port
    );
    let (_, said) = shell(&mut run, &half).await;
    assert!(said.contains("\r\n\r\nGET /h HTTP/1.1\n"), "{said}");

    // Anything at all, where a rule says so.
    let (code, said) = shell(&mut run, &format!("echo hello | nc -w 5 git.example.org {}", echo.port)).await;
    assert_eq!((code, said.as_str()), (Some(0), "hello\n"));
    assert_eq!((http.connections(), echo.connections()), (2, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn n2_other_names_ports_methods_and_literals_reach_nothing_and_are_on_record() {
    let (http, echo) = (Server::http().await, Server::echo().await);
    let daemon = daemon(&rules(http.port, echo.port)).await;
    let mut run = daemon.run_on(requests::managed("out")).await;
    let (http_port, tcp_port) = (http.port, echo.port);
    for script in [
        format!("wget -qO- http://other.example.org:{http_port}/"),
        format!("wget -qO- http://example.org:{http_port}/"),
        format!("wget -qO- http://files.example.org:{tcp_port}/"),
        format!("wget -qO- --post-data x http://files.example.org:{http_port}/"),
        format!("wget -qO- --header 'Host: other.example.org' http://files.example.org:{http_port}/"),
        "echo x | nc -w 5 10.1.2.3 22".to_owned(),
        "echo x | nc -w 5 169.254.169.254 80".to_owned(),
        format!("echo x | nc -w 5 11.200.9.9 {tcp_port}"),
    ] {
        // `nc` calls a connection that was reset its end.
        let (code, said) = shell(&mut run, &script).await;
        assert!(code != Some(0) || said.is_empty(), "{script}: {said}");
    }
    assert_eq!((http.connections(), echo.connections()), (0, 0), "nothing arrived");
    let refused = details(&mut run, "egress_refused", 7).await;
    let hosts: Vec<&str> = refused.iter().filter_map(|refused| refused["host"].as_str()).collect();
    for host in
        ["other.example.org", "example.org", "files.example.org", "10.1.2.3", "169.254.169.254", "11.200.9.9"]
    {
        assert!(hosts.contains(&host), "{host}: {hosts:?}");
    }
    let id = run.id().to_owned();
    assert_eq!(run.clients.events(&id, "egress_intent").await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn n3_names_of_refused_addresses_and_of_a_mix_reach_only_what_is_allowed() {
    let echo = Server::echo().await;
    let port = echo.port;
    let egress = format!(
        "{{ networks: [\"127.0.0.0/8\"], rules: [{{ host: '*.example.org', ports: [{port}], scheme: tcp, decision: allow }}] }}"
    );
    let daemon = daemon(&egress).await;
    let mut run = daemon.run_on(requests::managed("out")).await;
    let (code, said) = shell(&mut run, &format!("echo x | nc -w 5 inner.example.org {port}")).await;
    assert!(code != Some(0) || said.is_empty(), "{code:?} {said}");
    let receipt = details(&mut run, "egress_receipt", 1).await.remove(0);
    assert!(receipt["why"].as_str().unwrap().contains("RFC 1918"), "{receipt}");
    assert!(receipt.get("address").is_none(), "{receipt}");
    let (code, said) = shell(&mut run, &format!("echo x | nc -w 5 mixed.example.org {port}")).await;
    assert_eq!((code, said.as_str()), (Some(0), "x\n"));
    assert_eq!(details(&mut run, "egress_receipt", 2).await[1]["address"], "127.0.0.1");
}

#[tokio::test(flavor = "multi_thread")]
async fn n4_programs_keep_their_own_ports_and_the_loopback() {
    let daemon = daemon(&rules(80, 443)).await;
    let mut run = daemon.run_on(requests::managed("out")).await;
    let script = "(echo own | nc -l -p 8443 -w 5) & sleep 0.3; nc -w 2 127.0.0.1 8443 </dev/null; wait";
    let (code, said) = shell(&mut run, script).await;
    assert_eq!((code, said.as_str()), (Some(0), "own\n"));
    let (connections, refused) = listed(&mut run).await;
    assert_eq!((connections, refused), (Vec::new(), Vec::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn n5_a_run_without_rules_has_no_process_no_names_and_no_service() {
    let daemon = daemon(&rules(80, 443)).await;
    let narrowed = v1::CreateRunRequest { egress_json: "{}".to_owned(), ..requests::managed("out") };
    for request in [requests::managed("none"), narrowed] {
        let mut run = daemon.run_on(request).await;
        let (code, said) = shell(&mut run, "cat /etc/resolv.conf; nc -w 1 10.1.2.3 80").await;
        assert_ne!(code, Some(0), "the network is unreachable");
        assert!(!said.contains("nameserver"), "{said}");
        let request = v1::GetEgressRequest { run_id: run.id().to_owned() };
        let status = client(&run).get_egress(request).await.unwrap_err();
        assert_eq!(reason(&status), "PRECONDITION_FAILED");
        assert_eq!(workers(&daemon), Vec::<u32>::new());
    }
}

fn kill_workers(daemon: &Daemon) {
    for worker in workers(daemon) {
        let pid = rustix::process::Pid::from_raw(i32::try_from(worker).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn n6_a_killed_process_ends_its_connections_and_another_one_serves() {
    let (http, echo) = (Server::http().await, Server::echo().await);
    let daemon = daemon(&rules(http.port, echo.port)).await;
    let mut run = daemon.run_on(requests::managed("out")).await;
    let script = format!("(echo open; sleep 30) | nc git.example.org {} >got; echo over", echo.port);
    let waits = run.waits(calls::shell(&script));
    details(&mut run, "egress_intent", 1).await;
    kill_workers(&daemon);
    let receipt = details(&mut run, "egress_receipt", 1).await.remove(0);
    assert_eq!(receipt["cause"], "process_lost");
    let mut last = (None, String::new());
    for _ in 0..600 {
        last = shell(&mut run, &format!("wget -qO- http://files.example.org:{}/", http.port)).await;
        if last.0 == Some(0) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(last.1, "GET / HTTP/1.1\n");
    waits.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn n7_a_run_outlives_its_daemon_with_the_same_addresses_for_its_names() {
    let (http, echo) = (Server::http().await, Server::echo().await);
    let mut daemon = daemon(&rules(http.port, echo.port)).await;
    let mut run = daemon.run_on(requests::managed("out")).await;
    let look = "nslookup git.example.org | grep -A1 Name; nslookup files.example.org | grep -A1 Name";
    let (_, before) = shell(&mut run, look).await;
    assert!(before.contains("11.200.0."), "{before}");
    daemon.relaunch().await;
    run.clients = daemon.connect().await;
    let reversed = "nslookup files.example.org | grep -A1 Name; nslookup git.example.org | grep -A1 Name";
    let (_, after) = shell(&mut run, reversed).await;
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&after), sorted(&before));
    let (code, said) = shell(&mut run, &format!("wget -qO- http://files.example.org:{}/", http.port)).await;
    assert_eq!((code, said.as_str()), (Some(0), "GET / HTTP/1.1\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn n8_rules_are_narrowed_while_a_run_lives_and_never_widened() {
    let (http, echo) = (Server::http().await, Server::echo().await);
    let mut daemon = daemon(&rules(http.port, echo.port)).await;
    let mut run = daemon.run_on(requests::managed("out")).await;
    let waits = run.waits(calls::shell(&format!("(echo x; sleep 30) | nc git.example.org {}", echo.port)));
    details(&mut run, "egress_intent", 1).await;
    let narrow = |run: &RunHandle, text: String| v1::NarrowEgressRequest {
        run_id: run.id().to_owned(),
        egress_json: text,
    };
    let wider =
        narrow(&run, r#"{"rules":[{"host":"evil.example.org","ports":[443],"decision":"allow"}]}"#.into());
    let status = client(&run).narrow_egress(wider).await.unwrap_err();
    assert_eq!(reason(&status), "INVALID_ARGUMENT");
    let http_only = format!(
        r#"{{"networks":["127.0.0.0/8"],"rules":[{{"host":"files.example.org","ports":[{}],"scheme":"http","decision":"allow"}}]}}"#,
        http.port
    );
    let request = narrow(&run, http_only);
    let egress = client(&run).narrow_egress(request).await.unwrap().into_inner().egress.unwrap();
    assert!(egress.words.contains("files.example.org"), "{}", egress.words);
    let receipt = details(&mut run, "egress_receipt", 1).await.remove(0);
    assert!(receipt["why"].as_str().unwrap().contains("rules have changed"), "{receipt}");
    waits.abort();
    // Over a restart of the daemon, too.
    daemon.relaunch().await;
    run.clients = daemon.connect().await;
    let get = v1::GetEgressRequest { run_id: run.id().to_owned() };
    let again = client(&run).get_egress(get).await.unwrap().into_inner().egress.unwrap();
    assert_eq!(again.digest, egress.digest);
    let (_, said) = shell(&mut run, &format!("echo x | nc -w 2 git.example.org {}", echo.port)).await;
    assert!(!said.lines().any(|line| line == "x"), "{said}");
    let (code, _) = shell(&mut run, &format!("wget -qO- http://files.example.org:{}/", http.port)).await;
    assert_eq!(code, Some(0));
    assert_eq!(echo.connections(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_created_for_some_hosts_reaches_these_alone() {
    let (http, echo) = (Server::http().await, Server::echo().await);
    let daemon = daemon(&rules(http.port, echo.port)).await;
    let only = |host: &str| v1::CreateRunRequest {
        egress_json: format!(r#"{{"only":["{host}"]}}"#),
        ..requests::managed("out")
    };
    let mut run = daemon.run_on(only("files.example.org")).await;
    let (code, _) = shell(&mut run, &format!("wget -qO- http://files.example.org:{}/", http.port)).await;
    assert_eq!(code, Some(0));
    shell(&mut run, &format!("echo x | nc -w 2 git.example.org {}", echo.port)).await;
    assert_eq!(echo.connections(), 0);
    let refused = daemon.connect().await.runs.create_run(only("evil.example.org")).await.unwrap_err();
    assert_eq!(reason(&refused), "INVALID_ARGUMENT");
    assert!(refused.message().contains("`only` has evil.example.org"), "{}", refused.message());
}

#[tokio::test(flavor = "multi_thread")]
async fn n9_bounds_on_bytes_and_connections_hold_over_processes() {
    let (http, echo) = (Server::http().await, Server::echo().await);
    let bounds =
        rules(http.port, echo.port).replacen('{', "{ max_bytes: 100KiB, connections_per_minute: 5,", 1);
    let daemon = daemon(&bounds).await;
    let mut run = daemon.run_on(requests::managed("out")).await;
    let script =
        format!("head -c 300000 /dev/zero | nc -w 3 git.example.org {} 2>/dev/null | wc -c", echo.port);
    let (_, said) = shell(&mut run, &script).await;
    assert!(said.trim().lines().last().unwrap().parse::<u64>().unwrap() <= 100 << 10, "{said}");
    let receipt = details(&mut run, "egress_receipt", 1).await.remove(0);
    assert_eq!(receipt["cause"], "max_bytes", "{receipt}");
    // A run of its own: the bytes may be used up to the last one, and connections are then refused for that.
    let mut run = daemon.run_on(requests::managed("out")).await;
    for _ in 0..8 {
        shell(&mut run, &format!("wget -qO- http://files.example.org:{}/", http.port)).await;
    }
    let refused = details(&mut run, "egress_refused", 1).await;
    let rules: Vec<&str> = refused.iter().filter_map(|refused| refused["rule"].as_str()).collect();
    assert!(rules.contains(&"egress: connections_per_minute"), "{rules:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn n10_tools_of_the_dev_image_need_no_setting() {
    let (http, echo) = (Server::http().await, Server::echo().await);
    let daemon = daemon(&rules(http.port, echo.port)).await;
    let request = v1::CreateRunRequest { image: dev_image(), ..requests::managed("out") };
    let mut run = daemon.run_on(request).await;
    let url = format!("http://files.example.org:{}/x", http.port);
    for script in [
        format!("curl -fsS {url}"),
        format!(
            "python3 -c 'import urllib.request as u; print(u.urlopen(\"{url}\").read().decode(), end=\"\")'"
        ),
        format!("node -e 'fetch(\"{url}\").then(r => r.text()).then(t => process.stdout.write(t))'"),
    ] {
        let (code, said) = shell(&mut run, &script).await;
        assert_eq!((code, said.as_str()), (Some(0), "GET /x HTTP/1.1\n"), "{script}");
    }
    let other = format!("http://files.example.org:{}/", echo.port);
    let (code, said) = shell(&mut run, &format!("curl -sS {other}")).await;
    assert_ne!(code, Some(0), "{said}");
    let ran = run.ran(calls::shell("curl -sS http://other.example.org/")).await;
    assert!(ran.stderr.contains("Could not resolve host"), "{ran:?}");
    assert!(ran.hint.contains("other.example.org does not exist in this run"), "{ran:?}");
    let other = run.ran(calls::shell("exit 1")).await;
    assert_eq!(other.hint, "", "a later command has its own hints");
}

#[tokio::test(flavor = "multi_thread")]
async fn n11_a_warm_run_has_its_way_out() {
    let http = Server::http().await;
    let daemon = daemon_with("pool: [{ profile: out, min: 1, max: 1 }]\n", &rules(http.port, 9)).await;
    daemon.pool_is_full(1).await;
    // A container with a name server is not for a run without names.
    let without = v1::CreateRunRequest { egress_json: "{}".to_owned(), ..requests::managed("out") };
    assert_eq!(daemon.run_on(without).await.run.start_kind(), v1::run::StartKind::Cold);
    let mut run = daemon.run_on(requests::managed("out")).await;
    assert_eq!(run.run.start_kind(), v1::run::StartKind::Warm);
    let (code, said) = shell(&mut run, &format!("wget -qO- http://files.example.org:{}/", http.port)).await;
    assert_eq!((code, said.as_str()), (Some(0), "GET / HTTP/1.1\n"));
}
