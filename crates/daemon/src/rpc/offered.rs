//! Which operations an agent may call at all, with consent or without: what its tool list is made of.
//!
//! This lists, it does not decide: a call is judged by the gateway when it is made. What may be granted for some paths or
//! commands only is listed, since some call of it would pass.

use std::sync::Arc;

use dialects::{Consent, Denied};
use gateway::{
    EXEC_READ_ONLY, Effect, Gateway, Grant, McpServer, Permissions, Policy, Scope, Subject, Verdict, covers,
};
use ops::McpTool;
use store::run::Spec;
use timestamp::UnixMillis;

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

    /// What descriptions say of programs.
    pub(super) fn denied(&self) -> Denied {
        let exec = self.policy.profile(&self.profile).map(|profile| &profile.exec);
        exec.map_or_else(Denied::default, |exec| Denied {
            builtin: exec.deny_list.is_on(),
            names: exec.deny.clone(),
        })
    }

    /// What descriptions say of consent: the word of profile, role and teams on the operation as a whole. A rule for one command,
    /// or a grant for one path, says more when a call is made.
    pub(super) fn consent(&self, operation: &str) -> Consent {
        let reads = operation == EXEC_READ_ONLY;
        let name = if reads { "exec" } else { operation };
        let Some(profile) = self.policy.profile(&self.profile).filter(|_| self.permits(name)) else {
            return Consent::Refused;
        };
        let given = self.given(name, reads);
        if given.is_none() && !self.has(Effect::Grant, name) {
            return Consent::Refused;
        }
        let of_profile = match profile.operation(name) {
            // Commands of which no rule speaks.
            Some((_, Verdict::Allow)) if operation == "exec" => profile.exec.default,
            Some((_, Verdict::Allow)) if reads && !profile.exec.read_only_commands => profile.exec.default,
            Some((_, verdict)) => verdict,
            None => Verdict::Deny,
        };
        match of_profile {
            Verdict::Deny => Consent::Refused,
            Verdict::Ask => Consent::Asked,
            Verdict::Allow if given == Some(Grant::Ask) && !profile.unattended => Consent::Asked,
            Verdict::Allow => Consent::Free,
        }
    }

    /// The best that role and teams give the agent of an operation; `read_only` for the commands that only read.
    fn given(&self, operation: &str, read_only: bool) -> Option<Grant> {
        let of_role = self.policy.role(&self.role).and_then(|role| role.grant(operation, read_only));
        let of_teams =
            self.policy.teams_of(&self.agent).filter_map(|(_, team)| team.grant(operation, read_only));
        of_role.into_iter().chain(of_teams).max()
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
            || self.permissions.in_force(UnixMillis::now()).any(|permission| {
                permission.effect == Effect::Grant && permission.scope.operation.as_deref().is_some_and(about)
            })
    }

    /// The plain name that the policy has for a tool.
    pub(super) fn alias(&self, tool: &McpTool) -> Option<&str> {
        self.policy.alias_of(tool)
    }

    /// A grant of part of an operation is enough to list it, and only a revocation of all of it takes it away.
    fn has(&self, effect: Effect, operation: &str) -> bool {
        self.permissions.in_force(UnixMillis::now()).any(|permission| {
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
