//! Starts of runs with a way out and without, from the pool and cold, in turns.

use std::time::{Duration, Instant};

use harness::v1::run::StartKind;
use harness::v1::{DeleteRunRequest, StopRunRequest};
use harness::{Clients, Daemon, requests};

use super::{WARM_UP, daemon};
use crate::engine::Engine;
use crate::sample::Sample;
use crate::table::{Most, Row};

const RULES: &str = "{ rules: [{ host: files.example.org, ports: [443], decision: allow }] }";
const POOL: &str = "pool: [{ profile: out, min: 1, max: 1 }, { profile: none, min: 1, max: 1 }]\n";
/// Kinds of containers in the pool: those of a run with a way out have a name server.
const KINDS: usize = 2;
/// Longest median of a warm start with a way out.
const WARM: Duration = Duration::from_millis(10);
/// Time between two checks if a container is gone.
const CHECK: Duration = Duration::from_millis(2);

/// Runs that start in one way.
struct Contender {
    clients: Clients,
    kind: StartKind,
    profile: &'static str,
    sample: Sample,
}

/// Measures starts of runs, until they are ready.
pub(crate) async fn measure(rounds: usize) -> Vec<Row> {
    let (cold, warm) = (daemon(RULES, "").await, daemon(RULES, POOL).await);
    let mut contenders = Vec::new();
    for (daemon, kind) in [(&cold, StartKind::Cold), (&warm, StartKind::Warm)] {
        daemon.workspace("starts", &[]);
        for profile in ["none", "out"] {
            let (clients, sample) = (daemon.connect().await, Sample::default());
            contenders.push(Contender { clients, kind, profile, sample });
        }
    }
    let mut filled = KINDS;
    for round in 0..WARM_UP + rounds {
        for contender in &mut contenders {
            // A container that is being made would take time from any start.
            warm.pool_is_full(filled).await;
            let daemon = if contender.kind == StartKind::Warm { &warm } else { &cold };
            let time = contender.start(daemon).await;
            filled += usize::from(contender.kind == StartKind::Warm);
            if round >= WARM_UP {
                contender.sample.add(time);
            }
        }
    }
    eprintln!("starts: done");
    let sample = |kind: StartKind, profile: &str| {
        let of = |contender: &&Contender| contender.kind == kind && contender.profile == profile;
        contenders.iter().find(of).map(|contender| &contender.sample)
    };
    let kinds =
        [("warm start", StartKind::Warm, Most::All(WARM)), ("cold start", StartKind::Cold, Most::Unbounded)];
    let rows = kinds.map(|(what, kind, most)| {
        Row::of_times(what, sample(kind, "none"), sample(kind, "out").unwrap(), most)
    });
    rows.into_iter().flatten().collect()
}

impl Contender {
    /// Starts a run and returns the time until it is ready. Then ends it, and waits until its container is gone.
    async fn start(&mut self, daemon: &Daemon) -> Duration {
        let request = requests::bind(self.profile, &daemon.roots().join("starts"));
        let began = Instant::now();
        let answer = self.clients.runs.create_run(request).await.unwrap();
        let time = began.elapsed();
        let run = answer.into_inner().run.unwrap();
        assert_eq!(run.start_kind(), self.kind);
        let run_id = run.run_id.clone();
        self.clients.runs.stop_run(StopRunRequest { run_id: run_id.clone() }).await.unwrap();
        let engine = Engine::find();
        while engine.has(&run.container_id).await {
            // The engine's events come later than its answers.
            tokio::time::sleep(CHECK).await;
        }
        let delete = DeleteRunRequest { run_id, delete_workspace: false };
        self.clients.runs.delete_run(delete).await.unwrap();
        time
    }
}
