//! Whole lives of sandboxes: made, a command, a file read, ended. The same work by everybody, in turns.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use harness::calls;
use harness::v1::result::Kind as Answer;
use harness::v1::run::StartKind;
use serde_json::{Value, json};
use tokio::process::Command;

use super::READY;
use super::ours::{FILE, Ours, filled};
use super::peers::Peer;
use crate::engine::Engine;
use crate::sample::Sample;
use crate::stage::{FILE_BYTES, INSIDE, succeeded};

/// Rounds that are thrown away.
const WARM_UP: usize = 2;
/// How often is looked whether a container is gone: far less than that takes.
const LOOK: Duration = Duration::from_millis(2);
/// Of all containers that are not a daemon's.
const LABEL: &str = "io.cofferdam.bench";

/// How long each step took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Life {
    /// Until it takes commands.
    pub(crate) ready: Duration,
    /// `true` in it.
    pub(crate) ran: Duration,
    /// A file of 4 KiB.
    pub(crate) read: Duration,
    /// Until the end was answered.
    pub(crate) stop: Duration,
    /// From the same moment, until its container was gone.
    pub(crate) gone: Duration,
}

/// How long one step took.
type Step = fn(&Life) -> Duration;
/// The steps by name.
pub(crate) const STEPS: [(&str, Step); 5] = [
    ("ready", |life| life.ready),
    ("true", |life| life.ran),
    ("read", |life| life.read),
    ("stop", |life| life.stop),
    ("gone", |life| life.gone),
];

/// Whose lives are not measured, and why.
pub(crate) type LeftOut = Vec<(&'static str, String)>;

/// Lives of one kind.
#[derive(Debug)]
pub(crate) struct Lives {
    pub(crate) name: &'static str,
    /// In the order of [`STEPS`].
    pub(crate) steps: [Sample; 5],
}

impl Lives {
    /// The median of a step.
    pub(crate) fn median(&self, step: &str) -> Option<Duration> {
        let at = STEPS.iter().position(|(name, _)| *name == step)?;
        Some(self.steps[at].median())
    }
}

/// Who lives.
pub(crate) enum Contender<'a> {
    /// Cofferdam, and how its runs are expected to start.
    Ours(&'a Ours, StartKind),
    EngineApi(&'a Engine, Plain),
    CommandLine(Plain),
    Peer(Box<Peer>),
}

/// A container without Cofferdam.
#[derive(Clone)]
pub(crate) struct Plain {
    pub(crate) image: String,
    pub(crate) workspace: PathBuf,
}

impl Plain {
    /// For the engine's API.
    pub(crate) fn config(&self) -> Value {
        let bind = format!("{}:{INSIDE}", self.workspace.display());
        json!({
            "Image": self.image,
            "Cmd": ["sleep", "infinity"],
            "Labels": { LABEL: std::process::id().to_string() },
            "HostConfig": { "NetworkMode": "none", "Binds": [bind] },
        })
    }

    fn arguments(&self) -> Vec<String> {
        let label = format!("{LABEL}={}", std::process::id());
        let bind = format!("{}:{INSIDE}", self.workspace.display());
        let words = [
            "run",
            "-d",
            "--network",
            "none",
            "--label",
            &label,
            "-v",
            &bind,
            &self.image,
            "sleep",
            "infinity",
        ];
        words.map(str::to_owned).to_vec()
    }
}

/// Removes containers of this process that a failure has left.
pub(crate) async fn sweep() {
    let filter = format!("label={LABEL}={}", std::process::id());
    let listed = docker(&["ps", "--all", "--quiet", "--filter", &filter]).await;
    for container in listed.lines() {
        docker(&["rm", "--force", container]).await;
    }
}

/// Lets them take turns. One that fails is out from then on; why, beside what the others came to.
pub(crate) async fn hold(
    contenders: Vec<(&'static str, Contender<'_>)>,
    rounds: usize,
) -> (Vec<Lives>, LeftOut) {
    let mut alive: Vec<_> = contenders
        .into_iter()
        .map(|(name, contender)| (contender, Lives { name, steps: Default::default() }))
        .collect();
    let mut left_out = Vec::new();
    for round in 0..WARM_UP + rounds {
        let mut others = Vec::new();
        for (mut contender, mut lives) in alive {
            match contender.live().await {
                Ok(life) if round >= WARM_UP => {
                    for (sample, (_, step)) in lives.steps.iter_mut().zip(STEPS) {
                        sample.add(step(&life));
                    }
                }
                Ok(_) => {}
                Err(why) => {
                    left_out.push((lives.name, why));
                    continue;
                }
            }
            others.push((contender, lives));
        }
        alive = others;
    }
    eprintln!("lives: done");
    (alive.into_iter().map(|(_, lives)| lives).collect(), left_out)
}

impl Contender<'_> {
    async fn live(&mut self) -> Result<Life, String> {
        match self {
            Self::Ours(ours, kind) => live(ours, *kind).await,
            Self::EngineApi(engine, plain) => Ok(by_engine(engine, plain).await),
            Self::CommandLine(plain) => Ok(by_command_line(plain).await),
            Self::Peer(peer) => peer.live().await,
        }
    }
}

async fn live(ours: &Ours, kind: StartKind) -> Result<Life, String> {
    let (workspace, engine) = (ours.daemon.roots().join("bench"), Engine::find());
    if kind == StartKind::Warm {
        filled(ours, READY).await;
    }
    let (ready, run) = timed(ours.client.create(&workspace)).await;
    let run = run.map_err(|status| status.message().to_owned())?;
    if run.start_kind() != kind {
        ours.client.stop(&run).await;
        return Err(format!("a start was {:?} and not {kind:?}", run.start_kind()));
    }
    let (ran, response) = timed(ours.client.call(&run, calls::exec(&["true"]))).await;
    let Answer::Exec(result) = succeeded(response) else { panic!("not an exec") };
    assert_eq!(result.exit_code, Some(0));
    let (read, response) = timed(ours.client.call(&run, calls::read(FILE))).await;
    let Answer::Read(result) = succeeded(response) else { panic!("not a read") };
    assert_eq!(result.content.len(), FILE_BYTES);
    let ends = Instant::now();
    ours.client.stop(&run).await;
    let stop = ends.elapsed();
    while engine.has(&run.container_id).await {
        // The engine's events come later than its answers.
        tokio::time::sleep(LOOK).await;
    }
    let gone = ends.elapsed();
    ours.client.delete(&run).await;
    Ok(Life { ready, ran, read, stop, gone })
}

async fn by_engine(engine: &Engine, plain: &Plain) -> Life {
    let (ready, container) = timed(engine.run(&plain.config())).await;
    let (ran, _) = timed(engine.exec(&container, &["true"])).await;
    let (read, content) = timed(engine.exec(&container, &["cat", &format!("{INSIDE}/{FILE}")])).await;
    assert_eq!(content.len(), FILE_BYTES);
    let (stop, ()) = timed(engine.remove(&container)).await;
    Life { ready, ran, read, stop, gone: stop }
}

async fn by_command_line(plain: &Plain) -> Life {
    let arguments = plain.arguments();
    let (ready, container) = timed(docker(&arguments)).await;
    let container = container.trim();
    let (ran, _) = timed(docker(&["exec", container, "true"])).await;
    let (read, content) = timed(docker(&["exec", container, "cat", &format!("{INSIDE}/{FILE}")])).await;
    assert_eq!(content.len(), FILE_BYTES);
    let (stop, _) = timed(docker(&["rm", "--force", container])).await;
    Life { ready, ran, read, stop, gone: stop }
}

async fn docker(arguments: &[impl AsRef<std::ffi::OsStr>]) -> String {
    let output = Command::new("docker").args(arguments).stdin(Stdio::null()).output().await.unwrap();
    assert!(output.status.success(), "docker: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

async fn timed<T>(work: impl Future<Output = T>) -> (Duration, T) {
    let began = Instant::now();
    let result = work.await;
    (began.elapsed(), result)
}
