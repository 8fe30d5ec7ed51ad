//! Which operations an agent may call at all, with consent or without: what its tool list is made of.
//!
//! This lists, it does not decide: a call is judged by the gateway when it is made. What may be granted for some paths or
//! commands only is listed, since some call of it would pass.

use std::sync::Arc;

use gateway::{Clock as _, Effect, Permissions, Policy, Scope, Subject, SystemClock, Verdict};

use crate::app::App;
use crate::runs::Spec;

/// What holds for one agent now.
pub(super) struct Offered {
    policy: Arc<Policy>,
    permissions: Arc<Permissions>,
    profile: String,
    role: String,
    agent: String,
}

impl Offered {
    pub(super) fn of(app: &App, run: &Spec) -> Self {
        Self {
            policy: app.gateway.policy(),
            permissions: app.gateway.permissions(),
            profile: run.profile.clone(),
            role: run.role.clone(),
            agent: run.agent_id.clone(),
        }
    }

    /// What descriptions say of the limits.
    pub(super) fn limits(&self) -> dialects::Limits {
        self.policy.profile(&self.profile).map(crate::call::limits).unwrap_or_default()
    }

    /// Whether some call of this operation would not be denied for want of a permission.
    pub(super) fn permits(&self, operation: &str) -> bool {
        let profile = self.policy.profile(&self.profile);
        let verdict = profile.and_then(|profile| profile.operations.get(operation));
        let Some(role) = self.policy.role(&self.role) else { return false };
        let mut teams = self.policy.teams_of(&self.agent);
        let denied = role.denies(operation, false)
            || self.policy.teams_of(&self.agent).any(|(_, team)| team.denies(operation, false))
            || self.has(Effect::Revocation, operation);
        let held = role.grant(operation, true).is_some()
            || teams.any(|(_, team)| team.grant(operation, true).is_some())
            || self.has(Effect::Grant, operation);
        verdict.is_some_and(|verdict| *verdict != Verdict::Deny) && !denied && held
    }

    /// A grant of part of an operation is enough to list it, and only a revocation of all of it takes it away.
    fn has(&self, effect: Effect, operation: &str) -> bool {
        self.permissions.in_force(SystemClock.now()).any(|permission| {
            let Scope { operation: of, path, command } = &permission.scope;
            let whole = path.is_none() && command.is_empty();
            let is_theirs = match &permission.subject {
                Subject::Agent(agent) => *agent == self.agent,
                Subject::Role(role) => *role == self.role,
                Subject::Team(team) => self.policy.teams_of(&self.agent).any(|(name, _)| name == team),
            };
            let matches = match (effect, of) {
                (Effect::Grant, Some(of)) => {
                    of == operation || (of == "exec.read_only" && operation == "exec")
                }
                (Effect::Grant, None) => false,
                (Effect::Revocation, of) => whole && of.as_ref().is_none_or(|of| of == operation),
            };
            permission.effect == effect && is_theirs && matches
        })
    }
}
