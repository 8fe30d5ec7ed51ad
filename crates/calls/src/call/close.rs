//! Closes a call: writes its receipt, gives its answer and keeps its outcome.

use std::time::Duration;

use dialects::Facts;
use operations::Reason;
use refusal::Refusal;
use timestamp::micros;
use wire::v1::Timings;

use super::end::CallEnd;
use super::record::{Journal, Times};
use super::respond::ResponseFormat;
use super::{CallTask, facts};
use crate::table::Keep;

impl CallTask {
    /// Writes the receipt, gives the answer and keeps the outcome. `made` is `None` when the call panicked.
    pub(super) async fn close(
        self,
        made: Option<CallEnd>,
        form: &ResponseFormat,
        mut journal: Journal,
        mut times: Times,
    ) {
        if self.call.answer().suspended {
            // Its intent stays open; the next daemon writes its receipt.
            return;
        }
        let id = self.call.id;
        let mut close = if let Some(close) = made {
            close
        } else {
            self.calls.control.approvals.cancel(&id.to_string()).await;
            CallEnd::Broken(Refusal::new(
                Reason::Internal,
                "the call failed with an internal error and may have taken effect; see the daemon's log",
            ))
        };
        close.settle(journal.has_effect());
        let refusal = match &close {
            CallEnd::Refused(refusal) | CallEnd::Broken(refusal) => Some(refusal.clone()),
            CallEnd::Executed(_) | CallEnd::Accessed(_) => None,
        };
        let kept = self.call.output.kept();
        journal.kept(kept);
        let unkept = close.output_beyond(kept);
        // Before the receipt: an answer that is too large for a message fails the call.
        let facts = self.facts(form, times.execution);
        let mut response = form.respond(self.call.answer().response, &mut close, facts);
        // A call that is refused before it has an intent gets both records now.
        let recorded = journal.close(&self.calls.records.audit, &close, &mut times).await;
        response.output_not_kept_bytes = unkept;
        let stages = [times.queue, times.policy, times.audit, times.execution];
        self.calls.records.stages.observe(stages, journal.recorded_trace().as_deref());
        response.timings = Some(Timings {
            queue_us: micros(times.queue),
            policy_us: micros(times.policy),
            audit_us: micros(times.audit),
            execution_us: micros(times.execution),
        });
        // A dialect's caller reads refusals from `rendered`; a canonical one gets them as a status.
        let mut refusal = refusal.filter(|_| !form.is_dialect());
        if recorded.is_err() {
            tracing::error!(call = %id, "a call's receipt waits for the audit log");
            refusal = Some(Refusal::new(
                Reason::AuditUnavailable,
                "the call has ended, but its receipt is not on disk. Read its outcome with GetCall before \
                 you repeat it",
            ));
        }
        let keep = match (journal.was_asked(), journal.has_effect()) {
            (true, _) => Keep::First,
            (false, true) => Keep::Stored,
            (false, false) => Keep::Briefly,
        };
        self.calls.records.table.finish(&self.call, response, refusal, keep).await;
        // The client has its answer: it does not wait for the spans, nor until the exporter has been woken.
        self.calls.records.traces.send(journal.spans(&mut times));
        if journal.has_effect()
            && let Ok(lanes) = self.calls.workers.runs.living_run(self.call.run).and_then(|run| run.lanes())
        {
            lanes.answered();
        }
        // Only after receipt and outcome are kept. If they could not be, the next daemon closes the call.
        if let Some(approval) = journal.approval_id().filter(|_| recorded.is_ok()) {
            self.calls.control.approvals.done(approval).await;
        }
    }

    /// Returns the facts of the call that dialects show to their models. A typed answer has none.
    pub(super) fn facts(&self, form: &ResponseFormat, execution: Duration) -> Facts {
        if form.is_dialect() { facts::of(&self.calls, &self.call, execution) } else { Facts::default() }
    }
}
