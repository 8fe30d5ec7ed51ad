//! Reloads, readiness, and the daemon's own log: by the API, by signal, by the command line and by the service manager.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use harness::{
    Bearer, Certificates, Clients, Daemon, EngineProxy, Issuer, Setup, binary, reason, record, v1,
};
use parking_lot::Mutex;
use rustix::process::Signal;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::Code;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use v1::daemon_service_client::DaemonServiceClient;

use crate::cli;

const PATIENCE: Duration = Duration::from_secs(60);

async fn client(daemon: &Daemon) -> DaemonServiceClient<Channel> {
    DaemonServiceClient::new(daemon.connect().await.channel)
}

async fn status(daemon: &Daemon, profiles: &[&str]) -> v1::GetDaemonStatusResponse {
    let profiles = profiles.iter().map(ToString::to_string).collect();
    let request = v1::GetDaemonStatusRequest { profiles };
    client(daemon).await.get_daemon_status(request).await.unwrap().into_inner()
}

async fn reload(daemon: &Daemon) -> Result<v1::ReloadDaemonResponse, tonic::Status> {
    Ok(client(daemon).await.reload_daemon(v1::ReloadDaemonRequest {}).await?.into_inner())
}

/// Replaces the configuration in one step.
fn replace(daemon: &Daemon, text: &str) {
    let next = daemon.config_path().with_extension("next");
    fs::write(&next, text).unwrap();
    fs::rename(next, daemon.config_path()).unwrap();
}

fn digest(daemon: &Daemon) -> String {
    hex::encode(Sha256::digest(fs::read(daemon.config_path()).unwrap()))
}

async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let waited = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, waited).await.is_ok(), "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_takes_effect_at_once_is_on_record_and_names_what_waits() {
    let config = "limits: { runs: 5 }\n".to_owned();
    let daemon = Daemon::start_with(Setup { config, ..Default::default() }).await;
    let before = status(&daemon, &[]).await;
    assert!(before.ready && before.needs_restart.is_empty(), "{before:?}");
    assert_eq!((before.configuration_digest, before.log_level), (digest(&daemon), "info".to_owned()));
    let first = digest(&daemon);
    let text = fs::read_to_string(daemon.config_path()).unwrap();
    replace(&daemon, &text.replace("runs: 5", "runs: 6, calls: 7").replace("0660", "0600"));
    let told = cli::json(&daemon, &["reload"]).await;
    assert_eq!(told["applied"], serde_json::json!(["limits.calls"]), "{told}");
    assert_eq!(told["needsRestart"], serde_json::json!(["limits.runs", "listen.unix.mode"]), "{told}");
    assert_eq!(told["previousConfigurationDigest"], first.as_str());

    let after = status(&daemon, &[]).await;
    assert_eq!(after.configuration_digest, digest(&daemon));
    assert_eq!(after.needs_restart, ["limits.runs", "listen.unix.mode"]);
    let mut clients = daemon.connect().await;
    let request = v1::GetRateLimitsRequest { agent_id: "anyone".to_owned(), ..Default::default() };
    let limits = clients.limits.get_rate_limits(request).await.unwrap().into_inner();
    let whole = limits.concurrency.iter().find(|limit| limit.scope == "daemon").unwrap();
    assert_eq!(whole.limit, 7);
    let events = clients.events("", "configuration_changed").await;
    assert_eq!(events.len(), 1);
    let event = record(&events[0]);
    assert_eq!(event["principal"], format!("uid:{}", rustix::process::geteuid().as_raw()));
    assert_eq!(event["details"]["previous_digest"], first.as_str());
    assert_eq!(event["details"]["digest"], digest(&daemon));
    assert_eq!(event["details"]["applied"], serde_json::json!(["limits.calls"]));
    assert!(clients.verify().await.intact);
    // The second finds nothing new, and still names what waits.
    let again = reload(&daemon).await.unwrap();
    assert!(again.applied.is_empty() && !again.policy_changed, "{again:?}");
    assert_eq!(again.needs_restart, ["limits.runs", "listen.unix.mode"]);
    let shown = cli::out(&daemon, &["status"]).await;
    assert!(shown.contains("limits.runs, listen.unix.mode") && shown.contains("engine"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_reload_changes_nothing_and_tells_every_problem() {
    let review = include_str!("../../crates/policy/policies/review.yaml");
    let roles = include_str!("../../crates/policy/policies/roles.yaml").to_owned();
    let policy = vec![("review.yaml", review.to_owned()), ("roles.yaml", roles)];
    let daemon = Daemon::start_with(Setup { policy, ..Default::default() }).await;
    let before = status(&daemon, &[]).await;
    let good = fs::read_to_string(daemon.config_path()).unwrap();
    let lines = good.lines().count();
    replace(&daemon, &format!("{good}log: {{ level: debug }}\nlimits: {{ calls: none }}\nacess: []\n"));
    fs::write(daemon.policy_dir().join("review.yaml"), review.replace("edit: ask", "edit: maybe")).unwrap();
    let refused = reload(&daemon).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::InvalidArgument, "INVALID_ARGUMENT"));
    for told in [
        format!("cofferd.yaml:{}: limits.calls: ", lines + 2),
        format!("cofferd.yaml:{}: acess: ", lines + 3),
        "review.yaml:".to_owned(),
    ] {
        assert!(refused.message().contains(&told), "{told}: {}", refused.message());
    }
    assert_eq!(status(&daemon, &[]).await, before);
    let log = daemon.log();
    let line: Vec<&str> = log.lines().filter(|line| line.contains("the reload was refused")).collect();
    assert_eq!(line.len(), 1, "{log}");
    assert!(line[0].contains("limits.calls") && line[0].contains("review.yaml"), "{}", line[0]);
    // A signal tells the log the same, and the daemon lives.
    daemon.signal(Signal::HUP);
    until("the second refusal", async || daemon.log().matches("the reload was refused").count() == 2).await;
    assert_eq!(status(&daemon, &[]).await, before);
    let mut clients = daemon.connect().await;
    assert!(clients.events("", "configuration_changed").await.is_empty());
    // Both are right again: both come into force.
    replace(&daemon, &format!("{good}log: {{ level: debug }}\n"));
    fs::write(daemon.policy_dir().join("review.yaml"), review.replace("edit: ask", "edit: deny")).unwrap();
    let answer = reload(&daemon).await.unwrap();
    assert!(answer.policy_changed && answer.applied == ["log.level"], "{answer:?}");
    assert_eq!(status(&daemon, &[]).await.log_level, "debug");
}

/// Returns the status line of an answer over HTTP, and its body.
async fn get(address: &str, path: &str, token: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    stream.write_all(format!("{head}Authorization: Bearer {token}\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_and_the_token_for_metrics_change_without_a_restart() {
    let certificates = Certificates::make(&["ci"]);
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    fs::write(&token, "first-token").unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    let config = format!(
        "access: [{{ certificate: ci, roles: [auditor] }}]\nmetrics: {{ listen: '127.0.0.1:0', token_file: {} }}\n",
        token.display()
    );
    let tcp = certificates.listen("");
    let daemon = Daemon::start_with(Setup { config, tcp, ..Default::default() }).await;
    let mut ci = Clients::on(certificates.connect(&daemon, Some("ci")).await.unwrap());
    assert!(ci.verify().await.intact);
    let address = daemon.told("metrics are at /metrics address=");
    assert_eq!(get(&address, "/metrics", "first-token").await.0, 200);

    let text = fs::read_to_string(daemon.config_path()).unwrap();
    replace(&daemon, &text.replace("roles: [auditor]", "roles: []"));
    fs::write(&token, "second-token").unwrap();
    let answer = reload(&daemon).await.unwrap();
    assert_eq!(answer.applied, ["access"]);
    // The same connection, with the rights of now.
    let refused = ci.audit.verify_log(v1::VerifyLogRequest {}).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    assert_eq!(get(&address, "/metrics", "first-token").await.0, 401);
    assert_eq!(get(&address, "/metrics", "second-token").await.0, 200);
    // A token that cannot be read changes nothing, also of the rest.
    replace(&daemon, &text);
    fs::set_permissions(&token, fs::Permissions::from_mode(0o644)).unwrap();
    let refused = reload(&daemon).await.unwrap_err();
    assert!(refused.message().contains("metrics.token_file"), "{refused}");
    assert!(ci.audit.verify_log(v1::VerifyLogRequest {}).await.is_err());
    assert_eq!(get(&address, "/metrics", "second-token").await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn issuers_come_and_go_without_a_restart() {
    let issuer = Issuer::default();
    let daemon = Daemon::start().await;
    let text = fs::read_to_string(daemon.config_path()).unwrap();
    let mut clients = daemon.connect().await;
    let auditor = Bearer::new(&issuer.token("bob", &["audit"], Duration::from_secs(3_600)));
    let mut verify = async || clients.audit.verify_log(auditor.shows(v1::VerifyLogRequest {})).await;
    verify().await.unwrap_err();
    let grants = "{ claim: groups, value: audit, roles: [auditor] }";
    replace(&daemon, &format!("{text}{}", issuer.config_with_file(grants)));
    assert_eq!(reload(&daemon).await.unwrap().applied, ["oidc"]);
    verify().await.unwrap();
    // The same issuers stay, and a token that counted counts.
    assert!(reload(&daemon).await.unwrap().applied.is_empty());
    verify().await.unwrap();
    replace(&daemon, &text);
    assert_eq!(reload(&daemon).await.unwrap().applied, ["oidc"]);
    assert_eq!(verify().await.unwrap_err().code(), Code::PermissionDenied);
}

#[tokio::test(flavor = "multi_thread")]
async fn reloads_at_the_same_time_take_turns() {
    let daemon = Daemon::start().await;
    let text = fs::read_to_string(daemon.config_path()).unwrap();
    let mut reloads = tokio::task::JoinSet::new();
    for number in 0..64 {
        let mut client = client(&daemon).await;
        if number % 16 == 0 {
            replace(&daemon, &format!("{text}limits: {{ calls: {} }}\n", 100 + number));
        }
        reloads.spawn(async move { client.reload_daemon(v1::ReloadDaemonRequest {}).await });
    }
    let mut taken = 0;
    while let Some(reloaded) = reloads.join_next().await {
        match reloaded.unwrap() {
            Ok(_) => taken += 1,
            Err(status) => assert_eq!(reason(&status), "OVERLOADED", "{status}"),
        }
    }
    let last = reload(&daemon).await.unwrap();
    assert!(taken > 0 && last.configuration_digest == digest(&daemon));
    // Each was recorded once, and began with what the one before it had answer.
    let events = daemon.connect().await.events("", "configuration_changed").await;
    assert_eq!(events.len(), taken + 1);
    let details: Vec<_> = events.iter().map(|event| record(event)["details"].clone()).collect();
    assert!(details.windows(2).all(|pair| pair[0]["digest"] == pair[1]["previous_digest"]), "{details:?}");
    assert_eq!(status(&daemon, &[]).await.configuration_digest, digest(&daemon));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hangup_during_the_start_is_no_end_and_is_done_after_it() {
    let mut daemon = Daemon::start().await;
    daemon.stop().await;
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("log");
    let log = || fs::read_to_string(&path).unwrap_or_default();
    let mut child = tokio::process::Command::new(binary("cofferd"))
        .arg("--config")
        .arg(daemon.config_path())
        .stderr(fs::File::create(&path).unwrap())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    // It has logged its jail, and has neither its runs nor its socket.
    until("the first lines", async || log().contains("host lane")).await;
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::HUP).unwrap();
    until("the reload", async || log().contains("configuration and policy were reloaded")).await;
    assert!(child.try_wait().unwrap().is_none(), "{}", log());
    let events = daemon.connect().await.events("", "configuration_changed").await;
    assert_eq!(record(&events[0])["principal"], "signal:SIGHUP");
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    assert!(tokio::time::timeout(PATIENCE, child.wait()).await.unwrap().unwrap().success());
}

async fn health(daemon: &Daemon, service: &str) -> ServingStatus {
    let mut health = HealthClient::new(daemon.connect().await.channel);
    let request = HealthCheckRequest { service: service.to_owned() };
    health.check(request).await.unwrap().into_inner().status()
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_follows_the_engine_and_the_daemon_stays_alive() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("engine.sock");
    let engine = EngineProxy::new(&socket);
    let config = format!(
        "docker: {{ endpoint: \"unix://{}\" }}\nmetrics: {{ listen: '127.0.0.1:0' }}\n",
        socket.display()
    );
    let daemon = Daemon::start_with(Setup { config, ..Default::default() }).await;
    let address = daemon.told("metrics are at /metrics address=");
    assert_eq!(health(&daemon, "").await, ServingStatus::Serving);
    assert_eq!(
        get(&address, "/readyz", "").await,
        (200, "audit log: ok\nstore: ok\nengine: ok\n".to_owned())
    );
    // Nobody keeps containers for these.
    let asked = status(&daemon, &["build", "nope"]).await;
    let problems: Vec<_> =
        asked.conditions[3..].iter().map(|one| (one.name.as_str(), one.problem.as_str())).collect();
    assert!(!asked.ready);
    assert_eq!(
        problems,
        [
            ("pool build", "no containers are kept for this profile"),
            ("pool nope", "the policy has no such profile")
        ]
    );
    assert_eq!(get(&address, "/readyz?profile=build", "").await.0, 503);

    drop(engine);
    until("the daemon is ready without its engine", async || {
        health(&daemon, "").await == ServingStatus::NotServing
    })
    .await;
    assert_eq!(health(&daemon, "liveness").await, ServingStatus::Serving);
    assert_eq!(health(&daemon, "cofferdam.v1.ToolService").await, ServingStatus::Serving);
    let (code, told) = get(&address, "/readyz", "").await;
    assert!(code == 503 && told.contains("engine: the container engine does not answer"), "{told}");
    assert!(!told.contains("engine.sock"), "{told}");
    assert_eq!(get(&address, "/livez", "").await.0, 200);
    until("the log does not say it", async || daemon.log().contains("the daemon is not ready")).await;
    let _engine = EngineProxy::new(&socket);
    until("the daemon is not ready again", async || health(&daemon, "").await == ServingStatus::Serving)
        .await;
    assert!(status(&daemon, &[]).await.ready);
}

/// A service manager that takes all messages.
struct Manager(Arc<Mutex<Vec<String>>>);

impl Manager {
    fn new(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).unwrap();
        let messages = Arc::new(Mutex::new(Vec::new()));
        let into = messages.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4_096];
            while let Ok(length) = socket.recv(&mut bytes) {
                into.lock().push(String::from_utf8(bytes[..length].to_vec()).unwrap());
            }
        });
        Self(messages)
    }

    /// The first lines of all messages so far but those of the watchdog.
    fn steps(&self) -> Vec<String> {
        let first = |message: &String| message.lines().next().unwrap_or_default().to_owned();
        self.0.lock().iter().map(first).filter(|line| line != "WATCHDOG=1").collect()
    }

    async fn has_heard(&self, steps: &[&str]) {
        let there = async {
            while self.steps() != steps {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let heard = tokio::time::timeout(PATIENCE, there).await;
        assert!(heard.is_ok(), "{steps:?}: {:?}", self.0.lock());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_manager_hears_of_start_reload_life_and_stop() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("notify");
    let manager = Manager::new(&path);
    let environment = vec![
        ("NOTIFY_SOCKET", path.display().to_string()),
        ("WATCHDOG_USEC", Duration::from_secs(3).as_micros().to_string()),
    ];
    let mut daemon = Daemon::start_with(Setup { environment, ..Default::default() }).await;
    manager.has_heard(&["READY=1"]).await;
    reload(&daemon).await.unwrap();
    manager.has_heard(&["READY=1", "RELOADING=1", "READY=1"]).await;
    // One that is refused ends, too.
    fs::write(daemon.config_path(), "nothing").unwrap();
    reload(&daemon).await.unwrap_err();
    manager.has_heard(&["READY=1", "RELOADING=1", "READY=1", "RELOADING=1", "READY=1"]).await;
    {
        let messages = manager.0.lock();
        let of = |step: &str| messages.iter().find(|message| message.starts_with(step)).unwrap().clone();
        assert!(of("READY=1").contains("\nSTATUS=ready"), "{messages:?}");
        assert!(of("RELOADING=1").contains("\nMONOTONIC_USEC="), "{messages:?}");
    }

    // Three times within its time: one may fall on an edge, and a busy machine may be late.
    let alive = || manager.0.lock().iter().filter(|message| message.trim_end() == "WATCHDOG=1").count();
    let (before, began) = (alive(), Instant::now());
    tokio::time::sleep(Duration::from_secs(6)).await;
    let heard = alive() - before;
    let most = usize::try_from(began.elapsed().as_secs()).unwrap() + 2;
    assert!((3..=most).contains(&heard), "{heard} of {most}");

    daemon.stop().await;
    manager.has_heard(&["READY=1", "RELOADING=1", "READY=1", "RELOADING=1", "READY=1", "STOPPING=1"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_level_of_the_log_changes_until_the_next_reload() {
    let daemon = Daemon::start().await;
    let said = cli::out(&daemon, &["log-level", "warn,cofferd=debug"]).await;
    assert_eq!(said, "warn,cofferd=debug, was info\n");
    assert_eq!(status(&daemon, &[]).await.log_level, "warn,cofferd=debug");
    let event = record(&daemon.connect().await.events("", "configuration_changed").await[0]);
    assert_eq!(event["details"]["log_level"], "warn,cofferd=debug");
    for bad in ["", "loud", "bollard=trace", "info\nx"] {
        let request = v1::SetLogLevelRequest { level: bad.to_owned() };
        let refused = client(&daemon).await.set_log_level(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{bad}: {refused}");
    }
    reload(&daemon).await.unwrap();
    assert_eq!(status(&daemon, &[]).await.log_level, "info");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_thousand_bad_requests_write_a_bounded_number_of_lines() {
    const REQUESTS: usize = 100_000;
    const AT_ONCE: usize = 50;
    let config = "log: { level: trace }\n".to_owned();
    let daemon = Daemon::start_with(Setup { config, ..Default::default() }).await;
    let lines = || daemon.log().lines().count();
    let before = lines();
    let bearer = Bearer::new("not-a-token");
    let mut tasks = tokio::task::JoinSet::new();
    let clients = daemon.connect().await;
    for _ in 0..AT_ONCE {
        let (mut runs, bearer) = (clients.runs.clone(), bearer.clone());
        tasks.spawn(async move {
            for _ in 0..REQUESTS / AT_ONCE {
                let refused = runs.list_runs(bearer.shows(v1::ListRunsRequest::default())).await;
                refused.unwrap_err();
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    // Each of these has a line, up to the bound.
    let mut client = client(&daemon).await;
    for _ in 0..500 {
        client.set_log_level(v1::SetLogLevelRequest { level: "info".to_owned() }).await.unwrap();
    }
    until("the count of what was left out", async || daemon.log().contains("left_out=")).await;
    let written = lines() - before;
    assert!(written < 20_000, "{written} lines");
    let set = daemon.log().matches("the level of the log was set").count();
    assert!((1..500).contains(&set), "{set}");
}
