//! Executes a permit in its lane.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use operations::transport::MAX_SHOWN;
use operations::{
    Bound, Delivery, Evidence, ExecResult, Fault, Lane, OpResult, Operation, Outcome, Reason, ToolFailure,
};
use processes::LeftBy;
use runs::{OnStop, Run};
use timestamp::micros;
use worker_protocol::client::{Finished, OutputSink, Usage};

use super::checkpoint::writes;
use super::end::CallEnd;
use super::lost::{is_of_its_node, with_its_node, with_its_output, with_its_run};
use super::record::{Journal, Times};
use super::respond::ResponseFormat;
use super::so_far::Spooled;
use super::surroundings::Surroundings;
use super::to_spool::ToSpool;
use super::{Admitted, CallTask};

/// Time to read the output of a command whose worker is gone. A disk that does not answer costs the output, and not the answer.
const SO_FAR: Duration = Duration::from_secs(10);

/// Wraps the outcome of an operation of a process. The process's own usage is counted when it ends.
pub(super) fn finished(outcome: Outcome) -> Finished {
    let usage = Usage::default();
    let bytes_out = outcome.as_ref().map_or(0, operations::output_bytes);
    Finished { outcome, bound: Bound::default(), usage, bytes_in: 0, bytes_out }
}

/// Returns the function that makes the outcome of an operation from the result of its command. `None` if it runs no command.
fn result_of_command(operation: &Operation) -> Option<fn(ExecResult) -> OpResult> {
    match operation {
        Operation::Exec(_) => Some(OpResult::Exec),
        Operation::Shell(_) => Some(OpResult::Shell),
        _ => None,
    }
}

impl CallTask {
    /// Executes the permit in its lane. Then it releases the run if it was frozen for this call.
    #[allow(clippy::too_many_lines)] // the order of these steps is what it is about
    pub(super) async fn execute(
        &self,
        admitted: Admitted,
        form: &ResponseFormat,
        journal: &mut Journal,
        times: &mut Times,
    ) -> CallEnd {
        let Admitted { run, mut permit, slot, mut still } = admitted;
        let (writes, writes_if_failed) = writes(permit.operation());
        if form.is_dialect() {
            permit.read_at_most(MAX_SHOWN);
        }
        if let Some(trace) = self.trace.as_ref().filter(|_| self.shows_trace(&run)) {
            permit.give_traceparent(&trace.context().to_string());
        }
        let _busy = run.busy();
        let cancel = self.call.cancel.child_token();
        let limit = journal.limit();
        let began = Instant::now();
        let intent = journal.begun();
        let leaves = permit.bounds().keep_background.then(|| permit.operation().process());
        // A worker that claims it of another call would have an executed call count as refused, and be repeated.
        let can_be_void = permit.bounds().held_to.is_some();
        let as_result = result_of_command(permit.operation());
        let most_shown = permit.bounds().max_output_bytes;
        let caller = permit.caller().clone();
        let surroundings = Surroundings {
            processes: &self.calls.workers.processes,
            run: &run,
            by: leaves.map(|request| LeftBy {
                call: self.call.id,
                principal: &caller.principal,
                agent: &caller.agent_id,
                request,
            }),
            began,
            offers_processes: self.has_processes(&run),
        };
        let delivery = permit.operation().delivery();
        let mut finished = if delivery == Delivery::Checkpoint {
            // It holds the run itself, and waits for those that use it.
            drop(slot);
            still.end().await;
            finished(self.checkpoint(permit.into_parts().operation).await)
        } else {
            let done = match (delivery, permit.operation().lane(), &intent) {
                (Delivery::Upstream, ..) => {
                    self.calls.workers.upstreams.execute(&run, &slot.lanes, permit, limit, &cancel).await
                }
                (Delivery::Process, ..) => {
                    let started = self.calls.workers.processes.start(&run, &slot.lanes, permit).await;
                    finished(started.map_err(ToolFailure::claimed))
                }
                (Delivery::Session, ..) => {
                    let performed = self.calls.workers.processes.perform(&run, permit, &cancel).await;
                    finished(performed.map_err(ToolFailure::claimed))
                }
                (_, Lane::Host, Some(intent)) => {
                    let go = intent.clone().map(|recorded| recorded.is_ok()).boxed();
                    slot.lanes.execute_after(permit, limit, go, cancel).await
                }
                _ => match self.output(permit.operation()) {
                    Ok(output) => slot.lanes.execute(permit, limit, output, cancel, &surroundings).await,
                    Err(failure) => finished(Err(failure)),
                },
            };
            drop(slot);
            done
        };
        times.executed();
        still.end().await;
        if let Some(intent) = intent
            && let Err(unavailable) = intent.await
        {
            return CallEnd::Refused(unavailable.into());
        }
        if run.disk.is_over() {
            self.calls.control.quotas.look_again();
        }
        finished.outcome = finished.outcome.map_err(|failure| {
            let cut_off = self.lost(&run, &failure).or_else(|| self.cut_off(&run, &failure));
            let failure = cut_off.unwrap_or(failure);
            self.calls.control.quotas.judge(&run.disk, failure)
        });
        if let Err(failure) = &finished.outcome
            && can_be_void
            && operations::is_void(failure)
        {
            return CallEnd::Refused(failure.clone().into());
        }
        let command = finished.outcome.as_ref().ok().and_then(OpResult::command);
        if let Some(command) = command
            && let Some(left) = operations::not_ended(command)
        {
            // No process may continue unseen. If a command's processes cannot be ended, the run fails and its container is ended.
            run.fail_for_processes(left, "of a command").await;
        }
        self.keep_after(&run, if finished.outcome.is_ok() { writes } else { writes_if_failed }).await;
        // The command of a frozen run still reports its end.
        let cut_short = finished.outcome.as_ref().ok().and_then(operations::cut_short);
        if let Some(lost) = cut_short.and_then(|failure| self.lost(&run, &failure)) {
            finished.outcome = finished.outcome.and_then(|result| with_its_output(lost, result));
        }
        // In any other run the worker ended first, and reported nothing.
        if let Err(lost) = &finished.outcome
            && is_of_its_node(lost)
            && let Some(as_result) = as_result
            && let Some(result) = self.so_far(most_shown, finished.usage, began).await
        {
            finished.outcome = with_its_output(lost.clone(), as_result(result));
        }
        CallEnd::Executed(Box::new(finished))
    }

    /// Returns the result of a command that ended with its worker: the output that the spool has of it. `None` if there is none.
    async fn so_far(&self, most: u64, usage: Usage, began: Instant) -> Option<ExecResult> {
        let output = &self.call.output;
        let (run, call, came, kept) = (self.call.run, self.call.id, output.came(), output.kept());
        let spooled = Spooled { spool: &self.calls.records.spool, run, call, came, kept };
        let read = tokio::time::timeout(SO_FAR, spooled.result(most)).await.ok()??;
        Some(ExecResult {
            cpu_time_us: usage.cpu_time_us.unwrap_or_default(),
            peak_memory_bytes: usage.peak_memory_bytes.unwrap_or_default(),
            wall_time_us: micros(began.elapsed()),
            ..read
        })
    }

    /// Returns true if the run's profile allows background processes now, for the caller's next call.
    fn has_processes(&self, run: &Run) -> bool {
        let policy = self.calls.control.gateway.policy();
        let verdict = policy.profile(&run.spec().profile).and_then(|profile| profile.operation("process"));
        verdict.is_some_and(|(_, verdict)| verdict < policy::Verdict::Deny)
    }

    /// Returns true if the run's profile gives commands the context of their trace.
    fn shows_trace(&self, run: &Run) -> bool {
        let policy = self.calls.control.gateway.policy();
        policy.profile(&run.spec().profile).is_some_and(|profile| profile.traceparent)
    }

    /// Returns the sink for the output of an operation.
    fn output(&self, operation: &Operation) -> Result<Arc<dyn OutputSink>, ToolFailure> {
        match &self.client.download {
            _ if !operation.is_download() => Ok(Arc::new(ToSpool(self.call.output.clone()))),
            Some(download) => Ok(download.clone()),
            None => {
                let message = "a download needs a connected client: call DownloadFile or DownloadArchive, and again after a restart of the daemon";
                Err(ToolFailure::new(Reason::InvalidArgument, message))
            }
        }
    }

    /// Returns the failure of a call that was not cancelled, but whose run was lost meanwhile, or ended by its node.
    fn lost(&self, run: &Run, failure: &ToolFailure) -> Option<ToolFailure> {
        if self.call.cancel.is_cancelled() {
            return None;
        }
        let record = run.record();
        with_its_run(record.failed.as_ref(), record.failure.as_deref(), failure)
            .or_else(|| with_its_node(record.end_cause, failure))
    }

    /// Returns the failure of a call that was not cancelled, but whose worker was ended with the run or with the daemon.
    ///
    /// Such a call is not started again.
    fn cut_off(&self, run: &Run, failure: &ToolFailure) -> Option<ToolFailure> {
        if failure.reason != Reason::Cancelled || self.call.cancel.is_cancelled() {
            return None;
        }
        let unknown = "the call may have taken effect";
        let is_stopped = self.calls.life.stop.is_cancelled();
        let message = if is_stopped && self.calls.life.on_stop.now() == OnStop::Leave {
            format!(
                "the daemon was stopped during the call and hands the run over to the next daemon: \
                 {unknown}; check before you repeat it"
            )
        } else if is_stopped {
            format!("the daemon was stopped during the call, and the run was ended with it: {unknown}")
        } else if run.ended.is_cancelled() && failure.details.contains_key("retryable") {
            format!("the run was ended during the call: {unknown}")
        } else {
            return None;
        };
        let failure = ToolFailure::new(Reason::Cancelled, message);
        let stopped = Evidence::new("daemon.event", "stop");
        Some(if is_stopped { failure.by(Fault::Infrastructure).shown_by(stopped) } else { failure })
    }
}
