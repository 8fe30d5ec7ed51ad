//! The one task that looks at the disk: at its free room four times a second, which costs nothing, and at what runs have when
//! there is a reason to.
//!
//! Where the kernel counts, asking it is cheap, and is done whenever the free room has changed. Elsewhere a run is measured when
//! it is in use and the disk has lost more than a part of what the run may still take, when it is over and may have made
//! room, and now and then. Measuring one costs what it has, which its quota bounds; a run is not measured again before many
//! times as long has passed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use audit::{Event, Kind};
use audit_service::AuditLog;
use containers::{Amount, Commands, Group};
use identity::RunId;
use refusal::chain;
use serde_json::json;
use store::run::{Record, Workspace};
use tokio_util::sync::CancellationToken;

use crate::quota::{Found, Free, Level, Quotas, Verdict};
use crate::registry::Runs;
use crate::root_layer;
use crate::run::Run;

/// Between looks at the free room.
const TICK: Duration = Duration::from_millis(250);
/// And at the least, however many ask for one.
const SHORTEST: Duration = Duration::from_millis(50);
/// A run that is in use is measured so often, whatever the free room says.
const USED: Duration = Duration::from_secs(10);
/// And one that is not.
const UNUSED: Duration = Duration::from_secs(60);
/// Measuring may take one part in so many of the time.
const SHARE: u32 = 8;
/// What is left of ended runs is measured for so long at a time, and of so many.
const LEFT: Duration = Duration::from_millis(20);
const AT_ONCE: usize = 16;
/// Losses of the disk that are a reason to look.
const LEAST_LOSS: Amount = Amount { bytes: 1 << 20, files: 256 };
const MOST_LOSS: Amount = Amount { bytes: 32 << 20, files: 4_096 };

/// A look at one run.
#[derive(Debug, Clone, Copy)]
struct Looked {
    at: Instant,
    took: Duration,
    free: Free,
}

/// What the task looks at.
pub struct DiskWatch {
    pub quotas: Arc<Quotas>,
    pub runs: Arc<Runs>,
    pub audit: Arc<AuditLog>,
}

/// What the task remembers.
#[derive(Default)]
struct Looks {
    looked: BTreeMap<RunId, Looked>,
    free: Free,
    /// The free room cannot be seen, and that was said.
    is_blind: bool,
}

impl DiskWatch {
    /// Watches until the daemon stops.
    pub async fn run(self, stop: CancellationToken) {
        let mut looks = Looks::default();
        loop {
            let is_asked = tokio::select! {
                () = stop.cancelled() => return,
                () = self.quotas.look.notified() => true,
                () = tokio::time::sleep(TICK) => false,
            };
            looks.look(&self, is_asked).await;
            tokio::time::sleep(SHORTEST).await;
        }
    }
}

impl Looks {
    async fn look(&mut self, watch: &DiskWatch, is_asked: bool) {
        let free = match watch.quotas.free() {
            Ok(free) => free,
            Err(error) => {
                if !std::mem::replace(&mut self.is_blind, true) {
                    tracing::error!(error = %chain(&error), "the room on the state disk cannot be seen");
                }
                return;
            }
        };
        self.is_blind = false;
        let (level, is_new) = watch.quotas.take(free);
        if is_new {
            tell_level(watch, level, free).await;
        }
        let runs = watch.runs.all_living();
        self.looked.retain(|id, _| runs.iter().any(|(living, _)| living == id));
        for (id, run) in &runs {
            if let Some(used) = watch.runs.launcher.projects.used(*id) {
                self.ask_kernel(watch, (*id, run), used, free).await;
            } else if self.is_due(*id, run, free, is_asked) {
                self.measure(watch, *id, run, free).await;
            }
        }
        if level == Level::Full && (is_new || free.bytes < self.free.bytes || free.files < self.free.files) {
            end_largest(&runs);
        }
        self.free = free;
        left(watch).await;
    }

    async fn ask_kernel(
        &mut self,
        watch: &DiskWatch,
        (id, run): (RunId, &Arc<Run>),
        used: std::io::Result<Amount>,
        free: Free,
    ) {
        match used {
            Ok(amount) => {
                let found = Found { amount, by_kernel: true, ..Found::default() };
                act(watch, (id, run), found).await;
            }
            Err(error) => {
                let at = Instant::now();
                let is_first = self.looked.insert(id, Looked { at, took: Duration::ZERO, free }).is_none();
                if is_first {
                    tracing::error!(run = %id, error = %chain(&error), "what a run has on the disk is not known");
                }
            }
        }
    }

    /// Whether a run that the kernel does not count is to be measured now.
    fn is_due(&self, id: RunId, run: &Run, free: Free, is_asked: bool) -> bool {
        let Some(last) = self.looked.get(&id) else { return true };
        let passed = last.at.elapsed();
        if passed < last.took * SHARE {
            return false;
        }
        let is_used = run.was_used_since(last.at);
        let longest = if is_used { USED } else { UNUSED };
        if passed >= longest {
            return true;
        }
        match run.disk.room() {
            Some(room) => is_used && has_lost(last.free, free, room),
            None => is_used || is_asked,
        }
    }

    async fn measure(&mut self, watch: &DiskWatch, id: RunId, run: &Arc<Run>, free: Free) {
        let at = Instant::now();
        let paths = watch.runs.launcher.directories.counted_of(&run.record());
        let found = measured(paths, run.disk.worth_counting(), unnamed(watch, id, run)).await;
        self.looked.insert(id, Looked { at, took: at.elapsed(), free });
        match found {
            Ok(found) => act(watch, (id, run), found).await,
            Err(error) => tracing::error!(run = %id, error = %chain(&error), "a run was not measured"),
        }
    }
}

async fn act(watch: &DiskWatch, (id, run): (RunId, &Arc<Run>), found: Found) {
    let Verdict { standing, is_new, ends_commands } = run.disk.take(found);
    if ends_commands {
        run.end_commands();
        // What was not counted to the end is, as soon as nothing adds to it.
        watch.quotas.look_again();
    }
    if !is_new {
        return;
    }
    let (most, state) = (run.disk.most(), standing.as_str());
    let Amount { bytes, files } = found.amount;
    tracing::warn!(run = %id, state, bytes, files, max_bytes = most.bytes, max_files = most.files, "a run's disk quota");
    let spec = run.spec();
    let details = json!({
        "state": state, "used_bytes": bytes, "used_files": files, "at_least": found.is_more,
        "max_bytes": most.bytes, "max_files": most.files, "by": if found.by_kernel { "kernel" } else { "measuring" },
        "ended_commands": ends_commands,
    });
    let event = Event::new(Kind::DiskSpace)
        .run(id.to_string())
        .principal(&spec.principal)
        .agent(&spec.agent_id)
        .details(details);
    // A log without room says so itself.
    let _ = watch.audit.enqueue(event).await;
}

async fn tell_level(watch: &DiskWatch, level: Level, free: Free) {
    let state = level.as_str();
    match level {
        Level::Enough => {
            tracing::info!(free_bytes = free.bytes, free_files = free.files, "the state disk has room again");
        }
        Level::Low | Level::Full => tracing::warn!(
            state,
            free_bytes = free.bytes,
            free_files = free.files,
            "the state disk has little room: `coffer doctor` says which runs hold it"
        ),
    }
    let details = json!({ "state": state, "free_bytes": free.bytes, "free_files": free.files });
    let _ = watch.audit.enqueue(Event::new(Kind::DiskSpace).details(details)).await;
}

/// Whether so much of the disk has gone that a run with so much room may be over soon.
fn has_lost(before: Free, now: Free, room: Amount) -> bool {
    let worth = |room: u64, least: u64, most: u64| (room / 4).clamp(least, most);
    let bytes = before.bytes.saturating_sub(now.bytes);
    let files = before.files.unwrap_or(0).saturating_sub(now.files.unwrap_or(0));
    bytes >= worth(room.bytes, LEAST_LOSS.bytes, MOST_LOSS.bytes)
        || files >= worth(room.files, LEAST_LOSS.files, MOST_LOSS.files)
}

/// The disk is full and goes on filling: the commands of the run that is in use and has most are ended. The next time it is the
/// next one's.
fn end_largest(runs: &[(RunId, Arc<Run>)]) {
    /// By then it shows whether it was that one.
    const AGAIN: Duration = Duration::from_secs(5);
    let now = Instant::now();
    let lately = now.checked_sub(AGAIN).unwrap_or(now);
    let in_use = runs.iter().filter(|(_, run)| run.was_used_since(lately) && !run.disk.ended_since(lately));
    let largest = in_use.max_by_key(|(_, run)| run.disk.to_wire().map_or(0, |disk| disk.used_bytes));
    if let Some((id, run)) = largest {
        tracing::warn!(run = %id, "the state disk is full: the commands of the run that has most of it are ended");
        run.disk.commands_end();
        run.end_commands();
    }
}

/// Counts what is left of runs that have ended, a little at a time. Nothing adds to it any more.
async fn left(watch: &DiskWatch) {
    let projects = &watch.runs.launcher.projects;
    let known: BTreeSet<RunId> = projects.left().keys().copied().collect();
    let began = Instant::now();
    for record in watch.runs.ended_but(&known, AT_ONCE) {
        if began.elapsed() > LEFT {
            return;
        }
        let id = record.id;
        let paths = watch.runs.launcher.directories.counted_of(&without_kept(record));
        let all = Amount { bytes: u64::MAX, files: u64::MAX };
        // What cannot be counted is not asked about again.
        let found = measured(paths, all, Unnamed::default()).await.unwrap_or_default();
        projects.left().insert(id, found);
    }
}

/// The workspace of another run is counted with that one.
fn without_kept(mut record: Record) -> Record {
    if let Workspace::Kept { .. } = record.spec.workspace {
        record.spec.workspace = Workspace::Bind { path: std::path::PathBuf::new() };
    }
    record
}

/// Where to look for files that only a run's commands still have.
#[derive(Default)]
struct Unnamed {
    commands: Vec<Commands>,
    places: &'static [&'static str],
    /// Where a writable root may be mounted.
    slots: Option<std::path::PathBuf>,
}

fn unnamed(watch: &DiskWatch, id: RunId, run: &Run) -> Unnamed {
    let Ok(lanes) = run.lanes_for_review() else { return Unnamed::default() };
    let places: &[_] = if run.disk.has_workspace() { &["/state/", "/workspace/"] } else { &["/state/"] };
    let slots = Some(watch.runs.launcher.directories.slots(&id.to_string()));
    Unnamed {
        commands: Group::ALL.into_iter().filter_map(|group| lanes.commands(group)).collect(),
        places,
        slots,
    }
}

/// What is in all of these directories of the daemon's, and what commands have beside that. A directory that is not there has
/// nothing.
async fn measured(paths: Vec<std::path::PathBuf>, most: Amount, unnamed: Unnamed) -> std::io::Result<Found> {
    let measured = tokio::task::spawn_blocking(move || {
        let Unnamed { commands, places, slots } = unnamed;
        let root = slots.map_or_else(Vec::new, |slots| root_layer::shown(&slots));
        let root: Vec<String> = root.into_iter().map(|directory| directory + "/").collect();
        let places: Vec<&str> = places.iter().copied().chain(root.iter().map(String::as_str)).collect();
        let pids: Vec<u32> = commands.iter().filter_map(|commands| commands.pids().ok()).flatten().collect();
        let amount = containers::unnamed(&pids, &places);
        let is_more = amount.bytes > most.bytes || amount.files > most.files;
        let mut found = Found { amount, is_more, ..Found::default() };
        for path in paths {
            let directory = match crate::workspace::open_own(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                directory => directory?,
            };
            let most = Amount {
                bytes: most.bytes.saturating_sub(found.amount.bytes),
                files: most.files.saturating_sub(found.amount.files),
            };
            let more = containers::measure(std::os::fd::AsFd::as_fd(&directory.handle), most)?;
            found.amount.bytes += more.amount.bytes;
            found.amount.files += more.amount.files;
            found.is_more |= more.is_more;
            found.is_too_deep |= more.is_too_deep;
            if found.is_more {
                break;
            }
        }
        Ok(found)
    });
    measured.await.map_err(std::io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free(mib: u64, files: u64) -> Free {
        Free { bytes: mib << 20, files: Some(files), ..Free::default() }
    }

    #[test]
    fn a_loss_counts_by_how_much_room_the_run_has() {
        let lost = |mib: u64, files: u64, room: u64| {
            let room = Amount { bytes: room << 20, files: 1 << 20 };
            has_lost(free(1_000, 100_000), free(1_000 - mib, 100_000 - files), room)
        };
        assert!(!lost(0, 0, 0) && !lost(31, 4_095, 1_000));
        assert!(lost(32, 0, 1_000) && lost(0, 4_096, 1_000));
        assert!(lost(2, 0, 8) && !lost(1, 0, 8), "a quarter of what is left");
        assert!(lost(1, 0, 0));
        assert!(!has_lost(free(10, 10), free(20, 20), Amount::default()), "it has gained");
    }
}
