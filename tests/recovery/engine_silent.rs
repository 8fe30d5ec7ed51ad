//! An engine that does not answer for one container, as it does while it holds that container's lock.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use harness::v1::CreateRunRequest;
use harness::v1::run::State;
use harness::{Daemon, EngineProxy, Image, Setup, calls, reason, requests, until, v1};
use parking_lot::Mutex;
use tempfile::TempDir;

/// Far below the time that is waited for the engine's answer to a removal, 60 s.
const SOON: Duration = Duration::from_secs(40);

/// The words of a request's first line by which requests are held.
type Held = Arc<Mutex<Vec<String>>>;

struct Between {
    directory: TempDir,
    held: Held,
}

impl Between {
    fn new() -> (Self, EngineProxy) {
        let between = Self { directory: tempfile::tempdir().unwrap(), held: Held::default() };
        let proxy = between.again();
        (between, proxy)
    }

    fn again(&self) -> EngineProxy {
        let held = self.held.clone();
        EngineProxy::holding(&self.socket(), move |line| {
            held.lock().iter().any(|word| line.contains(word.as_str()))
        })
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("engine.sock")
    }

    fn setup(&self) -> Setup {
        let config = format!("docker: {{ endpoint: \"unix://{}\" }}\n", self.socket().display());
        Setup { config, ..Default::default() }
    }

    fn hold(&self, word: &str) {
        self.held.lock().push(word.to_owned());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c7_no_container_keeps_a_daemon_from_serving() {
    let (between, proxy) = Between::new();
    let mut daemon = Daemon::start_with(between.setup()).await;
    let silent = daemon.run_on(requests::managed("open")).await;
    let mut other = daemon.run_on(requests::managed("open")).await;
    // A container that belongs to no run.
    let left = format!("cofferdam-{}", identity::RunId::new());
    let instance = std::fs::read_to_string(daemon.state_dir().join("instance")).unwrap();
    let label = format!("io.cofferdam.instance={}", instance.trim());
    let image = Image::of_files("silent", &[("motd", "x")], &[]);
    let (left, foreign) = (made(&left, &label, &image), made("somebody-s-own", &label, &image));

    daemon.kill().await;
    for container in [&silent.run.container_id, &left] {
        between.hold(container);
    }
    let began = Instant::now();
    daemon.launch().await;
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());

    let mut clients = daemon.connect().await;
    let request = v1::GetRunRequest { run_id: silent.id().to_owned() };
    let failed = clients.runs.get_run(request).await.unwrap().into_inner().run.unwrap();
    assert_eq!(failed.state(), State::Failed);
    assert!(failed.failure.contains("engine does not answer"), "{}", failed.failure);
    other.clients = daemon.connect().await;
    other.ok(calls::write("a.txt", "x")).await;
    let mut next = daemon.run_on(requests::managed("open")).await;
    next.ok(calls::write("a.txt", "x")).await;

    // It answers again: what could not be removed is, by the daemon that runs.
    between.held.lock().clear();
    drop(proxy);
    let _proxy = between.again();
    let kept = [other.run.container_id.clone(), next.run.container_id.clone(), foreign.clone()];
    until("the containers to be removed", async || {
        let mut there = daemon.containers();
        there.retain(|container| !kept.contains(container));
        there.is_empty()
    })
    .await;
    assert!(
        daemon.containers().contains(&foreign),
        "a container that only has the daemon's label is somebody's own"
    );
    removed(&foreign);
}

#[tokio::test(flavor = "multi_thread")]
async fn c7_a_launch_that_the_engine_does_not_answer_delays_no_other() {
    let (between, proxy) = Between::new();
    let daemon = Daemon::start_with(between.setup()).await;
    let image = Image::of_files("silent", &[("motd", "x")], &[]);
    // So that the paths of the image have been looked at.
    let request = || CreateRunRequest { image: image.0.clone(), ..requests::managed("open") };
    between.hold("/start");
    let mut launches = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (mut clients, request) = (daemon.connect().await, request());
        launches.spawn(async move { clients.runs.create_run(request).await.map(drop) });
    }
    until("one to be started", async || proxy.held() > 0).await;
    between.held.lock().clear();
    let began = Instant::now();
    let mut run = daemon.run_on(requests::managed("open")).await;
    run.ok(calls::write("a.txt", "x")).await;
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    assert_eq!(proxy.held(), 1, "one launch of an image that has not been started yet waits for the engine");
    // The others are refused, and may try again.
    for _ in 0..19 {
        let refused = launches.join_next().await.unwrap().unwrap().unwrap_err();
        assert_eq!(reason(&refused), "ENGINE_UNAVAILABLE", "{refused}");
        assert!(refused.message().contains("first container of this image"), "{refused}");
    }
    drop(proxy);
    let _proxy = between.again();
    let last = launches.join_next().await.unwrap().unwrap().unwrap_err();
    assert_eq!(reason(&last), "ENGINE_UNAVAILABLE", "{last}");
    daemon.run_on(request()).await;
}

/// Makes a container of somebody else's, and returns its id.
fn made(name: &str, label: &str, image: &Image) -> String {
    let mut create = std::process::Command::new("docker");
    create.args(["create", "--name", name, "--label", label, &image.0, "x"]);
    let output = create.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn removed(container: &str) {
    assert!(
        std::process::Command::new("docker").args(["rm", "-f", container]).output().unwrap().status.success()
    );
}
