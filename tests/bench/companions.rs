//! Warm starts of runs with two companions, without the wait for these, against warm starts of the same profile without companions.
//!
//! A run is ready when its companions are, which takes as long as their programs take. The daemon notes how long the run waited for them
//! after its own container was there. The rest is the start of the run itself, with the work that companions add to it.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use harness::v1::companion_status::State;
use harness::v1::run::StartKind;
use harness::v1::{AuditEvent, CompanionStatus, DeleteRunRequest, Run, StopRunRequest};
use harness::{Clients, Daemon, Image, Setup, record, requests};

use crate::args::Args;
use crate::engine::Engine;
use crate::host::Host;
use crate::sample::Sample;
use crate::table::{Most, Row, Table};

/// The profile for unattended work, in which commands that it does not know ask, and its roles.
const BUILD: &str = include_str!("../../crates/policy/policies/build.yaml");
const ROLES: &str = include_str!("../../crates/policy/policies/roles.yaml");
/// The profile without companions, and with them.
const PROFILES: [&str; 2] = ["alone", "beside"];
const POOL: &str = "pool: [{ profile: alone, min: 1, max: 1 }, { profile: beside, min: 1, max: 1 }]\n";
/// Companions of a run.
const NAMES: [&str; 2] = ["db", "cache"];
/// Rounds that are thrown away.
const WARM_UP: usize = 2;
/// Starts of each profile in a round.
const TURNS: usize = 4;
/// Longest median of the start of a run itself, and longest 99th percentile: those of warm starts without companions.
const WARM: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(20)];
/// Time between two checks if a container is gone.
const CHECK: Duration = Duration::from_millis(2);

/// Measures, prints, and checks if that is asked for.
pub(crate) async fn run(args: &Args) -> ExitCode {
    let began = Host::look();
    let rows = measure(args.rounds).await;
    Table { lane: "companions", columns: PROFILES, began, ended: Host::look(), rows }.finish(args)
}

/// A start: the time until the run was ready, and the part of it in which only its companions were not.
struct Start {
    took: Duration,
    waited: Duration,
}

async fn measure(rounds: usize) -> Vec<Row> {
    let image = image();
    let daemon = daemon(&image).await;
    daemon.workspace("starts", &[]);
    let mut clients = daemon.connect().await;
    let mut filled = PROFILES.len();
    let (mut alone, mut itself, mut whole) = (Sample::default(), Sample::default(), Sample::default());
    for round in 0..WARM_UP + rounds {
        for turn in 0..TURNS {
            let mut profiles = PROFILES;
            if !(round + turn).is_multiple_of(2) {
                profiles.reverse();
            }
            for profile in profiles {
                // A container that is being made would take time from any start.
                daemon.pool_is_full(filled).await;
                let Start { took, waited } = start(&daemon, &mut clients, profile).await;
                filled += 1;
                if round < WARM_UP {
                    continue;
                }
                if profile == PROFILES[0] {
                    alone.add(took);
                } else {
                    itself.add(took.checked_sub(waited).unwrap());
                    whole.add(took);
                }
            }
        }
    }
    eprintln!("starts: done");
    let itself = Row::of_both("warm start, the run itself", Some(&alone), &itself, WARM.map(Most::All));
    let whole = Row::of_times("warm start, until companions are ready", None, &whole, Most::Unbounded);
    itself.into_iter().chain(whole).collect()
}

/// Starts a run from the pool, ends it, and waits until its container is gone.
async fn start(daemon: &Daemon, clients: &mut Clients, profile: &str) -> Start {
    let request = requests::bind(profile, &daemon.roots().join("starts"));
    let began = Instant::now();
    let answer = clients.runs.create_run(request).await.unwrap();
    let took = began.elapsed();
    let run = answer.into_inner().run.unwrap();
    assert_eq!(run.start_kind(), StartKind::Warm, "{:?}\n{}", run.cold_because(), daemon.log());
    let waited = waited(clients, &run, profile != PROFILES[0]).await;
    let run_id = run.run_id.clone();
    clients.runs.stop_run(StopRunRequest { run_id: run_id.clone() }).await.unwrap();
    let engine = Engine::find();
    while engine.has(&run.container_id).await {
        // The engine's events come later than its answers.
        tokio::time::sleep(CHECK).await;
    }
    clients.runs.delete_run(DeleteRunRequest { run_id, delete_workspace: false }).await.unwrap();
    Start { took, waited }
}

/// Returns the time that the run waited for its companions, from its record. It has waited if it has some.
async fn waited(clients: &mut Clients, run: &Run, has_companions: bool) -> Duration {
    let states: Vec<State> = run.companions.iter().map(CompanionStatus::state).collect();
    let expected: &[State] = if has_companions { &[State::Ready; NAMES.len()] } else { &[] };
    assert_eq!(states, expected);
    let details = |event: &AuditEvent| record(event)["details"].clone();
    let is_ready = |event: &AuditEvent| details(event)["state"] == "READY";
    let events = clients.events_when(&run.run_id, "run_state", |events| events.iter().any(is_ready)).await;
    let ready = events.iter().find(|event| is_ready(event)).expect("the run was not ready on record");
    let waited = details(ready)["waited_for_companions_us"].as_u64();
    assert_eq!(waited.is_some_and(|waited| waited > 0), has_companions, "{waited:?}");
    Duration::from_micros(waited.unwrap_or_default())
}

/// Starts a daemon with both profiles and a pool for each.
async fn daemon(image: &Image) -> Daemon {
    let image = &image.0;
    let named = |name: &str| BUILD.replacen("\n  build:\n", &format!("\n  {name}:\n"), 1);
    let [alone, mut beside] = PROFILES.map(named);
    writeln!(beside, "    companions:\n      images: [\"{image}\"]\n      defaults:").unwrap();
    for name in NAMES {
        let ready = "{ tcp: 5432, interval_milliseconds: 50 }";
        writeln!(beside, "        - {{ name: {name}, image: \"{image}\", ready: {ready} }}").unwrap();
    }
    let policy = vec![("alone.yaml", alone), ("beside.yaml", beside), ("roles.yaml", ROLES.to_owned())];
    Daemon::start_with(Setup { config: POOL.to_owned(), policy, ..Setup::default() }).await
}

/// Makes an image whose program serves a port, of this host's busybox.
fn image() -> Image {
    let make = |root: &Path| {
        fs::create_dir(root.join("bin")).unwrap();
        let busybox = root.join("bin/busybox");
        fs::copy("/bin/busybox", &busybox).unwrap();
        fs::set_permissions(&busybox, fs::Permissions::from_mode(0o755)).unwrap();
        symlink("busybox", root.join("bin/httpd")).unwrap();
    };
    let program = "ENTRYPOINT [\"/bin/httpd\", \"-f\", \"-p\", \"5432\", \"-h\", \"/bin\"]";
    Image::of_tree("companion-bench", make, &[program])
}
