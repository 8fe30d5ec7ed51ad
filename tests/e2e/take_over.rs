//! Another process takes over from a daemon with live runs: nothing is lost, whichever of the two dies at whichever moment.

use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use harness::process::{command, script};
use harness::v1::call_response::Status;
use harness::v1::run::State;
use harness::{Certificates, Daemon, RunHandle, Setup, binary, broke, calls, pid_of, requests, until, v1};
use tokio::process::Command;
use tokio::task::JoinHandle;

/// Take-overs in a row.
const TIMES: usize = 20;
/// Longer than a take-over takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A run with a process that counts, and one whose pid is known.
struct Witness {
    run: RunHandle,
    counts: String,
    container: String,
    pid: u32,
}

impl Witness {
    async fn of(daemon: &Daemon) -> Self {
        let mut run = daemon.run_on(requests::managed("harness")).await;
        let counts = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.02; done";
        let counts = run.start(script(counts)).await.process_id;
        run.start(command(&["sleep", "86399"])).await;
        run.until(&counts, "3\n").await;
        let container = run.run.container_id.clone();
        let pid = pid_of(&container, "sleep 86399").unwrap();
        Self { run, counts, container, pid }
    }

    /// The run is as it was: the same processes, no number missing, both lanes work, the log is whole.
    async fn is_unharmed(&mut self, daemon: &Daemon) {
        self.run.clients = daemon.connect().await;
        assert_eq!(self.run.show().await.state(), State::Ready);
        assert_eq!(pid_of(&self.container, "sleep 86399"), Some(self.pid));
        let seen = self.run.logs(&self.counts).await;
        let next = seen.text().lines().count() + 5;
        let counted = self.run.until(&self.counts, &format!("\n{next}\n")).await.text();
        for (line, number) in counted.lines().zip(1..) {
            assert_eq!(line, number.to_string(), "a line of the process is missing or doubled");
        }
        let name = format!("there-{next}");
        self.run.ok(calls::write(&name, "x")).await;
        assert_eq!(self.run.exec(&["cat", &name]).await.stdout, "x");
        assert!(self.run.clients.verify().await.intact);
    }
}

/// A client that makes one call after the other, and repeats each that got no answer.
struct Caller {
    goes_on: Arc<AtomicBool>,
    made: JoinHandle<usize>,
}

impl Caller {
    fn of(run: &RunHandle) -> Self {
        let goes_on = Arc::new(AtomicBool::new(true));
        let (mut run, until) = (run.clone(), goes_on.clone());
        let made = tokio::spawn(async move {
            let mut made = 0;
            while until.load(Ordering::Relaxed) {
                made += 1;
                call(&mut run, made).await;
            }
            made
        });
        Self { goes_on, made }
    }

    /// The number of calls that were made and succeeded.
    async fn ends(self) -> usize {
        self.goes_on.store(false, Ordering::Relaxed);
        self.made.await.unwrap()
    }
}

async fn call(run: &mut RunHandle, number: usize) {
    let script = format!("echo {number} >> /workspace/calls");
    let answered = async {
        loop {
            let request = v1::CallRequest {
                request_id: format!("call-{number}"),
                request: Some(calls::exec(&["sh", "-c", &script]).into()),
                ..Default::default()
            };
            match run.call_with(request).await {
                Ok(answer) => break assert_eq!(answer.status(), Status::Succeeded, "{:?}", answer.error),
                Err(status) => assert!(broke(&status), "call {number}: {status}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, answered).await.unwrap_or_else(|_| panic!("call {number} is lost"));
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_take_overs_lose_no_call_and_no_process() {
    let mut daemon = Daemon::start().await;
    let mut witness = Witness::of(&daemon).await;
    let caller = Caller::of(&witness.run);
    for _ in 0..TIMES {
        let earlier = daemon.pid();
        daemon.take_over().await;
        assert_ne!(daemon.pid(), earlier);
    }
    let made = caller.ends().await;
    assert!(made >= TIMES, "{made} calls");
    witness.is_unharmed(&daemon).await;
    // Each call took effect once, in order.
    let effects = witness.run.exec(&["cat", "/workspace/calls"]).await.stdout;
    let expected = (1..=made).map(|number| format!("{number}\n")).collect::<Vec<_>>().concat();
    assert_eq!(effects, expected);
    assert_eq!(witness.run.show().await.restarts, u32::try_from(TIMES).unwrap());
    daemon.stop().await;
    assert!(!daemon.socket().exists());
    assert_eq!(daemon.containers(), Vec::<String>::new(), "an orderly stop still ends the runs");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_attempt_to_connect_over_tls_fails_during_a_take_over() {
    let certificates = Certificates::make(&["ci"]);
    let config = "access: [{ certificate: ci, roles: [auditor] }]\n".to_owned();
    let tcp = certificates.listen("connections_per_second: 10000");
    let mut daemon = Daemon::start_with(Setup { config, tcp, ..Default::default() }).await;
    let goes_on = Arc::new(AtomicBool::new(true));
    let endpoint = certificates.endpoint(&daemon, Some("ci")).unwrap();
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (endpoint, goes_on) = (endpoint.clone(), goes_on.clone());
            tokio::spawn(async move {
                let mut connected = 0;
                while goes_on.load(Ordering::Relaxed) {
                    endpoint.connect().await.unwrap_or_else(|error| panic!("after {connected}: {error:?}"));
                    connected += 1;
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                connected
            })
        })
        .collect();
    for _ in 0..5 {
        daemon.take_over().await;
    }
    goes_on.store(false, Ordering::Relaxed);
    for client in clients {
        assert!(client.await.unwrap() > 5);
    }
}

/// The configuration of the daemon, with one more line.
fn configured(daemon: &Daemon, line: &str) -> PathBuf {
    let path = daemon.outside().join("other.yaml");
    let config = std::fs::read_to_string(daemon.config_path()).unwrap();
    std::fs::write(&path, format!("{config}\n{line}\n")).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn a_successor_that_fails_leaves_the_daemon_as_it_was() {
    let mut daemon = Daemon::start().await;
    let mut witness = Witness::of(&daemon).await;
    let caller = Caller::of(&witness.run);
    let earlier = daemon.pid();
    let occupied = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("metrics: {{ listen: \"{}\" }}", occupied.local_addr().unwrap());
    // The first is noticed before the hand-over, the second after the runs were taken over.
    for (line, says) in [
        ("policy_dir: /nonexistent", "the policy directory cannot be read"),
        (listen.as_str(), "cannot listen on"),
    ] {
        let config = configured(&daemon, line);
        let mut successor = daemon.spawn_successor(&config);
        let status = tokio::time::timeout(PATIENCE, successor.wait()).await.unwrap().unwrap();
        assert!(!status.success());
        daemon.answers().await;
        assert_eq!(daemon.pid(), earlier, "it is the same process");
        assert!(daemon.log().contains(says), "{says} is not in the log:\n{}", daemon.log());
        witness.is_unharmed(&daemon).await;
    }
    let goes_on = async || daemon.log().contains("the successor failed, and this daemon goes on");
    until("the daemon does not say that it goes on", goes_on).await;
    caller.ends().await;
    // It can still be taken over.
    drop(occupied);
    daemon.take_over().await;
    witness.is_unharmed(&daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_whose_successor_fails_goes_on_with_what_was_in_force() {
    let mut daemon = Daemon::start().await;
    let mut witness = Witness::of(&daemon).await;
    let earlier = daemon.pid();
    // With its own file of now, the daemon could not start either.
    let occupied = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("metrics: {{ listen: \"{}\" }}", occupied.local_addr().unwrap());
    let changed = configured(&daemon, &listen);
    std::fs::copy(changed, daemon.config_path()).unwrap();
    let mut successor = daemon.spawn_successor(&daemon.config_path());
    let status = tokio::time::timeout(PATIENCE, successor.wait()).await.unwrap().unwrap();
    assert!(!status.success());
    daemon.answers().await;
    assert_eq!(daemon.pid(), earlier);
    assert!(daemon.log().contains("cannot listen on"), "{}", daemon.log());
    witness.is_unharmed(&daemon).await;
}

/// Moments from before the first step to after the last.
fn moments() -> impl Iterator<Item = Duration> {
    [0, 10, 25, 50, 75, 100, 150, 200, 300, 400, 600, 900, 1_300].into_iter().map(Duration::from_millis)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_successor_that_is_killed_at_any_moment_loses_nothing() {
    let mut daemon = Daemon::start().await;
    let mut witness = Witness::of(&daemon).await;
    for moment in moments() {
        let mut successor = daemon.spawn_successor(&daemon.config_path());
        tokio::time::sleep(moment).await;
        if daemon.has_ended() {
            // Too late: it has taken over. The kill is that of a daemon, and the next one reattaches.
            daemon.is_followed_by(successor).await;
            daemon.relaunch().await;
        } else {
            let earlier = daemon.pid();
            successor.kill().await.unwrap();
            daemon.answers_or_ends().await;
            if daemon.has_ended() {
                // The kill came between its word and its answer.
                daemon.is_followed_by(successor).await;
                daemon.relaunch().await;
            } else {
                assert_eq!(daemon.pid(), earlier);
            }
        }
        witness.is_unharmed(&daemon).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_is_killed_while_it_hands_over_is_replaced() {
    let mut daemon = Daemon::start().await;
    let mut witness = Witness::of(&daemon).await;
    for moment in moments() {
        let successor = daemon.spawn_successor(&daemon.config_path());
        tokio::time::sleep(moment).await;
        daemon.signal_if_there(rustix::process::Signal::KILL);
        daemon.is_followed_by(successor).await;
        daemon.answers_or_ends().await;
        if daemon.has_ended() {
            // It was killed before the other had asked.
            daemon.relaunch().await;
        }
        witness.is_unharmed(&daemon).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_at_any_moment_of_a_hand_over_stops_the_daemon_that_is_left() {
    for (moment, is_doomed) in moments().flat_map(|moment| [(moment, false), (moment, true)]) {
        let mut daemon = Daemon::start().await;
        let _run = daemon.run_on(requests::managed("harness")).await;
        // One of the two successors fails after the hand-over, so that the earlier daemon goes on.
        let occupied = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let listen = format!("metrics: {{ listen: \"{}\" }}", occupied.local_addr().unwrap());
        let config = if is_doomed { configured(&daemon, &listen) } else { daemon.config_path() };
        let mut successor = daemon.spawn_successor(&config);
        tokio::time::sleep(moment).await;
        if daemon.has_ended() {
            // Too late: the successor is the daemon.
            daemon.is_followed_by(successor).await;
            daemon.stop().await;
        } else {
            daemon.stop().await;
            let ended = tokio::time::timeout(PATIENCE, successor.wait()).await;
            assert!(ended.is_ok(), "{moment:?} {is_doomed}: a daemon is left:\n{}", daemon.log());
        }
        assert!(!daemon.socket().exists(), "{moment:?} {is_doomed}\n{}", daemon.log());
        assert_eq!(daemon.containers(), Vec::<String>::new(), "{moment:?} {is_doomed}\n{}", daemon.log());
    }
}

async fn asks(program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(binary(program));
    command.args(arguments).stdin(Stdio::null());
    tokio::time::timeout(PATIENCE, command.output()).await.unwrap().unwrap()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_is_checked_before_and_reported_when_the_program_serves() {
    let mut daemon = Daemon::start_with(Setup::default()).await;
    let mut witness = Witness::of(&daemon).await;
    let (config, program) =
        (daemon.config_path().display().to_string(), binary("cofferd").display().to_string());
    let arguments = ["upgrade", "--binary", &program, "--config", &config];
    let checked = asks("coffer", &[&arguments[..], &["--check"]].concat()).await;
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked));
    assert!(text(&checked).contains("all other runs and processes survive"), "{}", text(&checked));

    // A check has no effect.
    let earlier = daemon.pid();
    daemon.answers().await;
    assert!(!daemon.has_ended());

    let upgraded = asks("coffer", &arguments).await;
    assert_eq!(upgraded.status.code(), Some(0), "{}\n{}", text(&upgraded), daemon.log());
    assert!(text(&upgraded).contains("has taken over"), "{}", text(&upgraded));
    // It serves already when the command ends.
    witness.is_unharmed(&daemon).await;
    // This one is a child of the test again. The one before it is not, so its end cannot be waited for.
    let ready = |daemon: &Daemon| daemon.log().matches(" ready socket=").count();
    let before = ready(&daemon);
    daemon.take_over().await;
    let serves = async {
        while ready(&daemon) == before {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, serves).await.expect("the successor does not serve");
    assert_ne!(daemon.pid(), earlier);
    witness.is_unharmed(&daemon).await;

    daemon.stop().await;
    let alone = asks("coffer", &arguments).await;
    assert_eq!(alone.status.code(), Some(5), "{}", text(&alone));
    assert!(text(&alone).contains("no daemon can be taken over"), "{}", text(&alone));
    let versions = asks("cofferd", &["--versions"]).await;
    let versions: serde_json::Value = serde_json::from_slice(&versions.stdout).unwrap();
    assert!(versions["formats"]["store"].as_u64().unwrap() > 0, "{versions}");
}
