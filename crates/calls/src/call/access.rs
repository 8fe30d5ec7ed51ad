//! Calls that access a process which was started before: its output, its input, its end.
//!
//! The policy does not judge these calls. It judged the start of the process with everything that follows, as for
//! `ProcessService`. Otherwise they are ordinary calls: they are recorded, and found by their id and request id.

use std::sync::Arc;
use std::time::Duration;

use dialects::{Portion, ProcessAccess, ProcessView};
use processes::{Part, Process};
use refusal::Refusal;
use wire::v1::call_request::Request;
use wire::v1::process::State;
use wire::v1::signal_process_request::Signal;
use wire::v1::{self, CallRequest};

use super::record::{Journal, Times};
use super::{CallEnd, CallTask, is_for_another};

/// Time that the answer to an input waits for the process's reply.
const REPLY: Duration = Duration::from_secs(1);
/// Time that a process has to end after SIGTERM. Then all of its processes are killed.
const POLITELY: Duration = Duration::from_secs(3);
/// Time that the end by SIGKILL may take.
const FORCED: Duration = Duration::from_secs(15);

/// Returns the access to a process that a request asks for, if it does.
pub(super) fn of(request: &CallRequest) -> Option<ProcessAccess> {
    let Some(Request::Dialect(call)) = &request.request else { return None };
    dialects::find(&call.dialect)?.process_access(&call.name, &call.arguments_json)
}

impl CallTask {
    pub(super) async fn access(
        &self,
        access: ProcessAccess,
        agent_id: &str,
        journal: &mut Journal,
        times: &mut Times,
    ) -> CallEnd {
        match self.accessed(access, agent_id, journal, times).await {
            Ok(view) => CallEnd::Accessed(Box::new(view)),
            Err(refusal) => CallEnd::Refused(refusal),
        }
    }

    async fn accessed(
        &self,
        access: ProcessAccess,
        agent_id: &str,
        journal: &mut Journal,
        times: &mut Times,
    ) -> Result<ProcessView, Refusal> {
        let run = self.calls.workers.runs.get(self.call.run)?;
        if !is_for_another(agent_id, &run.spec) {
            journal.caller(&self.caller(&run.spec));
        }
        self.check_agent(agent_id, &run.spec)?;
        if matches!(access, ProcessAccess::Input { .. } | ProcessAccess::Stop { .. }) {
            journal.affects();
        }
        times.queued();
        let process = match access.process_id() {
            Some(id) => Some(self.calls.workers.processes.get(self.call.run, id)?),
            None => None,
        };
        journal.open(&self.calls.records.audit, times).await?;
        let cancelled = self.call.cancel.clone();
        let view = cancelled.run_until_cancelled(self.speak(process, access)).await;
        times.executed();
        view.unwrap_or_else(|| Err(Refusal::new(operations::Reason::Cancelled, "the call was cancelled")))
    }

    async fn speak(
        &self,
        process: Option<Arc<Process>>,
        access: ProcessAccess,
    ) -> Result<ProcessView, Refusal> {
        let Some(process) = process else {
            return Ok(ProcessView::All(self.calls.workers.processes.list(self.call.run, "")));
        };
        let now = process.now();
        let until_now = [now.stdout_bytes, now.stderr_bytes];
        let from = match access {
            ProcessAccess::Output { after, wait, .. } => {
                process.more(after.unwrap_or(until_now), wait).await;
                after
            }
            ProcessAccess::Input { text, close, .. } => {
                process.write(None, text.into_bytes(), close).await?;
                process.more(until_now, REPLY).await;
                Some(until_now)
            }
            ProcessAccess::Stop { .. } => {
                end(&process).await;
                Some(until_now)
            }
            ProcessAccess::List => None,
        };
        let most = usize::try_from(self.limits().max_output_bytes).unwrap_or(usize::MAX);
        // In this order: the state must cover all of the output.
        let mut now = process.now();
        let parts = process.parts(from, most).await?;
        [now.stdout_bytes, now.stderr_bytes] = [&parts[0], &parts[1]].map(|part| part.end + part.more);
        Ok(ProcessView::One(Box::new(now), parts.map(portion)))
    }
}

/// Asks the process to end, and kills it if it does not. A process that has ended meanwhile is fine.
async fn end(process: &Process) {
    for (signal, patience) in [(Signal::Term, POLITELY), (Signal::Kill, FORCED)] {
        // A signal cannot be sent if the process has ended.
        let _ = process.signal(signal).await;
        if ended(&process.wait(patience).await) {
            return;
        }
    }
}

fn ended(process: &v1::Process) -> bool {
    process.state() != State::Running
}

fn portion(part: Part) -> Portion {
    let Part { skipped, bytes, end, more, .. } = part;
    Portion { skipped, text: String::from_utf8_lossy(&bytes).into_owned(), end, more }
}
