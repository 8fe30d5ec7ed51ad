//! Admits a call: it gets a permit and a slot, waits for a reviewer, or is refused.

use std::sync::Arc;

use audit_service::Attempt;
use gateway::limits::concurrency::Turn;
use gateway::{Admission, Permit};
use jail::Mount;
use operations::{Lane, Reason};
use refusal::Refusal;
use runs::Run;
use runs::record::Spec;

use super::beside::Patience;
use super::parse::Parsed;
use super::record::{Journal, Times};
use super::slot::Slot;
use super::standstill::Standstill;
use super::{Admitted, CallTask, is_for_another};

impl CallTask {
    /// Waits until the call has a permit and a slot, or is refused.
    pub(super) async fn admit(
        &self,
        parsed: Parsed,
        journal: &mut Journal,
        times: &mut Times,
    ) -> Result<Admitted, Refusal> {
        let run = match self.calls.workers.runs.living_run(self.call.run) {
            Ok(run) => run,
            Err(gone) => {
                // The record of an ended run still has its owner.
                if let Ok(ended) = self.calls.workers.runs.get(self.call.run) {
                    journal.caller(&self.caller(&ended.spec));
                }
                // A malformed request is refused as malformed first.
                return Err(parsed.operation.err().unwrap_or(gone));
            }
        };
        let _busy = run.busy();
        let spec = run.spec();
        let caller = self.caller(&spec);
        if !is_for_another(&parsed.agent_id, &spec) {
            journal.caller(&caller);
        }
        let patience = Patience::new(&self.client, parsed.limit, &self.limits());
        // Refused before the policy is asked, but recorded with its caller.
        let operation = parsed.operation?;
        self.check_agent(&parsed.agent_id, &spec)?;
        self.calls.workers.runs.check_deny_list(&spec, self.policy.profile(&spec.profile))?;
        // Calls that wait for a reviewer do not keep further calls from asking. Any other hold on the run does.
        run.check_asking()?;
        // Checked here, since the container has this directory even without a package.
        if spec.pkg_path.is_none() && operation.paths().iter().any(|path| path.mount() == Mount::Pkg) {
            return Err(Refusal::new(Reason::SandboxViolation, "this run has no @pkg").with("mount", "@pkg"));
        }
        times.queued();

        let admission = self.calls.control.gateway.admit(
            &self.policy,
            &run.scope(),
            &caller,
            &self.call.id.to_string(),
            operation,
        );
        times.decided();
        if !matches!(admission, Admission::Refuse(_)) {
            self.keep_before(&run, &parsed.task_id).await;
            times.queued();
        }
        match admission {
            Admission::Refuse(refused) => {
                journal.refused(&refused);
                Err(refused.into())
            }
            Admission::Permit(mut permit) => {
                let operation = permit.operation();
                let queued = self.beside(&run, &caller, operation, patience)?;
                self.calls.control.quotas.check(&run.disk, operation)?;
                journal.decided(permit.decision());
                if queued.is_none() && operation.lane() == Lane::Host && journal.has_effect() {
                    journal.begin(&self.calls.records.audit);
                } else {
                    journal.open(&self.calls.records.audit, times).await?;
                }
                let slot = match queued {
                    None => self.slot(&run, &caller, operation, Turn::Ordinary, times).await?,
                    Some(queued) => {
                        let queued = (queued, patience);
                        let slot = self.slot_beside(&run, &caller, operation, queued, journal, times).await?;
                        permit = self.renewed(&run, permit, journal)?;
                        slot
                    }
                };
                Ok(self.admitted(run, permit, slot))
            }
            Admission::Ask(ticket) => {
                self.calls.control.quotas.check(&run.disk, ticket.operation())?;
                if let Some(admitted) = self.recalled(&run, &ticket, patience, journal, times).await? {
                    journal.decided(admitted.permit.decision());
                    journal.open(&self.calls.records.audit, times).await?;
                    return Ok(admitted);
                }
                journal.decided(ticket.decision());
                journal.asked();
                let asker = self.asker(&parsed.form, parsed.task_id, parsed.correlation_id, parsed.limit);
                journal.open(&self.calls.records.audit, times).await?;
                self.consent(run, &ticket, asker, &parsed.form, journal, times).await
            }
        }
    }

    /// Refuses a request that names an agent other than the run's, and records the attempt.
    pub(super) fn check_agent(&self, named: &str, spec: &Spec) -> Result<(), Refusal> {
        if !is_for_another(named, spec) {
            return Ok(());
        }
        let (principal, run) = (&self.principal, Some(self.call.run));
        self.calls.records.escalations.report(principal, run, Attempt::OtherAgent, named);
        Err(Refusal::new(Reason::PermissionDenied, "agent_id: the run is for another agent"))
    }

    /// Returns the admission of a call that needs no reviewer.
    pub(super) fn admitted(&self, run: Arc<Run>, permit: Permit, slot: Slot) -> Admitted {
        Admitted { run, permit, slot, still: Standstill::none(&self.calls, self.call.run) }
    }
}
