//! The two lanes of a run.

use std::sync::Arc;
use std::time::Duration;

use containers::{CgroupError, Commands, Group, HostProcess};
use gateway::Permit;
use operations::{
    Bound, CommandEnd, Delivery, Lane, OpResult, Operation, Part, Preview, Reason, ToolFailure,
};
use parking_lot::Mutex;
use refusal::chain;
use tokio_util::sync::CancellationToken;
use worker_protocol::client::{CallSpec, Finished, Go, LaneError, OutputSink, Placement, Usage};
use worker_protocol::convert::Reply;

use crate::command_end::{CommandContext, Known, command_end};
use crate::failure::failure;
use crate::guest::GuestLane;
use crate::host_worker::HostWorkerLane;
use crate::left::{self, Left};
use crate::placement::LeafPlacement;
use crate::prefork::Ready;

/// Most bytes that are kept of a command that is running.
const WORDS: usize = 16_384;

/// The two lanes of a run.
pub struct Lanes {
    pub(crate) guest: GuestLane,
    host_worker: HostWorkerLane,
    /// Calls whose commands are running, or that reach servers.
    running: Mutex<Vec<Command>>,
}

/// A command that is running, or an operation that reaches servers.
struct Command {
    call: String,
    /// The beginning of the command, as the agent wrote it.
    words: String,
}

impl Lanes {
    pub fn new(guest: GuestLane, host_worker: HostWorkerLane) -> Self {
        Self { guest, host_worker, running: Mutex::default() }
    }

    pub fn guest(&self) -> &GuestLane {
        &self.guest
    }

    pub fn host_worker(&self) -> &HostWorkerLane {
        &self.host_worker
    }

    /// Returns the ids of the calls whose commands are running, or that reach servers.
    pub fn calls(&self) -> Vec<String> {
        self.running.lock().iter().map(|command| command.call.clone()).collect()
    }

    /// Returns the beginnings of the commands that are running, as the agent wrote them.
    pub fn command_lines(&self) -> Vec<String> {
        self.running.lock().iter().map(|command| command.words.clone()).collect()
    }

    /// Finds the processes that an earlier daemon kept under this name. Returns `None` if no cgroup is visible.
    pub fn find_left(&self, name: &str, processes: u32) -> Option<Left> {
        let (cgroup, _) = self.guest.cgroup()?;
        Some(Left::find(cgroup, name, processes))
    }

    /// Executes the operation that the permit allows.
    ///
    /// `limit` shortens the operation's time limit if it is less. While the operation runs, `output` receives the output of a command or
    /// the content of a download. The second value is the set of processes that the command left running, if its profile keeps them.
    pub async fn execute(
        &self,
        permit: Permit,
        limit: Option<Duration>,
        output: Arc<dyn OutputSink>,
        cancel: CancellationToken,
        context: &dyn CommandContext,
    ) -> Finished {
        let parts = permit.into_parts();
        let delivery = parts.operation.delivery();
        let output = Some(output).filter(|_| matches!(delivery, Delivery::Command | Delivery::Stream));
        let deadline = deadline(&parts.operation, limit);
        let spec = CallSpec {
            operation: &parts.operation,
            bounds: &parts.bounds,
            deadline,
            preview: false,
            output: output.as_ref(),
        };
        if parts.operation.lane() == Lane::Container {
            cancel.run_until_cancelled(self.guest.restarted()).await;
        }
        let finished = match (parts.operation.lane(), delivery) {
            (_, Delivery::Process | Delivery::Session | Delivery::Upstream | Delivery::Checkpoint)
            | (Lane::Upstream | Lane::Daemon, _) => {
                Err(ToolFailure::new(Reason::Internal, "no lane of the run does this"))
            }
            (Lane::Host, _) => {
                let _running = self.reaching(&parts.call_id, spec.operation);
                of_host_worker(self.host_worker.call(&parts.call_id, spec, None, cancel).await)
            }
            (Lane::Container, Delivery::Stream) => self.guest.call(spec, None, cancel).await.map(results),
            (Lane::Container, Delivery::Look) => self.guest.look(spec, cancel).await.map(results),
            // A file outside of the mounts.
            (Lane::Container, Delivery::Effect) => match self.stage(&parts.call_id, spec, &cancel).await {
                Ok(()) => self.guest.call(spec, None, cancel).await.map(results),
                Err(failure) => Err(failure),
            },
            (Lane::Container, Delivery::Command) => {
                Ok(self.command(&parts.call_id, spec, cancel, context).await)
            }
        };
        let mut finished = finished.unwrap_or_else(failed);
        if parts.bounds.held_to.is_none() {
            // A void consent means that nothing was done, and clients ask again. A worker cannot say so of any other call.
            finished.outcome = finished.outcome.map_err(operations::unbound);
        }
        finished
    }

    /// Lists a call for as long as it reaches servers: a reviewer of a connection sees it.
    fn reaching<'l>(&'l self, call: &'l str, operation: &Operation) -> Option<Running<'l>> {
        operation.uses_network().then(|| Running::new(&self.running, call, operation))
    }

    /// Runs a command to its end, and makes its result.
    async fn command(
        &self,
        call: &str,
        spec: CallSpec<'_>,
        cancel: CancellationToken,
        context: &dyn CommandContext,
    ) -> Finished {
        let (ended, leaf) = {
            let _running = Running::new(&self.running, call, spec.operation);
            self.run(call, spec, cancel.clone()).await
        };
        let left = leaf.as_ref().and_then(|leaf| leaf.left());
        let (events, metered) = leaf.map_or_else(Default::default, |leaf| (leaf.events(), leaf.metered()));
        let mut finished = ended.unwrap_or_else(failed);
        // Applies also to a command whose worker was lost.
        finished.usage = metered.over(finished.usage);
        let kept = match left {
            Some(left) if finished.outcome.is_ok() => context.keep(left).await,
            // A failed call does not report processes that stay, so they are ended.
            Some(left) => {
                let _ = tokio::task::spawn_blocking(move || left.end()).await;
                Ok(())
            }
            None => Ok(()),
        };
        let usage = finished.usage;
        finished.and_then(|reply| {
            let mut report = reply.command().map_err(ToolFailure::claimed)?;
            report.usage.cpu_time_us = usage.cpu_time_us.unwrap_or_default();
            report.usage.peak_memory_bytes = usage.peak_memory_bytes.unwrap_or_default();
            if let Err(ended) = kept {
                report.kill = ended;
            }
            let known = Known {
                events,
                output_limit: spec.bounds.max_spool_bytes,
                cancelled: cancel.is_cancelled(),
                over_quota: context.over_quota(),
                is_disk_of_host: context.is_disk_of_host(),
                memory_limit: context.memory_limit(),
                run_ended: context.run_ended(),
                offers_processes: context.offers_processes(),
            };
            let end = CommandEnd { refused: context.refused(), ..command_end(report, known) };
            let result = end.into();
            let not_one = || ToolFailure::new(Reason::Internal, "the operation is no command");
            spec.operation.ended(result).ok_or_else(not_one)
        })
    }

    /// Executes an operation of the host lane like [`Self::execute`], but has no effect before `go`. The host worker prepares it meanwhile.
    pub async fn execute_after(
        &self,
        permit: Permit,
        limit: Option<Duration>,
        go: Go,
        cancel: CancellationToken,
    ) -> Finished {
        let parts = permit.into_parts();
        let deadline = deadline(&parts.operation, limit);
        let (operation, bounds) = (&parts.operation, &parts.bounds);
        let spec = CallSpec { operation, bounds, deadline, preview: false, output: None };
        let finished = match operation.lane() {
            Lane::Host => {
                let _running = self.reaching(&parts.call_id, operation);
                of_host_worker(self.host_worker.call(&parts.call_id, spec, Some(go), cancel).await)
            }
            Lane::Container | Lane::Upstream | Lane::Daemon => {
                Err(ToolFailure::new(Reason::Internal, "only operations of the host lane can be prepared"))
            }
        };
        finished.unwrap_or_else(failed)
    }

    /// Copies an uploaded file to the path where the container lane finds it.
    async fn stage(
        &self,
        call: &str,
        spec: CallSpec<'_>,
        cancel: &CancellationToken,
    ) -> Result<(), ToolFailure> {
        let Some(operation) = spec.operation.staging() else { return Ok(()) };
        let spec = CallSpec { operation: &operation, ..spec };
        let staged = of_host_worker(self.host_worker.call(call, spec, None, cancel.clone()).await)?;
        staged.outcome.map(drop)
    }

    /// Runs a command in a process that waits for one, or in a new process.
    async fn run(
        &self,
        call: &str,
        spec: CallSpec<'_>,
        cancel: CancellationToken,
    ) -> (Result<Finished<Reply>, ToolFailure>, Option<Arc<LeafPlacement>>) {
        // A command to which a reviewer consented runs while all other commands are frozen. The waiting processes are frozen with them.
        let alone = spec.bounds.held_to.is_some();
        if let Some((serving, Ready { prepared, leaf })) = (!alone).then(|| self.guest.prefork()).flatten() {
            leaf.begin();
            if spec.bounds.keep_background {
                leaf.keep(left::name(call));
            }
            (self.guest.call_prepared(&serving, spec, prepared, cancel).await, Some(leaf))
        } else {
            let leaf = self
                .guest
                .leaf(call)
                .map(|leaf| if alone { leaf.among(Group::Alone) } else { leaf })
                .map(Arc::new);
            if let Some(leaf) = leaf.as_ref().filter(|_| spec.bounds.keep_background) {
                leaf.keep(left::name(call));
            }
            let placement = leaf.clone().map(|leaf| leaf as Arc<dyn Placement>);
            (self.guest.call(spec, placement, cancel).await, leaf)
        }
    }

    /// Returns the number of processes that the kernel has killed in the container for lack of memory. `None` where no cgroup is visible.
    pub fn oom_kills(&self) -> Option<u64> {
        self.guest.cgroup().map(|(cgroup, _)| cgroup.limit_events().oom_kills)
    }

    /// Starts to make processes for the next commands. Called after a command was answered, so that no client waits for it.
    pub fn answered(&self) {
        self.guest.refill();
    }

    /// Returns the effect that the call would have and the objects that it would use, for its reviewer. Changes nothing.
    ///
    /// Returns `None` for most operations of the container lane, because their effect is not known in advance.
    pub async fn preview(
        &self,
        call: &str,
        operation: &Operation,
        bounds: &operations::Bounds,
    ) -> Result<Option<Preview>, ToolFailure> {
        let deadline = if operation.uses_network() { operation.time_limit() } else { Operation::FILE_TIME };
        let spec = CallSpec { operation, bounds, deadline, preview: true, output: None };
        let looked = match operation.lane() {
            Lane::Host => {
                let _running = self.reaching(call, operation);
                of_host_worker(self.host_worker.call(call, spec, None, CancellationToken::new()).await)
            }
            Lane::Container if operation.delivery() == Delivery::Command => {
                self.guest.look(spec, CancellationToken::new()).await.map(results)
            }
            Lane::Container | Lane::Upstream | Lane::Daemon => return Ok(None),
        };
        let Finished { outcome, bound, .. } = looked?;
        Ok(Some(Preview { result: outcome?, bound }))
    }

    /// Returns the SHA-256 of a regular file in its present state.
    pub async fn hash(&self, path: &jail::SandboxPath) -> Result<String, ToolFailure> {
        let operation = Operation::Read(operations::Read {
            part: operations::ReadPart::Bytes { offset: 0, limit: Some(0) },
            encoding: operations::Encoding::Base64,
            ..operations::Read::new(path.clone())
        });
        let bounds = operations::Bounds::default();
        let spec = CallSpec {
            operation: &operation,
            bounds: &bounds,
            deadline: Operation::FILE_TIME,
            preview: false,
            output: None,
        };
        let finished = self.guest.look(spec, CancellationToken::new()).await.map(results);
        match finished?.outcome? {
            OpResult::Read(read) => Ok(read.sha256),
            _ => Err(ToolFailure::new(Reason::Internal, "the worker's answer belongs to another operation")),
        }
    }

    /// Returns all commands of the container that are in this group, or `None` if the engine's cgroups are not this host's.
    pub fn commands(&self, group: Group) -> Option<Commands> {
        self.guest.cgroup().map(|(cgroup, _)| cgroup.commands(group))
    }

    /// Puts a process of the host and its children below the run's limits of memory and processor time.
    ///
    /// They are moved in the background: the kernel waits some milliseconds for each, which no start of a run should wait for.
    pub fn share_limits(&self, host_pid: u32) {
        let Some((cgroup, _)) = self.guest.cgroup() else {
            tracing::warn!(
                "a process of a run is not below its limits: the engine's cgroups are not visible"
            );
            return;
        };
        // Opened now, while the caller holds the process, so that its pid is not reused.
        let process = HostProcess::of_engine(host_pid);
        tokio::task::spawn_blocking(move || {
            match process.and_then(|process| cgroup.add_companion(&process)) {
                Ok(()) | Err(CgroupError::NoSuchProcess) => {}
                Err(error) => {
                    tracing::warn!(error = %chain(&error), "a process of a run is not below its limits");
                }
            }
        });
    }

    pub async fn shutdown(&self) {
        tokio::join!(self.guest.shutdown(), self.host_worker.shutdown());
    }
}

/// Entry of a call whose command is running.
struct Running<'l>(&'l Mutex<Vec<Command>>, &'l str);

impl<'l> Running<'l> {
    fn new(all: &'l Mutex<Vec<Command>>, call: &'l str, operation: &Operation) -> Self {
        all.lock().push(Command { call: call.to_owned(), words: words(operation) });
        Self(all, call)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.lock().retain(|running| running.call != self.1);
    }
}

/// Returns the beginning of a command, or the name of another operation.
fn words(operation: &Operation) -> String {
    let words = operation.parts().into_iter().find_map(|part| match part {
        Part::Argv(command, args) => {
            let mut words = beginning(command.as_bytes(), WORDS).to_vec();
            for word in args {
                let left = WORDS.saturating_sub(words.len() + 1);
                if left == 0 {
                    break;
                }
                words.push(b' ');
                words.extend(beginning(word.as_bytes(), left));
            }
            Some(String::from_utf8_lossy(&words).into_owned())
        }
        Part::Text(_, script) => Some(String::from_utf8_lossy(beginning(script, WORDS)).into_owned()),
        Part::Line(_) | Part::Values(..) => None,
    });
    words.unwrap_or_else(|| operation.name().to_owned())
}

fn beginning(bytes: &[u8], most: usize) -> &[u8] {
    &bytes[..bytes.len().min(most)]
}

/// Returns the time limit of an operation in its lane.
fn deadline(operation: &Operation, limit: Option<Duration>) -> Duration {
    let own = operation.time_limit();
    limit.map_or(own, |limit| limit.min(own))
}

/// Returns a call that was for no command, with its result.
fn results(finished: Finished<Reply>) -> Finished {
    finished.and_then(|reply| reply.result().map_err(ToolFailure::claimed))
}

/// Returns the answer of the host worker.
///
/// Its processes read files that programs of the run have made, and have a limit of memory. So these programs may know how to end them,
/// and no failure that they report or leave is put down to the infrastructure.
fn of_host_worker(ended: Result<Finished, LaneError>) -> Result<Finished, ToolFailure> {
    let mut finished = ended.map_err(|error| failure(&error).claimed())?;
    finished.outcome = finished.outcome.map_err(ToolFailure::claimed);
    Ok(finished)
}

fn failed<R>(failure: ToolFailure) -> Finished<R> {
    Finished {
        outcome: Err(failure),
        bound: Bound::default(),
        usage: Usage::default(),
        bytes_in: 0,
        bytes_out: 0,
    }
}

impl GuestLane {
    pub(crate) fn leaf(&self, call: &str) -> Option<LeafPlacement> {
        let (cgroup, pid) = self.cgroup()?;
        Some(LeafPlacement::new(cgroup, pid, format!("call-{call}")))
    }
}

#[cfg(test)]
mod tests {
    use operations::{Exec, Fault, Operation, Reason, ToolFailure};
    use worker_protocol::client::LaneError;

    use super::{WORDS, failed, of_host_worker, words};

    #[test]
    fn no_failure_of_the_host_worker_is_put_down_to_the_infrastructure() {
        let internal =
            ToolFailure::new(Reason::Internal, "the process of this operation ended with signal 9");
        let finished = of_host_worker(Ok(failed(internal))).unwrap();
        assert_eq!(finished.outcome.unwrap_err().fault(), Fault::Program);
        let without_outcome = of_host_worker(Err(LaneError::NotPlaced(String::new())));
        assert_eq!(without_outcome.unwrap_err().fault(), Fault::Program);
        let refused = of_host_worker(Ok(failed(ToolFailure::new(Reason::NotFound, "no such file")))).unwrap();
        assert_eq!(refused.outcome.unwrap_err().fault(), Fault::Caller);
    }

    #[test]
    fn the_beginning_of_a_command_is_bounded_whatever_its_parts_are() {
        let short = words(&Operation::Exec(Exec::new("pip", ["install", "x"])));
        assert_eq!(short, "pip install x");
        let long = "é".repeat(WORDS);
        for args in [vec![long.clone()], vec!["é".to_owned(); WORDS], vec![String::new(); 2 * WORDS]] {
            let words = words(&Operation::Exec(Exec::new("echo", args)));
            assert!(words.starts_with("echo ") && words.len() <= WORDS + 2, "{}", words.len());
        }
    }
}
