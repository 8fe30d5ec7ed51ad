//! Programs that try whatever their rules do not allow. A packet socket of the host shows that nothing goes elsewhere.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::time::{Duration, Instant};

use harness::v1::run::State;
use harness::{calls, dev_image, record, requests, until, v1};
use tokio::net::TcpListener;

use super::server::Server;
use super::site::digest_of_large;
use super::witness::Witness;
use super::world::{CA, Setting, World};
use super::{client, details, listed, shell};

/// Addresses to which only the attempts go.
const FORBIDDEN: [&str; 10] = [
    "10.1.2.3",
    "169.254.169.254",
    "93.184.216.34",
    "100.64.0.1",
    "198.51.100.7",
    "192.0.2.1",
    "192.0.2.53",
    "2001:db8::1",
    "fd00:ec2::254",
    "64:ff9b::a01:203",
];

/// Returns true if no packet may go to an address.
fn is_forbidden(address: &IpAddr) -> bool {
    let pool = matches!(address, IpAddr::V4(v4) if v4.octets()[..2] == [11, 200]);
    pool || FORBIDDEN.iter().any(|forbidden| forbidden.parse::<IpAddr>().unwrap() == *address)
}

/// An address of this host that is not on its loopback.
fn host_address() -> Ipv4Addr {
    let output = Command::new("hostname").arg("--all-ip-addresses").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().find_map(|address| address.parse().ok()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn n80_no_attempt_reaches_anything_and_the_literals_are_on_record() {
    let here = host_address();
    let listener = TcpListener::bind((here, 0)).await.unwrap();
    let (here_port, witness) = (listener.local_addr().unwrap().port(), Witness::start());
    let mut world = World::start(Setting::default()).await;
    let port = world.site.port;
    let allowed = world.says("getent hosts files.example.org | cut -d' ' -f1").await;
    let script = format!("python3 attempts.py {port} {here} {here_port} {}", allowed.trim());
    let said = world.says(&script).await;
    let outcomes: Vec<(&str, &str)> = said.lines().map(|line| line.split_once(" = ").unwrap()).collect();
    assert_eq!(outcomes.len(), 96, "{said}");
    for (attempt, outcome) in &outcomes {
        let expected: &[&str] = match attempt.split(' ').next().unwrap() {
            "dns" if attempt.ends_with("unknown") => &["3/0"],
            "dns" => &["0/1"],
            "name" => &["NO-NAME"],
            "udp" if !attempt.contains(':') => &["ECONNREFUSED"],
            "udp" => &["ECONNREFUSED", "ENETUNREACH", "EADDRNOTAVAIL"],
            "socket" => &["EPERM", "EACCES", "EAFNOSUPPORT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT"],
            "netlink" | "bpf" | "unshare" | "setns" => &["EPERM"],
            _ => {
                &["ECONNRESET", "ECONNREFUSED", "CLOSED", "ENETUNREACH", "EADDRNOTAVAIL", "EINVAL", "EACCES"]
            }
        };
        assert!(expected.contains(outcome), "{attempt}: {outcome}");
    }
    // The way out is as it was, and led to nothing else.
    world.site.put([("/hello".to_owned(), b"hello\n".to_vec())]);
    assert_eq!(world.says(&format!("curl -fsS --cacert {CA} {}/hello", world.url())).await, "hello\n");
    let accepted = tokio::time::timeout(Duration::from_millis(200), listener.accept()).await;
    assert!(accepted.is_err(), "a server of the host was reached");
    assert_eq!(world.site.requests(), ["GET /hello"]);
    let seen = witness.seen();
    let reached: Vec<_> = seen.destinations.iter().filter(|address| is_forbidden(address)).collect();
    assert!(reached.is_empty() && seen.told.is_empty(), "{reached:?}, {:?}", seen.told);
    let (connections, refused) = listed(&mut world.run).await;
    let on_record = |host: &str| refused.iter().any(|refused| refused.host == host);
    for host in [
        "10.1.2.3",
        "169.254.169.254",
        "93.184.216.34",
        "11.200.77.77",
        "other.example.org",
        &here.to_string(),
    ] {
        assert!(on_record(host), "{host}: {refused:?}");
    }
    let open = connections.iter().filter(|connection| connection.host == "files.example.org");
    assert!(open.count() >= 1, "{connections:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn n81_redirects_lead_nowhere_that_no_rule_names() {
    let rules = ", { host: inner.example.org, ports: [HTTP], scheme: http, decision: allow }";
    let witness = Witness::start();
    let mut world = World::start(Setting { rules, ..Setting::default() }).await;
    let (url, port) = (world.url(), world.plain.port);
    let targets = [
        "http://10.1.2.3/".to_owned(),
        "http://0x0a010203/".to_owned(),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "http://[fd00:ec2::254]/".to_owned(),
        format!("http://127.0.0.1:{port}/"),
        format!("http://localhost:{port}/"),
        format!("http://other.example.org:{port}/"),
        // A rule allows the name, and its address is private.
        format!("http://inner.example.org:{port}/"),
    ];
    for target in &targets {
        let script = format!(
            "curl -g -sS -L --max-time 10 --cacert {CA} -w '%{{num_redirects}} %{{http_code}}' '{url}/away?{target}'"
        );
        let (code, said) = shell(&mut world.run, &script).await;
        assert!(code != Some(0) || said.ends_with("1 403"), "{target}: {said}");
    }
    assert_eq!(world.site.requests().len(), targets.len(), "each began at the site");
    assert_eq!(world.plain.requests(), Vec::<String>::new());
    let seen = witness.seen();
    assert!(!seen.destinations.iter().any(is_forbidden), "{:?}", seen.destinations);
    let (_, refused) = listed(&mut world.run).await;
    let hosts: Vec<&str> = refused.iter().map(|refused| refused.host.as_str()).collect();
    for host in ["10.1.2.3", "169.254.169.254", "other.example.org", "inner.example.org"] {
        assert!(hosts.contains(&host), "{host}: {hosts:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn n82_no_name_is_a_front_for_another() {
    let rules = ", { host: mixed.example.org, ports: [HTTPS], decision: allow }";
    let mut world = World::start(Setting { rules, ..Setting::default() }).await;
    let (tls, plain) = (world.site.port, world.plain.port);
    let address = async |world: &mut World, name: &str| {
        let said = world.says(&format!("getent hosts {name} | cut -d' ' -f1")).await;
        said.trim().to_owned()
    };
    let files = address(&mut world, "files.example.org").await;
    let mixed = address(&mut world, "mixed.example.org").await;
    let tls_without_name = format!(
        "import socket, ssl; c = ssl.create_default_context(cafile=\"{CA}\"); c.check_hostname = False; \
         c.wrap_socket(socket.create_connection((\"files.example.org\", {tls})))"
    );
    for script in [
        // The name of one, at the address of the other.
        format!(
            "curl -sS --cacert {CA} --resolve files.example.org:{tls}:{mixed} https://files.example.org:{tls}/"
        ),
        format!("curl -sS -k --resolve other.example.org:{tls}:{files} https://other.example.org:{tls}/"),
        format!(
            "curl -sS -k --connect-to other.example.org:{tls}:files.example.org:{tls} https://other.example.org:{tls}/"
        ),
        format!("curl -sS -k https://{files}:{tls}/"),
        format!("python3 -c '{tls_without_name}'"),
        // What is no TLS, and no HTTP/1.
        format!("curl -sS http://files.example.org:{tls}/"),
        format!("curl -sS --http2-prior-knowledge http://files.example.org:{plain}/"),
        format!(
            "curl -sS --http2-prior-knowledge -H ':authority: other.example.org' http://files.example.org:{plain}/"
        ),
        format!("curl -fsS -H 'Host: other.example.org' http://files.example.org:{plain}/"),
        format!("curl -fsS --proxy http://files.example.org:{plain} http://other.example.org/"),
        format!("curl -fsS -p --proxy http://files.example.org:{plain} http://other.example.org/"),
    ] {
        let (code, said) = shell(&mut world.run, &script).await;
        assert_ne!(code, Some(0), "{script}: {said}");
    }
    assert_eq!([world.site.requests(), world.plain.requests()], [Vec::<String>::new(), Vec::new()]);
    // An upgrade to HTTP/2 is taken out, and the request goes on as it is.
    world.plain.put([("/hello".to_owned(), b"hello\n".to_vec())]);
    let upgrade = format!("curl -fsS --http2 http://files.example.org:{plain}/hello");
    assert_eq!(world.says(&upgrade).await, "hello\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn n83_ten_thousand_names_are_refused_on_few_records_and_hold_nothing_up() {
    let mut world = World::start(Setting::default()).await;
    assert_eq!(world.says("python3 loop.py unknown.example.org").await, "0\n");
    let began = Instant::now();
    world.says("getent hosts files.example.org").await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let id = world.run.id().to_owned();
    let events = world.run.clients.events(&id, "egress_refused").await;
    let counted: u64 = events.iter().map(|event| record(event)["details"]["count"].as_u64().unwrap()).sum();
    assert!(events.len() < 1_000 && counted <= 20_000, "{} records of {counted}", events.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn n84_two_thousand_connections_at_once_are_served_up_to_the_bound() {
    let echo = Server::echo().await;
    let setting = Setting { tcp: &[echo.port], keys: "max_connections: 400,", ..Setting::default() };
    let mut world = World::start(setting).await;
    let script = format!("python3 at_once.py git.example.org {}", echo.port);
    let served: usize = world.says(&script).await.trim().parse().unwrap();
    assert!((1..=400).contains(&served), "{served} were served");
    assert_eq!(echo.connections(), served);
    // The slots come back.
    let again = format!(
        "bash -c 'exec 3<>/dev/tcp/git.example.org/{}; echo x >&3; read -r x <&3; echo $x'",
        echo.port
    );
    until("a slot does not come back", async || shell(&mut world.run, &again).await.1 == "x\n").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn n85_a_pause_in_a_transfer_loses_no_byte_and_a_stop_ends_it_on_record() {
    let setting = Setting { silence: Duration::from_secs(600), ..Setting::default() };
    let mut world = World::start(setting).await;
    let url = world.url();
    let script = format!("curl -fsS --limit-rate 10M --cacert {CA} {url}/large | sha256sum | cut -d' ' -f1");
    let transfer = world.run.waits(calls::shell(&script));
    details(&mut world.run, "egress_intent", 1).await;
    let id = world.run.id().to_owned();
    let pause = v1::PauseRunRequest { run_id: id.clone() };
    world.run.clients.runs.pause_run(pause).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!transfer.is_finished(), "it went on, or was over before the pause");
    let resume = v1::ResumeRunRequest { run_id: id.clone(), lift_alerts: false };
    world.run.clients.runs.resume_run(resume).await.unwrap();
    let response = transfer.await.unwrap().unwrap();
    let Some(v1::result::Kind::Shell(ran)) = response.clone().into_kind() else { panic!("{response:?}") };
    assert_eq!(ran.stdout.trim(), digest_of_large());

    let waits = world.run.waits(calls::shell(&format!("python3 events.py {url} {CA}")));
    // The events, and one connection for each word before the silence.
    details(&mut world.run, "egress_receipt", 5).await;
    assert_eq!(world.run.stop().await.state(), State::Stopped);
    let receipts = details(&mut world.run, "egress_receipt", 6).await;
    let last = receipts.last().unwrap();
    assert_eq!((&last["cause"], &last["why"]), (&"ended".into(), &"the run has ended".into()), "{last}");
    let intents = world.run.clients.events(&id, "egress_intent").await;
    assert_eq!((intents.len(), receipts.len()), (6, 6));
    waits.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn n86_a_run_reaches_no_socket_and_no_name_of_another() {
    let echo = Server::echo().await;
    let mut one = World::start(Setting { tcp: &[echo.port], ..Setting::default() }).await;
    let address = one.says("getent hosts git.example.org | cut -d' ' -f1").await;
    let serve = "exec python3 -m http.server 8443 --bind 0.0.0.0 2>&1";
    let waits = one.run.waits(calls::shell(serve));
    let own = "curl -fsS --retry 20 --retry-connrefused --retry-delay 1 -o /dev/null http://127.0.0.1:8443/";
    one.says(own).await;
    let narrowed = format!(
        r#"{{"networks":["127.0.0.0/8"],"rules":[{{"host":"files.example.org","ports":[{}],"decision":"allow"}}]}}"#,
        one.site.port
    );
    let request =
        v1::CreateRunRequest { image: dev_image(), egress_json: narrowed, ..requests::managed("out") };
    let mut other = one.daemon.run_on(request).await;
    for (to, port) in
        [("127.0.0.1", 8443), ("0.0.0.0", 8443), (address.trim(), echo.port), (address.trim(), 8443)]
    {
        let script = format!("bash -c 'exec 3<>/dev/tcp/{to}/{port} && echo x >&3 && read -r -t 5 line <&3'");
        let (code, said) = shell(&mut other, &script).await;
        assert_ne!(code, Some(0), "{to}:{port}: {said}");
    }
    assert_eq!(echo.connections(), 0);
    // Each process has the sockets of its own run.
    let get = v1::GetEgressRequest { run_id: other.id().to_owned() };
    let egress = client(&other).get_egress(get).await.unwrap().into_inner().egress.unwrap();
    assert!(!egress.words.contains("git.example.org"), "{}", egress.words);
    waits.abort();
}
