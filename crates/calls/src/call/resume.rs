//! Resumes the calls that a former daemon has left waiting for a decision, each in a task.
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
use store::run::Hold;
use timestamp::UnixMillis;
use tokio::sync::oneshot;

use super::asked::Asked;
use super::begin::watch;
use super::consent::Waiting;
use super::decode::{Decoded, ResponseFormat};
use super::record::{Journal, Times};
use super::{CallTask, Client, Close};
use crate::Calls;
use crate::approvals::Pending;

/// Resumes the waiting calls, and releases runs that are frozen for a call that no longer waits.
///
/// When this returns, clients find the calls by id and by request, and reviewers can decide on them.
pub async fn resume(calls: &Arc<Calls>, waiting: Vec<Pending>) {
    let ids: BTreeSet<String> = waiting.iter().map(|kept| kept.approval.approval_id.clone()).collect();
    let is_gone = move |hold: &Hold| matches!(hold, Hold::Approval(id) if !ids.contains(id));
    for run in calls.runs.list().into_iter().filter(|run| run.holds.iter().any(|held| is_gone(&held.hold))) {
        tracing::warn!(run = %run.id, "a run was frozen for a call that no longer waits");
        if let Err(refusal) = calls.runs.release_all(run.id, is_gone.clone()).await {
            tracing::error!(run = %run.id, why = refusal.message, "a run is frozen although none of its calls waits: stop the run");
        }
    }
    for kept in waiting {
        let Pending { approval, asker, operation } = kept;
        let form = ResponseFormat::resumed(asker.dialect.clone(), &operation);
        let call = calls.table.resume(&asker);
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
            policy: calls.gateway.policy(),
        };
        let facts = task.facts(&form, Duration::ZERO);
        call.pend(&approval.approval_id, form.pending(&facts, &approval.approval_id));
        let decoded = Decoded {
            operation: Ok(operation),
            asked: Asked::of(None),
            form,
            agent_id: String::new(),
            task_id: asker.task_id,
            correlation_id: asker.correlation_id,
            limit: asker.limit,
        };
        let settled = calls.approvals.wait_for(&approval);
        calls.tasks.spawn(watch(calls.clone(), call, task.go_on(decoded, approval, settled)));
    }
}

impl CallTask {
    async fn go_on(self, decoded: Decoded, approval: Approval, settled: oneshot::Receiver<Approval>) {
        let form = decoded.form.clone();
        let mut journal = Journal::new(self.call.run.to_string(), self.call.id, &self.principal, &decoded);
        journal.request(self.call.request_id.clone());
        journal.resumed(&approval);
        let mut times = Times::begin(self.taken);
        let made = self.make_resumed(decoded, (approval, settled), &mut journal, &mut times);
        let made = AssertUnwindSafe(made).catch_unwind().await;
        self.end(made.ok(), &form, journal, times).await;
    }

    async fn make_resumed(
        &self,
        decoded: Decoded,
        (approval, settled): Waiting,
        journal: &mut Journal,
        times: &mut Times,
    ) -> Close {
        let form = decoded.form.clone();
        let operation = match decoded.operation {
            Ok(operation) => operation,
            Err(refusal) => return Close::Refused(refusal),
        };
        let Some(run) = self.living() else {
            self.calls.approvals.cancel(&approval.call_id).await;
            return Close::Refused(Refusal::new(
                Reason::Cancelled,
                "the run did not survive a restart of the daemon, so the call was not executed",
            ));
        };
        let _busy = run.busy();
        let ticket = Ticket::resumed(&approval, run.scope(), operation);
        // The run is frozen already, unless an operator has removed its record.
        let still = match self.stand_still(&run, approval.freeze, &approval.approval_id).await {
            Ok(still) => still,
            Err(refusal) => {
                self.calls.approvals.cancel(&approval.call_id).await;
                return Close::Refused(refusal);
            }
        };
        match self.decided(run, &ticket, (approval, settled), still, times).await {
            Ok(admitted) => self.execute(admitted, &form, journal, times).await,
            Err(refusal) => Close::Refused(refusal),
        }
    }

    fn living(&self) -> Option<Arc<Run>> {
        self.calls.runs.living_run(self.call.run).ok().filter(|run| run.lanes_for_review().is_ok())
    }
}
