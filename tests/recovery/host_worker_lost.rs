//! Kills the host worker, and the daemon with it, at any moment of a write. Each file is old or new, acknowledged writes exist,
//! and nothing is left.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use harness::v1::call_response::Status;
use harness::v1::operation::Kind as Operation;
use harness::v1::run::State;
use harness::{Daemon, RunHandle, calls, v1};
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::JoinHandle;

const WRITERS: usize = 8;
/// Files of a patch: it takes a while.
const FILES: usize = 60;
/// Several blocks, so that a part of a file can be told from the whole.
const SIZE: usize = 20_000;

/// What writer `writer` writes in its `round`th write.
fn content(writer: usize, round: u32) -> String {
    format!("{writer} {round}\n").repeat(SIZE).split_at(SIZE).0.to_owned()
}

/// What is known of a writer's one file.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    attempted: u32,
    acknowledged: u32,
}

/// Writes on until told to stop, or until nobody answers any more.
fn write_on(
    run: &RunHandle,
    writer: usize,
    known: Known,
    stop: Arc<AtomicBool>,
    total: Arc<AtomicU32>,
) -> JoinHandle<Known> {
    let (mut run, mut known) = (run.clone(), known);
    tokio::spawn(async move {
        while !stop.load(Ordering::Relaxed) {
            known.attempted += 1;
            total.fetch_add(1, Ordering::Relaxed);
            let operation = calls::write(&format!("f{writer}"), &content(writer, known.attempted));
            match run.call(operation).await {
                Ok(response) if response.status() == Status::Succeeded => {
                    known.acknowledged = known.attempted;
                }
                Ok(_) => {}
                Err(error) => {
                    eprintln!("writer {writer} ends: {error}");
                    break;
                }
            }
        }
        known
    })
}

/// Which write of its writer a file has, which must be a whole one; 0 when there is no file.
fn round(workspace: &Path, writer: usize) -> u32 {
    let Ok(found) = std::fs::read_to_string(workspace.join(format!("f{writer}"))) else { return 0 };
    let first = found.lines().next().unwrap_or_default();
    let round = first.split(' ').nth(1).and_then(|round| round.parse().ok());
    let round = round.unwrap_or_else(|| panic!("f{writer} begins with {first:?}"));
    assert_eq!(found, content(writer, round), "f{writer} is neither old nor new");
    round
}

fn check(workspace: &Path, known: &[Known]) {
    for (writer, known) in known.iter().enumerate() {
        let found = round(workspace, writer);
        assert!((known.acknowledged..=known.attempted).contains(&found), "f{writer} has {found}: {known:?}");
    }
    let left: Vec<_> = names(workspace).into_iter().filter(|name| name.starts_with(".cofferdam")).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

pub(crate) fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

/// What the host workers of all runs have noted and not struck out.
pub(crate) fn notes(daemon: &Daemon) -> Vec<String> {
    let privates = daemon.state_dir().join("host-worker");
    let temporaries = names(&privates).into_iter().map(|run| privates.join(run).join("temporaries"));
    temporaries.flat_map(|directory: PathBuf| names(&directory)).collect()
}

/// The host workers of a daemon: keepers, what they keep, and operations at work.
pub(crate) fn host_workers(daemon: u32) -> Vec<u32> {
    let mut parents = BTreeMap::new();
    for name in names(Path::new("/proc")) {
        let Ok(pid) = name.parse::<u32>() else { continue };
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        let Some((_, rest)) = stat.split_once("(coffer-host-wor) ") else { continue };
        parents.insert(pid, rest.split(' ').nth(1).unwrap().parse::<u32>().unwrap());
    }
    let is_of = |mut pid: u32| {
        while let Some(parent) = parents.get(&pid) {
            if *parent == daemon {
                return true;
            }
            pid = *parent;
        }
        false
    };
    parents.keys().copied().filter(|pid| is_of(*pid)).collect()
}

pub(crate) fn kill(pids: &[u32]) {
    for pid in pids {
        // It may be gone by now.
        let _ = kill_process(Pid::from_raw((*pid).try_into().unwrap()).unwrap(), Signal::KILL);
    }
}

/// Chance that is the same in each run of the test.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    /// The moment of a kill is what is tested, so there is nothing to wait for.
    async fn moment(&mut self, most: u64) {
        tokio::time::sleep(Duration::from_millis(self.roll(most))).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_host_worker_starts_on_demand_and_after_its_death_and_ends_with_its_run() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run("open", &workspace).await;
    run.ok(calls::read("a.txt")).await;
    assert_eq!(host_workers(daemon.pid()), [0_u32; 0], "nothing was written so far");
    run.ok(calls::write("a.txt", "two\n")).await;
    let first = host_workers(daemon.pid());
    assert!(
        (2..=6).contains(&first.len()),
        "a keeper, a host worker, and soon processes that wait: {first:?}"
    );

    kill(&first);
    // The daemon may not know yet; a call that is caught by the loss fails, and none is repeated.
    let written = async {
        while run.call(calls::write("a.txt", "three\n")).await.unwrap().status() != Status::Succeeded {}
    };
    tokio::time::timeout(Duration::from_secs(20), written).await.unwrap();
    let second = host_workers(daemon.pid());
    assert!(
        (2..=6).contains(&second.len()) && second.iter().all(|pid| !first.contains(pid)),
        "{first:?} {second:?}"
    );
    assert_eq!(std::fs::read_to_string(workspace.join("a.txt")).unwrap(), "three\n");
    assert_eq!(run.show().await.state(), State::Ready, "it costs the run nothing");

    run.stop().await;
    assert_eq!(host_workers(daemon.pid()), [0_u32; 0]);
    run.delete().await;
    assert_eq!(names(&daemon.state_dir().join("host-worker")), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn host_workers_killed_at_any_moment_leave_files_old_or_new_and_nothing_else() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    let run = daemon.run("open", &workspace).await;
    let (stop, total) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| write_on(&run, writer, Known::default(), stop.clone(), total.clone()))
        .collect();
    let (mut dice, mut kills) = (Dice(5), 0);
    while total.load(Ordering::Relaxed) < 1_000 {
        dice.moment(150).await;
        let host_workers = host_workers(daemon.pid());
        // The keeper, the host worker, an operation, or all of them.
        match (dice.roll(4), host_workers.is_empty()) {
            (_, true) => continue,
            (0, _) => kill(&host_workers),
            _ => kill(&[host_workers[usize::try_from(dice.roll(host_workers.len() as u64)).unwrap()]]),
        }
        kills += 1;
    }
    stop.store(true, Ordering::Relaxed);
    let mut known = Vec::new();
    for writer in writers {
        known.push(writer.await.unwrap());
    }
    let mut run = run;
    // The last kill may come after all writes and hit the call that follows.
    let _ = run.call(calls::write("last", "w")).await.unwrap();
    run.ok(calls::write("last", "x")).await;
    check(&workspace, &known);
    assert_eq!(notes(&daemon), [""; 0]);
    let acknowledged = known.iter().filter(|known| known.acknowledged > 0).count();
    assert!(kills > 5 && acknowledged == WRITERS, "{kills} kills: {known:?}");
    println!("{} writes, {kills} kills", total.load(Ordering::Relaxed));
}

/// A patch of `FILES` files from one content to another.
fn patch(from: u32, to: u32) -> Operation {
    let hunk = |n: usize| format!("--- a/p{n}\n+++ b/p{n}\n@@ -1 +1 @@\n-{from}\n+{to}\n");
    let diff = (0..FILES).map(hunk).collect();
    Operation::Patch(v1::PatchRequest { change: Some(v1::patch_request::Change::UnifiedDiff(diff)) })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_patch_that_loses_its_host_worker_is_answered_after_its_repair() {
    let daemon = Daemon::start().await;
    let files: Vec<_> = (0..FILES).map(|n| (format!("p{n}"), "0\n")).collect();
    let files: Vec<_> = files.iter().map(|(name, content)| (name.as_str(), *content)).collect();
    let workspace = daemon.workspace("w", &files);
    let mut run = daemon.run("open", &workspace).await;
    let begun = || {
        let privates = daemon.state_dir().join("host-worker");
        names(&privates).iter().any(|run| !names(&privates.join(run).join("patches")).is_empty())
    };
    let (mut known, mut dice, mut lost) = (0, Dice(7), 0);
    for to in 1..=effort::cases(20, 200) {
        let patching = run.waits(patch(known, to));
        // There is no event for it, and the moment is what is tested.
        while !begun() && !patching.is_finished() {
            tokio::task::yield_now().await;
        }
        dice.moment(4).await;
        kill(&host_workers(daemon.pid()));
        let answer = patching.await.unwrap().unwrap();
        // What the caller finds who looks at once.
        let found: Vec<_> =
            (0..FILES).map(|n| std::fs::read_to_string(workspace.join(format!("p{n}"))).unwrap()).collect();
        let unfinished = begun() || !notes(&daemon).is_empty();
        let is = |value: u32| found.iter().all(|found| *found == format!("{value}\n"));
        if answer.status() == Status::Succeeded {
            assert!(is(to), "{to} was acknowledged: {found:?}");
        } else {
            lost += 1;
            assert!(is(known) || is(to), "half of the patch from {known} to {to} was there: {found:?}");
        }
        assert!(!unfinished, "something of it was still to be put right");
        known = if is(to) { to } else { known };
    }
    assert!(lost > 0, "no kill hit a patch");
    // The last kill may come after its patch and hit the call that follows.
    let _ = run.waits(calls::write("last", "w")).await.unwrap();
    run.ok(calls::write("last", "x")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_killed_at_any_moment_leaves_files_old_or_new_and_nothing_else() {
    let mut daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    let (mut known, mut dice, total) = ([Known::default(); WRITERS], Dice(11), Arc::new(AtomicU32::new(0)));
    let (mut rounds, mut found) = (0, 0);
    // One run outlives them all.
    let mut run = daemon.run("open", &workspace).await;
    while total.load(Ordering::Relaxed) < 1_000 {
        let before = total.load(Ordering::Relaxed);
        let never = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| write_on(&run, writer, known[writer], never.clone(), total.clone()))
            .collect();
        while total.load(Ordering::Relaxed) < before + 70 {
            assert!(!writers.iter().any(JoinHandle::is_finished), "a call failed in round {rounds}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        dice.moment(20).await;
        // In every other round nobody is left who could put anything right but the next daemon.
        let host_workers = if rounds % 2 == 0 { host_workers(daemon.pid()) } else { Vec::new() };
        kill(&host_workers);
        daemon.kill().await;
        for (writer, task) in writers.into_iter().enumerate() {
            known[writer] = task.await.unwrap();
        }
        found += notes(&daemon).len();
        daemon.launch().await;
        check(&workspace, &known);
        assert_eq!(notes(&daemon), [""; 0], "in round {rounds}");
        run = RunHandle { clients: daemon.connect().await, ..run };
        rounds += 1;
    }
    assert!(found > 0, "none of {rounds} kills hit a write in the middle");
    println!("{} writes, {rounds} kills, {found} temporary files found", total.load(Ordering::Relaxed));
}
