//! Holds all processes by run: starts them and finds them.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use audit_service::AuditLog;
use executor::{AttachedProcess, Lanes};
use gateway::Permit;
use identity::{CallId, RunId};
use operations::{OpResult, Operation, Outcome, ProcessProgram, ProcessResult, Reason, ToolFailure};
use parking_lot::Mutex;
use refusal::{Refusal, chain};
use runs::{Run, Runs};
use store::allowance::{Allowance, Share};
use timestamp::{Timestamp, UnixMillis};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::v1;
use wire::v1::process::State;
use wire::v1::signal_process_request::Signal;

use crate::cut::cut;
use crate::disk::{Edition, Known, ProcessFiles};
use crate::input::{Input, NOTHING_STARTED, recording};
use crate::leftovers::name;
use crate::output::Output;
use crate::owner::Owner;
use crate::process::Process;
use crate::session::no_session;
use crate::shared::{Settings, Shared};

/// Most living processes of one run.
const LIVING: usize = 64;
/// Most ended processes of one run that clients can ask about.
const ENDED: usize = 256;
/// Time for the end of a shell that did not become a session.
const GOODBYE: Duration = Duration::from_secs(10);
/// Most bytes that are kept of a session's output, under any profile.
const LONGEST_OUTPUT: usize = 4 << 20;

/// The processes of all runs. Cheap to clone.
#[derive(Clone)]
pub struct Processes(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    table: Mutex<HashMap<RunId, BTreeMap<CallId, Slot>>>,
}

enum Slot {
    /// A process that is being started.
    Taken,
    Process(Arc<Process>),
}

impl Slot {
    fn lives(&self) -> bool {
        match self {
            Self::Taken => true,
            Self::Process(process) => process.lives(),
        }
    }
}

impl Processes {
    pub fn new(
        settings: Settings,
        runs: Arc<Runs>,
        audit: Arc<AuditLog>,
        tasks: TaskTracker,
        stop: CancellationToken,
    ) -> Self {
        let Settings { root, key, min_free, max_recording, on_stop } = settings;
        let key = Arc::new(key);
        let shared = Shared { runs, audit, tasks, stop, root, key, min_free, max_recording, on_stop };
        Self(Arc::new(Inner { shared: Arc::new(shared), table: Mutex::default() }))
    }

    /// Spends a permit for an operation `process`.
    pub async fn start(&self, run: &Arc<Run>, lanes: &Lanes, permit: Permit) -> Outcome {
        let parts = permit.into_parts();
        let (Operation::Process(wanted), Ok(id)) = (&parts.operation, CallId::parse(&parts.call_id)) else {
            return Err(ToolFailure::new(Reason::Internal, "not a process"));
        };
        let request = wanted.request();
        let run_id = run.record().id;
        self.enter(run_id, id)?;
        let (shown, request_cut) = cut(&request);
        let process = v1::Process {
            process_id: id.to_string(),
            run_id: run_id.to_string(),
            request: Some(shown),
            request_cut,
            state: State::Running.into(),
            started_at: Some(Timestamp::now().to_wire()),
            stdin_open: wanted.takes_input(),
            ..Default::default()
        };
        let is_session = matches!(wanted.program, ProcessProgram::Session { .. });
        let until = wanted.timeout.map(|timeout| UnixMillis::now().after(timeout).0);
        // The bound is for both streams together.
        let most = parts.bounds.max_spool_bytes / 2;
        let known = Known::new(&process, &parts.caller.principal, &parts.caller.agent_id, until, most);
        let files = ProcessFiles::new(&self.0.shared.root, run_id, id);
        let started = self.begin(run, lanes, &files, &known, (process, request), &parts.bounds).await;
        if started.is_err() {
            self.forget(run_id, id);
            let removed = tokio::task::spawn_blocking(move || files.remove()).await;
            if let Ok(Err(error)) = removed {
                tracing::debug!(%error, "the directory of a process that did not start was not removed");
            }
        }
        started?;
        if is_session {
            let process = self.get(run_id, &id.to_string())?;
            if let Err(failure) = process.open_session().await {
                let _ = process.signal(Signal::Kill).await;
                process.wait(GOODBYE).await;
                return Err(failure);
            }
        }
        Ok(OpResult::Process(ProcessResult { process_id: id.to_string() }))
    }

    /// Spends a permit for an operation `session`.
    pub async fn perform(&self, run: &Arc<Run>, permit: Permit, cancel: &CancellationToken) -> Outcome {
        let parts = permit.into_parts();
        let Operation::Session(wanted) = &parts.operation else {
            return Err(ToolFailure::new(Reason::Internal, "not for a session"));
        };
        let process = self.get(run.record().id, &wanted.session_id).map_err(|_| no_session())?;
        let limit = usize::try_from(parts.bounds.max_output_bytes).unwrap_or(usize::MAX).min(LONGEST_OUTPUT);
        let oom_kills = || run.lanes().ok().and_then(|lanes| lanes.oom_kills());
        process.perform(wanted, limit, oom_kills, cancel).await
    }

    async fn begin(
        &self,
        run: &Arc<Run>,
        lanes: &Lanes,
        files: &ProcessFiles,
        known: &Known,
        (process, request): (v1::Process, v1::ProcessRequest),
        bounds: &operations::Bounds,
    ) -> Result<(), ToolFailure> {
        let share = self.share(run).await?;
        let takes_input = process.stdin_open;
        let (made, key, written) = (files.clone(), self.0.shared.key.clone(), known.clone());
        let (min_free, most) = (self.0.shared.min_free, known.most);
        // Written to disk before the process is made, because the next daemon has to know where to look.
        let prepared = tokio::task::spawn_blocking(move || {
            made.make()?;
            made.write(&key, Edition::Living, &written)?;
            Ok(Output::new(made, key, most, min_free, share))
        });
        let output = prepared.await.map_err(std::io::Error::other).and_then(|output| output);
        let output = output.map_err(|error| not_kept(&error))?;
        let recorder =
            if takes_input { Some(recording(&self.0.shared, run, files, &process, 0).await?) } else { None };
        let attached = match lanes.keep(&name(files.id), request, bounds).await {
            Ok(attached) => attached,
            Err(failure) => {
                if let Some(recorder) = recorder {
                    recorder.discard().await;
                }
                return Err(failure);
            }
        };
        self.own(run.clone(), files, known.clone(), process, (Arc::new(output), recorder), attached);
        Ok(())
    }

    pub(crate) fn own(
        &self,
        run: Arc<Run>,
        files: &ProcessFiles,
        known: Known,
        mut status: v1::Process,
        (output, recorder): (Arc<Output>, Option<store::recording::Recorder>),
        attached: AttachedProcess,
    ) {
        let (link, state, held) = attached.into_parts();
        (status.stdin_bytes, status.stdin_open) = (state.stdin, state.stdin_open);
        let (process, ends) = Process::new(files.run, files.id, status, output);
        self.insert(process.clone());
        let input = Input::new(recorder, state.stdin, state.stdin_open);
        let owner =
            Owner { shared: self.0.shared.clone(), run, files: files.clone(), known, process, link, input };
        self.0.shared.tasks.spawn(owner.own(ends, state, held));
    }

    pub(crate) async fn output(
        &self,
        files: &ProcessFiles,
        most: u64,
        ends: Option<[u64; 2]>,
    ) -> std::io::Result<Arc<Output>> {
        // A run that has ended stores nothing further.
        let living = self.0.shared.runs.living_run(files.run).ok();
        let allowance = living.map_or_else(|| Allowance::new(0), |run| run.allowance.clone());
        let (files, key, min_free) = (files.clone(), self.0.shared.key.clone(), self.0.shared.min_free);
        let output =
            tokio::task::spawn_blocking(move || Output::open(files, key, most, min_free, &allowance, ends));
        Ok(Arc::new(output.await.map_err(std::io::Error::other)??))
    }

    /// Returns a process of this run.
    pub fn get(&self, run: RunId, id: &str) -> Result<Arc<Process>, Refusal> {
        let missing = || {
            Refusal::new(Reason::NotFound, "process_id: the run has no such process")
                .with("resource", "process")
        };
        let id = CallId::parse(id).map_err(|_| missing())?;
        match self.0.table.lock().get(&run).and_then(|of_run| of_run.get(&id)) {
            Some(Slot::Process(process)) => Ok(process.clone()),
            Some(Slot::Taken) | None => Err(missing()),
        }
    }

    /// Returns the processes of a run, the oldest first.
    pub fn list(&self, run: RunId, tag: &str) -> Vec<v1::Process> {
        let all: Vec<_> = self.of(run);
        let all = all.into_iter().map(|process| process.now());
        let tagged = |process: &v1::Process| {
            tag.is_empty() || process.request.as_ref().is_some_and(|request| request.tag == tag)
        };
        all.filter(tagged).collect()
    }

    /// Returns the sessions of a run, the oldest first.
    pub fn sessions(&self, run: RunId, tag: &str) -> Vec<v1::Session> {
        let all = self.of(run).into_iter().filter_map(|process| process.session_now());
        let tagged = |session: &v1::Session| {
            let request = session.process.as_ref().and_then(|process| process.request.as_ref());
            tag.is_empty() || request.is_some_and(|request| request.tag == tag)
        };
        all.filter(tagged).collect()
    }

    fn of(&self, run: RunId) -> Vec<Arc<Process>> {
        let table = self.0.table.lock();
        let slots = table.get(&run).into_iter().flat_map(BTreeMap::values);
        slots
            .filter_map(|slot| match slot {
                Slot::Process(process) => Some(process.clone()),
                Slot::Taken => None,
            })
            .collect()
    }

    /// Reserves a slot among a run's processes. If none is free, the oldest ended process is removed with its stored output.
    pub(crate) fn enter(&self, run: RunId, id: CallId) -> Result<(), ToolFailure> {
        let mut table = self.0.table.lock();
        let of_run = table.entry(run).or_default();
        if of_run.values().filter(|slot| slot.lives()).count() >= LIVING {
            let message = format!("the run has {LIVING} processes, which is the limit: end one first");
            return Err(ToolFailure::new(Reason::Overloaded, message));
        }
        let ended: Vec<CallId> = of_run.iter().filter(|(_, slot)| !slot.lives()).map(|(id, _)| *id).collect();
        let over = ended.len().saturating_sub(ENDED - 1);
        let gone: Vec<Slot> = ended.iter().take(over).filter_map(|old| of_run.remove(old)).collect();
        of_run.insert(id, Slot::Taken);
        drop(table);
        if !gone.is_empty() {
            let root = self.0.shared.root.clone();
            tokio::task::spawn_blocking(move || gone.into_iter().for_each(|old| remove_ended(&root, old)));
        }
        Ok(())
    }

    /// Takes the least share of a new process from its run's allowance.
    ///
    /// To make space, the oldest ended processes are removed with their stored output.
    async fn share(&self, run: &Run) -> Result<Share, ToolFailure> {
        loop {
            if let Some(share) = Output::share(&run.allowance) {
                return Ok(share);
            }
            let Some(oldest) = self.take_oldest_ended(run.record().id) else {
                return Err(run.no_room(NOTHING_STARTED).into());
            };
            let root = self.0.shared.root.clone();
            // The next round shows whether that was enough.
            let _ = tokio::task::spawn_blocking(move || remove_ended(&root, oldest)).await;
        }
    }

    fn take_oldest_ended(&self, run: RunId) -> Option<Slot> {
        let mut table = self.0.table.lock();
        let of_run = table.get_mut(&run)?;
        let oldest = of_run.iter().find(|(_, slot)| !slot.lives()).map(|(id, _)| *id)?;
        of_run.remove(&oldest)
    }

    pub(crate) fn insert(&self, process: Arc<Process>) {
        self.0.table.lock().entry(process.run).or_default().insert(process.id, Slot::Process(process));
    }

    pub(crate) fn forget(&self, run: RunId, id: CallId) {
        if let Some(of_run) = self.0.table.lock().get_mut(&run) {
            of_run.remove(&id);
        }
    }

    /// Forgets the processes of a run that was deleted with its directory.
    pub fn forget_run(&self, run: RunId) {
        self.0.table.lock().remove(&run);
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }
}

/// Removes the files of an ended process that clients can no longer ask about. Blocks on the disk.
fn remove_ended(root: &Path, old: Slot) {
    let Slot::Process(process) = old else { return };
    match ProcessFiles::new(root, process.run, process.id).remove() {
        Ok(()) => process.output.is_removed(),
        Err(error) => tracing::warn!(%error, "the files of an old process were not removed"),
    }
}

fn not_kept(error: &std::io::Error) -> ToolFailure {
    tracing::error!(error = %chain(error), "a process cannot be recorded on the daemon's disk");
    ToolFailure::new(
        Reason::Internal,
        "the daemon cannot write the files of a process to its disk; nothing was started",
    )
}
