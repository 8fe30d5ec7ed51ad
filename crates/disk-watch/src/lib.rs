#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(missing_docs)] // only the daemon calls it

mod loss;
mod measuring;
mod still;
mod turns;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use audit::{Event, Kind};
use audit_service::AuditLog;
use containers::Amount;
use disk_quotas::{Found, Free, Level, Quotas, Verdict};
use identity::RunId;
use refusal::chain;
use runs::{Run, Runs};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use loss::{A_FALL, STILL, SURELY, is_beyond, is_worth_a_look, lost_between};
use still::Still;
use turns::Turns;

/// Time between looks while the disk falls, or a run is measured.
const FALLING: Duration = Duration::from_millis(10);
/// Time between looks while a command runs that the kernel does not hold to a quota.
const WRITING: Duration = Duration::from_millis(40);
/// Time between looks while the kernel holds every run that is in use.
const HELD: Duration = Duration::from_millis(250);
/// Time between looks while no run is in use.
const RESTING: Duration = Duration::from_secs(1);
/// Shortest time between looks, however many callers ask for one.
const SHORTEST: Duration = Duration::from_millis(5);
/// Time after which a run that is in use is measured, whatever the free space is.
const USED: Duration = Duration::from_secs(10);
/// Time after which a run that is not in use is measured.
const UNUSED: Duration = Duration::from_secs(60);
/// Multiple of a measure's duration that passes before the run is measured again.
const SHARE: u32 = 8;
/// Runs that are measured at the same time, and those of one tenant.
const MEASURES: usize = 3;
const MEASURES_OF_TENANT: usize = 2;

/// Watches the state disk.
pub struct DiskWatch {
    pub quotas: Arc<Quotas>,
    pub runs: Arc<Runs>,
    pub audit: Arc<AuditLog>,
}

/// A look at one run.
struct Looked {
    /// When the look began.
    at: Instant,
    took: Duration,
    /// Total loss of the disk when the look began.
    lost: Amount,
    is_measured: bool,
    still: Option<Still>,
}

/// A measure that has finished.
struct Measure {
    id: RunId,
    run: Arc<Run>,
    tenant: String,
    at: Instant,
    took: Duration,
    lost: Amount,
    found: std::io::Result<Found>,
}

/// State of the task.
#[derive(Default)]
struct Looks {
    looked: BTreeMap<RunId, Looked>,
    free: Option<Free>,
    /// Sum of the disk's losses between two looks. Space that is freed in the meantime does not reduce it.
    lost: Amount,
    measures: JoinSet<Measure>,
    turns: Turns,
    /// The free space cannot be read, and the error was logged.
    is_blind: bool,
}

impl DiskWatch {
    /// Watches until the daemon stops.
    pub async fn run(self, stop: CancellationToken) {
        tokio::join!(self.look(&stop), stop.run_until_cancelled(measuring::left(&self)));
    }

    async fn look(&self, stop: &CancellationToken) {
        let mut looks = Looks::default();
        let mut is_asked = false;
        loop {
            let pause = looks.look(self, is_asked).await;
            tokio::time::sleep(SHORTEST).await;
            is_asked = tokio::select! {
                () = stop.cancelled() => return,
                () = self.quotas.look.notified() => true,
                () = self.quotas.begins.notified() => false,
                Some(measure) = looks.measures.join_next() => {
                    if let Ok(measure) = measure {
                        looks.measured(self, measure).await;
                    }
                    false
                }
                () = tokio::time::sleep(pause) => false,
            };
        }
    }
}

impl Looks {
    /// Looks at the disk and at every run, and returns how long to wait for the next look.
    async fn look(&mut self, watch: &DiskWatch, is_asked: bool) -> Duration {
        watch.quotas.rest();
        let free = match watch.quotas.free() {
            Ok(free) => free,
            Err(error) => {
                if !std::mem::replace(&mut self.is_blind, true) {
                    tracing::error!(error = %chain(&error), "the free space of the state disk cannot be determined");
                }
                return RESTING;
            }
        };
        self.is_blind = false;
        let fell = lost_between(self.free.unwrap_or(free), free);
        self.lost = Amount { bytes: self.lost.bytes + fell.bytes, files: self.lost.files + fell.files };
        let (level, is_new) = watch.quotas.take(free);
        if is_new {
            tell_level(watch, level, free).await;
        }
        let runs = watch.runs.all_living();
        self.looked.retain(|id, _| runs.iter().any(|(living, _)| living == id));
        let pause = self.look_at_runs(watch, &runs, is_asked).await;
        if level == Level::Full && (is_new || fell != Amount::default()) {
            end_largest(watch, &runs);
        }
        self.free = Some(free);
        if pause < HELD {
            watch.quotas.watches();
        }
        if pause == WRITING && (fell.bytes >= A_FALL || !self.measures.is_empty()) { FALLING } else { pause }
    }

    async fn look_at_runs(
        &mut self,
        watch: &DiskWatch,
        runs: &[(RunId, Arc<Run>)],
        is_asked: bool,
    ) -> Duration {
        let mut pause = RESTING;
        let mut due = Vec::new();
        for (id, run) in runs {
            let since = self.looked.get(id).map_or_else(Instant::now, |last| last.at);
            let is_used = run.was_used_since(since);
            if let Some(used) = watch.runs.launcher.projects.used(*id) {
                pause = pause.min(if is_used { HELD } else { RESTING });
                self.ask_kernel(watch, (*id, run), used).await;
                continue;
            }
            pause = pause.min(if is_used { WRITING } else { RESTING });
            let Some(last) = self.looked.get_mut(id) else {
                due.push((u64::MAX, *id, run));
                continue;
            };
            let fell = last.lost_since(self.lost);
            let may_take = run.disk.may_take();
            if is_used && last.still.is_none() && is_beyond(fell, may_take, STILL) {
                last.still = Still::begin(watch, *id, run);
            }
            if !last.is_measured && last.is_due(run, fell, is_used, is_asked) {
                due.push((fell.bytes.saturating_sub(may_take.bytes), *id, run));
            }
        }
        // The run of a tenant that may be over by most comes first.
        due.sort_by_key(|(excess, ..)| std::cmp::Reverse(*excess));
        let of = |run: &Run| watch.runs.launcher.tenancy().tenant_of(&run.spec().principal);
        let mut due: Vec<_> = due.into_iter().map(|(_, id, run)| (of(run), id, run)).collect();
        while self.measures.len() < MEASURES
            && let Some(next) =
                self.turns.next(due.iter().map(|(tenant, ..)| tenant.as_str()), MEASURES_OF_TENANT)
        {
            let (tenant, id, run) = due.remove(next);
            self.begin(watch, id, run, tenant);
        }
        pause
    }

    async fn ask_kernel(
        &mut self,
        watch: &DiskWatch,
        (id, run): (RunId, &Arc<Run>),
        used: std::io::Result<Amount>,
    ) {
        let is_first = self.looked.insert(id, Looked::now(self.lost)).is_none();
        match used {
            Ok(amount) => {
                let found = Found { amount, by_kernel: true, ..Found::default() };
                act(watch, (id, run), found, Instant::now()).await;
            }
            Err(error) if is_first => {
                tracing::error!(run = %id, error = %chain(&error), "the disk use of a run is unknown");
            }
            Err(_) => {}
        }
    }

    /// Begins to measure a run.
    fn begin(&mut self, watch: &DiskWatch, id: RunId, run: &Arc<Run>, tenant: String) {
        let (at, lost) = (Instant::now(), self.lost);
        self.looked.entry(id).or_insert_with(|| Looked::now(lost)).is_measured = true;
        let found = measuring::of_run(watch, id, run);
        let run = run.clone();
        self.turns.begin(&tenant);
        self.measures.spawn(async move {
            let found = found.await;
            Measure { id, run, tenant, at, took: at.elapsed(), lost, found }
        });
    }

    /// Acts on a measure that has finished.
    async fn measured(&mut self, watch: &DiskWatch, measure: Measure) {
        let Measure { id, run, tenant, at, took, lost, found } = measure;
        self.turns.end(&tenant);
        let is_ended = match found {
            Ok(found) => act(watch, (id, &run), found, at).await,
            Err(error) => {
                tracing::error!(run = %id, error = %chain(&error), "a run was not measured");
                false
            }
        };
        let Some(last) = self.looked.get_mut(&id) else { return };
        let still = last.still.take();
        *last = Looked { at, took, lost, is_measured: false, still: None };
        let Some(still) = still else { return };
        // Files that were written during the measure may already exceed the quota.
        if !is_ended && is_beyond(last.lost_since(self.lost), run.disk.may_take(), STILL) {
            last.still = Some(still);
        } else {
            still.end(watch, run);
        }
    }
}

impl Looked {
    fn now(lost: Amount) -> Self {
        Self { at: Instant::now(), took: Duration::ZERO, lost, is_measured: false, still: None }
    }

    fn lost_since(&self, lost: Amount) -> Amount {
        Amount { bytes: lost.bytes - self.lost.bytes, files: lost.files - self.lost.files }
    }

    /// Returns true if a run that the kernel does not count has to be measured now.
    fn is_due(&self, run: &Run, lost: Amount, is_used: bool, is_asked: bool) -> bool {
        if is_used && is_beyond(lost, run.disk.may_take(), SURELY) {
            return true;
        }
        let passed = self.at.elapsed();
        if passed < self.took * SHARE {
            return false;
        }
        if passed >= if is_used { USED } else { UNUSED } {
            return true;
        }
        match run.disk.room() {
            Some(room) => is_used && is_worth_a_look(lost, room),
            None => is_used || is_asked,
        }
    }
}

/// Records the space that was found for a run, and returns true if its commands are ended because of it.
async fn act(watch: &DiskWatch, (id, run): (RunId, &Arc<Run>), found: Found, began: Instant) -> bool {
    let Verdict { standing, is_new, ends_commands } = run.disk.take(found, began);
    if ends_commands {
        still::strike(run).await;
        run.end_commands();
        // The measure may have stopped early. The watch counts the rest as soon as no command adds files.
        watch.quotas.look_again();
    }
    if !is_new {
        return ends_commands;
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
    // An audit log without space reports that itself.
    let _ = watch.audit.enqueue(event).await;
    ends_commands
}

async fn tell_level(watch: &DiskWatch, level: Level, free: Free) {
    let state = level.as_str();
    match level {
        Level::Enough => {
            tracing::info!(
                free_bytes = free.bytes,
                free_files = free.files,
                "the state disk has space again"
            );
        }
        Level::Low | Level::Full => tracing::warn!(
            state,
            free_bytes = free.bytes,
            free_files = free.files,
            "the state disk has little space: `coffer doctor` says which runs use it"
        ),
    }
    let details = json!({ "state": state, "free_bytes": free.bytes, "free_files": free.files });
    let _ = watch.audit.enqueue(Event::new(Kind::DiskSpace).details(details)).await;
}

/// Ends the commands of the largest run that is in use, because the disk is full and still loses space.
///
/// If the disk still loses space, the next check ends the commands of the next largest run.
fn end_largest(watch: &DiskWatch, runs: &[(RunId, Arc<Run>)]) {
    /// Time after which it is visible whether that run filled the disk.
    const AGAIN: Duration = Duration::from_secs(5);
    let now = Instant::now();
    let lately = now.checked_sub(AGAIN).unwrap_or(now);
    let in_use = runs.iter().filter(|(_, run)| run.was_used_since(lately) && !run.disk.ended_since(lately));
    let largest = in_use.max_by_key(|(_, run)| run.disk.to_wire().map_or(0, |disk| disk.used_bytes));
    if let Some((id, run)) = largest {
        tracing::warn!(run = %id, "the state disk is full: the commands of the run that has most of it are ended");
        run.disk.commands_end_for_disk();
        let run = run.clone();
        watch.runs.tasks.spawn(async move {
            still::strike(&run).await;
            run.end_commands();
        });
    }
}
