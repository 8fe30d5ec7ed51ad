//! Which operations an agent may call at all, with consent or without: what its tool list is made of.
//!
//! This lists, it does not decide: a call is judged by the gateway when it is made. What may be granted for some paths or
//! commands only is listed, since some call of it would pass.

use std::sync::Arc;

use gateway::{
    Clock as _, Effect, Gateway, McpServer, Permissions, Policy, Scope, Subject, SystemClock, Verdict, covers,
};
use ops::McpTool;
use store::run::Spec;

/// What holds for one agent now.
pub(super) struct Offered {
    policy: Arc<Policy>,
    permissions: Arc<Permissions>,
    profile: String,
    role: String,
    agent: String,
}

impl Offered {
    pub(super) fn of(gateway: &Gateway, run: &Spec) -> Self {
        Self {
            policy: gateway.policy(),
            permissions: gateway.permissions(),
            profile: run.profile.clone(),
            role: run.role.clone(),
            agent: run.agent_id.clone(),
        }
    }

    /// What descriptions say of the limits.
    pub(super) fn limits(&self) -> dialects::Limits {
        self.policy.profile(&self.profile).map(calls::limits).unwrap_or_default()
    }

    /// Whether some call of this operation would not be denied for want of a permission.
    pub(super) fn permits(&self, operation: &str) -> bool {
        let profile = self.policy.profile(&self.profile);
        let verdict = profile.and_then(|profile| profile.operation(operation)).map(|(_, verdict)| verdict);
        let Some(role) = self.policy.role(&self.role) else { return false };
        let mut teams = self.policy.teams_of(&self.agent);
        let denied = role.denies(operation, false)
            || self.policy.teams_of(&self.agent).any(|(_, team)| team.denies(operation, false))
            || self.has(Effect::Revocation, operation);
        // The commands that only read are a part of `exec`, and of nothing else.
        let read_only = operation == "exec";
        let held = role.grant(operation, read_only).is_some()
            || teams.any(|(_, team)| team.grant(operation, read_only).is_some())
            || self.has(Effect::Grant, operation);
        verdict.is_some_and(|verdict| verdict != Verdict::Deny) && !denied && held
    }

    /// The servers of the policy of which some tool may be permitted.
    pub(super) fn servers(&self) -> impl Iterator<Item = (&str, &McpServer)> {
        let profile = self.policy.profile(&self.profile);
        let named = move |server: &str| {
            let family = format!("mcp.{server}.");
            profile.is_some_and(|profile| {
                let mut keys = profile.operations.iter().filter(|(_, verdict)| **verdict != Verdict::Deny);
                keys.any(|(key, _)| key == "mcp.*" || key.starts_with(&family))
            })
        };
        self.policy.mcp_servers().filter(move |(name, _)| named(name) && self.holds_some(name))
    }

    /// Whether anybody gives this agent a tool of a server: without that none is started for its list.
    fn holds_some(&self, server: &str) -> bool {
        let family = format!("mcp.{server}.");
        let about = |key: &str| key == "mcp.*" || key.starts_with(&family);
        let Some(role) = self.policy.role(&self.role) else { return false };
        role.keys().any(about)
            || self.policy.teams_of(&self.agent).any(|(_, team)| team.keys().any(about))
            || self.permissions.in_force(SystemClock.now()).any(|permission| {
                permission.effect == Effect::Grant && permission.scope.operation.as_deref().is_some_and(about)
            })
    }

    /// The plain name that the policy has for a tool.
    pub(super) fn alias(&self, tool: &McpTool) -> Option<&str> {
        self.policy.alias_of(tool)
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
                    covers(of, operation) || (of == "exec.read_only" && operation == "exec")
                }
                (Effect::Grant, None) => false,
                (Effect::Revocation, of) => whole && of.as_ref().is_none_or(|of| covers(of, operation)),
            };
            permission.effect == effect && is_theirs && matches
        })
    }
}
