//! The entrance: every call goes through [`Gateway::admit`], and permits come only from here.

use std::sync::{Arc, OnceLock};

use operations::{Bounds, Operation, Reason};
use parking_lot::{Mutex, MutexGuard, RwLock};
use timestamp::{Clock, UnixMillis};

use crate::admission::{Admission, Ticket};
use crate::approvals::{Approvals, Memory};
use crate::decision::{Decision, Refusal};
use crate::grants::Permissions;
use crate::limits::{Limits, NotAdmitted, Scope};
use crate::measures::{Measure, Measures};
use crate::permission::{Question, refusal, weigh};
use crate::permit::{Permit, PermitParts};
use crate::validate::validate;
use policy::{Caller, Form, InForce, McpServer, Policy, RunScope, Verdict, paths};

/// The policy in force, the permissions, and the approvals that are pending.
#[derive(Debug)]
pub struct Gateway {
    policy: InForce,
    permissions: RwLock<Arc<Permissions>>,
    approvals: Mutex<Approvals>,
    measures: Measures,
    limits: Limits,
    memory: Mutex<Memory>,
    clock: Arc<dyn Clock>,
}

impl Gateway {
    /// Makes a gateway without approvals.
    pub fn new(policy: impl Into<InForce>, clock: Arc<dyn Clock>) -> Self {
        Self {
            policy: policy.into(),
            permissions: RwLock::default(),
            approvals: Mutex::default(),
            measures: Measures::default(),
            limits: Limits::new(clock.clone()),
            memory: Mutex::default(),
            clock,
        }
    }

    /// Returns the counters of the rate limits and the throttles.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the policy in force.
    pub fn policy(&self) -> Arc<Policy> {
        self.policy.policy()
    }

    /// Returns the policy in force, and those that follow it.
    pub fn in_force(&self) -> &InForce {
        &self.policy
    }

    /// Replaces the policy, at once and as a whole. Returns true if the new one differs.
    ///
    /// Approvals that were given under a different policy are void.
    pub fn reload(&self, policy: Policy) -> bool {
        self.policy.replace(policy)
    }

    /// Returns the permissions that operators granted and revoked at run time.
    pub fn permissions(&self) -> Arc<Permissions> {
        Arc::clone(&self.permissions.read())
    }

    /// Replaces the permissions, at once and as a whole. They also apply to calls that wait for an approval.
    pub fn set_permissions(&self, permissions: Permissions) {
        // The previous ones are dropped after the lock, so that no call waits for that.
        let _previous = std::mem::replace(&mut *self.permissions.write(), Arc::new(permissions));
    }

    /// Decides on one call.
    ///
    /// The checks run in this order: validation, permission, rate limits, then consent. All use `policy`, the one that
    /// was in force when the call began. A call that one check refuses uses up nothing of a later check.
    pub fn admit(
        &self,
        policy: &Policy,
        run: &RunScope,
        caller: &Caller,
        call_id: &str,
        operation: Operation,
    ) -> Admission {
        let stand = self.stand(policy);
        let considered = consider(&stand, run, caller, call_id, operation).and_then(|mut ticket| {
            self.measures.apply(caller, stand.now, &mut ticket.decision);
            self.count(policy, &ticket)?;
            Ok(ticket)
        });
        match considered {
            Err(refusal) => Admission::Refuse(refusal),
            Ok(ticket) if ticket.decision.verdict == Verdict::Allow => {
                Admission::Permit(permit(ticket, None))
            }
            Ok(ticket) => Admission::Ask(Box::new(ticket)),
        }
    }

    /// Replaces the permit of a call that waited by one under the policy, permissions and measures in force now.
    ///
    /// The call is not counted again. It is refused if it now needs consent.
    pub fn renew(&self, permit: Permit, run: &RunScope) -> Result<Permit, Refusal> {
        let policy = self.policy();
        let stand = self.stand(&policy);
        let PermitParts { call_id, caller, operation, .. } = permit.into_parts();
        let mut again = consider(&stand, run, &caller, &call_id, operation)?;
        self.measures.apply(&caller, stand.now, &mut again.decision);
        if again.decision.verdict == Verdict::Allow {
            return Ok(self::permit(again, None));
        }
        let message = "not made: a rule that came into force while the call waited requires an approval; make the call again";
        Err(refusal(&policy, Reason::PreconditionFailed, message.to_owned(), &again.decision.rule))
    }

    /// Imposes the measure of an alert on calls. A measure only makes decisions stricter.
    pub fn impose(&self, measure: Measure) {
        self.measures.impose(measure, self.now());
    }

    /// Ends the measure of an alert. Returns true if there was one.
    pub fn lift(&self, alert_id: &str) -> bool {
        self.measures.lift(alert_id)
    }

    /// Returns the policy, permissions and time that a call is checked against now.
    pub(crate) fn stand<'p>(&self, policy: &'p Policy) -> Stand<'p> {
        Stand { policy, permissions: self.permissions(), now: self.now() }
    }

    /// Counts the call, once in its life, or refuses it.
    fn count(&self, policy: &Policy, ticket: &Ticket) -> Result<(), Refusal> {
        let Some(profile) = policy.profile(&ticket.run.profile) else { return Ok(()) };
        let counted = self.limits.admit(&profile.rate_limits, &ticket.caller, ticket.operation.family());
        counted.map_err(|not| match not {
            NotAdmitted::Exceeded(exceeded) => {
                let rule = match exceeded.scope {
                    Scope::Throttled(_) => "throttle".to_owned(),
                    _ => format!(
                        "profile {}: rate_limits.{}.{}",
                        ticket.run.profile,
                        exceeded.key,
                        exceeded.span.as_str()
                    ),
                };
                let limited = refusal(policy, Reason::RateLimited, exceeded.to_string(), &rule);
                Refusal { retry_after: Some(exceeded.retry_after), ..limited }
            }
            NotAdmitted::Crowded => {
                let message = "more agents and runs are active than the daemon can count; try again later";
                refusal(policy, Reason::Overloaded, message.to_owned(), "rate_limits")
            }
        })
    }

    pub(crate) fn approvals(&self) -> MutexGuard<'_, Approvals> {
        self.approvals.lock()
    }

    /// Locks the remembered consents. If both locks are taken, [`Self::approvals`] comes first.
    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock()
    }

    pub(crate) fn now(&self) -> UnixMillis {
        self.clock.now()
    }
}

/// Policy, permissions and time for all checks of one call, even if others come into force meanwhile.
pub(crate) struct Stand<'p> {
    policy: &'p Policy,
    permissions: Arc<Permissions>,
    now: UnixMillis,
}

/// Runs the checks that use up nothing, in order.
pub(crate) fn consider(
    stand: &Stand<'_>,
    run: &RunScope,
    caller: &Caller,
    call_id: &str,
    operation: Operation,
) -> Result<Ticket, Refusal> {
    let Stand { policy, permissions, now } = stand;
    let Some(profile) = policy.profile(&run.profile) else {
        let message = "the policy no longer has the profile of this run".to_owned();
        return Err(refusal(policy, Reason::PermissionDenied, message, "profile"));
    };
    validate(profile, &operation)
        .map_err(|invalid| refusal(policy, invalid.reason, invalid.message, "validation"))?;
    let question =
        Question { policy, permissions, now: *now, profile: &run.profile, caller, operation: &operation };
    let weighed = weigh(&question)?;
    let reads = weighed.reads.clone();
    let asks_for_path = weighed.asks_for_path();
    let decision = weighed.decide(policy)?;
    let consented =
        if decision.verdict == Verdict::Ask { paths::named(&operation, &reads) } else { Vec::new() };
    unseen(policy, &decision, &operation)?;
    let server = upstream(policy, &operation)?;
    // A call that a reviewer has seen runs as it was seen.
    let reads = if decision.verdict == Verdict::Allow { reads } else { Vec::new() };
    let mut terms = profile.approvals.terms(decision.risk, &operation);
    if asks_for_path {
        // The first words of a command do not show which files it reads.
        terms.remember.retain(|form| *form != Form::Prefix);
    }
    Ok(Ticket {
        caller: caller.clone(),
        run: run.clone(),
        call_id: call_id.to_owned(),
        operation,
        message: OnceLock::new(),
        bounds: Bounds {
            reads,
            path_rules: paths::for_lane(&profile.paths, consented),
            ..profile.call_bounds()
        },
        server,
        terms,
        decision,
    })
}

/// Refuses a write that needs consent but has no preview. The host lane makes previews, and has no files outside the
/// mounts.
fn unseen(policy: &Policy, decision: &Decision, operation: &Operation) -> Result<(), Refusal> {
    if decision.verdict != Verdict::Ask || operation.outside().is_none() || !operation.has_effect() {
        return Ok(());
    }
    let name = operation.name();
    let message = format!(
        "`{name}` needs an approval here, but a change outside of the mounts has no preview for a reviewer: \
         write in a mount, or use a command"
    );
    Err(refusal(policy, Reason::PermissionDenied, message, "container_paths"))
}

/// Returns the server that a call goes to, as this policy defines it.
fn upstream(policy: &Policy, operation: &Operation) -> Result<Option<McpServer>, Refusal> {
    let Some(tool) = operation.tool() else { return Ok(None) };
    let server = policy.mcp_server(tool.server()).ok_or_else(|| {
        let message = format!("there is no MCP server `{}`", tool.server());
        refusal(policy, Reason::NotFound, message, "mcp_servers")
    })?;
    Ok(Some(server.clone()))
}

pub(crate) fn permit(ticket: Ticket, approval_id: Option<String>) -> Permit {
    Permit::mint(PermitParts {
        call_id: ticket.call_id,
        caller: ticket.caller,
        operation: ticket.operation,
        bounds: ticket.bounds,
        server: ticket.server,
        decision: ticket.decision,
        approval_id,
    })
}

#[cfg(test)]
#[path = "gateway_tests.rs"]
mod tests;
