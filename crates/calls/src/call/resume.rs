//! Resumes the calls that an earlier daemon left waiting for a decision, each in a task.
//!
//! A call's intent is on record and stays the only one; its receipt is written now.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use gateway::{Approval, Ticket};
use identity::Principal;
use operations::Reason;
use refusal::Refusal;
use runs::Run;
use runs::record::Hold;
use timestamp::UnixMillis;
use tokio::sync::oneshot;
use tracing::Instrument as _;

use super::asked::Asked;
use super::begin::{log_span, watch};
use super::consent::Waiting;
use super::lost::refused_by_its_node;
use super::parse::Parsed;
use super::record::{Journal, Times};
use super::respond::ResponseFormat;
use super::{CallEnd, CallTask, Client};
use crate::Calls;
use crate::approvals::Pending;

/// Resumes the waiting calls, and releases runs that are frozen for a call that no longer waits.
///
/// When this returns, clients find the calls by id and by request, and reviewers can decide on them.
pub async fn resume(calls: &Arc<Calls>, waiting: Vec<Pending>) {
    let ids: BTreeSet<String> = waiting.iter().map(|kept| kept.approval.approval_id.clone()).collect();
    let is_gone = move |hold: &Hold| matches!(hold, Hold::Approval(id) if !ids.contains(id));
    for run in
        calls.workers.runs.list().into_iter().filter(|run| run.holds.iter().any(|held| is_gone(&held.hold)))
    {
        tracing::warn!(run = %run.id, "a run was frozen for a call that no longer waits");
        if let Err(refusal) = calls.workers.runs.release_all(run.id, is_gone.clone()).await {
            tracing::error!(run = %run.id, why = refusal.message, "a run is frozen although none of its calls waits: stop the run");
        }
    }
    for kept in waiting {
        let Pending { approval, asker, operation } = kept;
        let form = ResponseFormat::resumed(asker.dialect.clone(), &operation);
        let call = calls.records.table.resume(&asker);
        tracing::info!(call = %call.id, approval = approval.approval_id, "a call still waits for its approval");
        let principal = Principal {
            name: asker.principal,
            uid: asker.uid,
            gid: asker.gid,
            // Its roles were checked when the call was made.
            run: asker.via_token.then_some(asker.run),
            ..Principal::anonymous()
        };
        let waited = UnixMillis::now().since(approval.created_at);
        let now = Instant::now();
        let task = CallTask {
            calls: calls.clone(),
            principal: Arc::new(principal),
            call: call.clone(),
            taken: now.checked_sub(waited).unwrap_or(now),
            client: Client::default(),
            trace: asker.trace,
            policy: calls.control.gateway.policy(),
        };
        let facts = task.facts(&form, Duration::ZERO);
        call.pend(&approval.approval_id, form.pending(&facts, &approval.approval_id));
        let parsed = Parsed {
            operation: Ok(operation),
            asked: Asked::of(None),
            form,
            agent_id: String::new(),
            task_id: asker.task_id,
            correlation_id: asker.correlation_id,
            limit: asker.limit,
        };
        let settled = calls.control.approvals.wait_for(&approval);
        let span = log_span(task.trace.as_ref());
        let task = watch(calls.clone(), call, task.go_on(parsed, approval, settled));
        calls.life.tasks.spawn(task.instrument(span));
    }
}

impl CallTask {
    async fn go_on(self, parsed: Parsed, approval: Approval, settled: oneshot::Receiver<Approval>) {
        let form = parsed.form.clone();
        let mut journal = Journal::new(self.call.run.to_string(), self.call.id, &self.principal, &parsed);
        journal.request(self.call.request_id.clone());
        journal.resumed(&approval);
        journal.traced(self.trace);
        let mut times = Times::begin(self.taken, self.trace.as_ref());
        let made = self.make_resumed(parsed, (approval, settled), &mut journal, &mut times);
        let made = AssertUnwindSafe(made).catch_unwind().await;
        self.close(made.ok(), &form, journal, times).await;
    }

    async fn make_resumed(
        &self,
        parsed: Parsed,
        (approval, settled): Waiting,
        journal: &mut Journal,
        times: &mut Times,
    ) -> CallEnd {
        let form = parsed.form.clone();
        let operation = match parsed.operation {
            Ok(operation) => operation,
            Err(refusal) => return CallEnd::Refused(refusal),
        };
        let Some(run) = self.living() else {
            self.calls.control.approvals.cancel(&approval.call_id).await;
            let refusal = Refusal::new(
                Reason::Cancelled,
                "the run did not survive a restart of the daemon, so the call was not executed",
            );
            let record = self.calls.workers.runs.get(self.call.run).ok();
            let cause = record.as_ref().and_then(|record| record.end_cause);
            let failed = record.and_then(|record| record.failed);
            let origin = failed.map(|failed| failed.origin()).unwrap_or_default();
            return CallEnd::Refused(refused_by_its_node(cause, Refusal { origin, ..refusal }));
        };
        let _busy = run.busy();
        let ticket = Ticket::resumed(&approval, run.scope(), operation);
        // The run is frozen already, unless an operator has removed its record.
        let still = match self.stand_still(&run, approval.freeze, &approval.approval_id).await {
            Ok(still) => still,
            Err(refusal) => {
                self.calls.control.approvals.cancel(&approval.call_id).await;
                return CallEnd::Refused(refusal);
            }
        };
        match self.decided(run, &ticket, (approval, settled), still, times).await {
            Ok(admitted) => self.execute(admitted, &form, journal, times).await,
            Err(refusal) => CallEnd::Refused(refusal),
        }
    }

    fn living(&self) -> Option<Arc<Run>> {
        self.calls.workers.runs.living_run(self.call.run).ok().filter(|run| run.lanes_for_review().is_ok())
    }
}
