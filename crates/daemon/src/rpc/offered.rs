//! Determines the operations that an agent may call, with consent or without. They make up its list of tools.
//!
//! This module lists and does not decide: the gateway judges a call when it is made. An operation that may be granted
//! only for some paths or commands is listed, since some of its calls would pass.

use std::sync::Arc;

use dialects::{Consent, Denied};
use gateway::{Effect, Gateway, Permissions, Scope, Subject};
use operations::McpTool;
use policy::{EXEC_READ_ONLY, Grant, McpServer, Policy, Verdict, covers};
use runs::record::Spec;
use timestamp::UnixMillis;

/// The policy and permissions that hold for one agent now.
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

    /// Returns the limits for the descriptions of tools.
    pub(super) fn limits(&self) -> dialects::Limits {
        self.policy.profile(&self.profile).map(calls::limits).unwrap_or_default()
    }

    /// Returns the denied programs for the descriptions of tools.
    pub(super) fn denied(&self) -> Denied {
        let exec = self.policy.profile(&self.profile).map(|profile| &profile.exec);
        exec.map_or_else(Denied::default, |exec| Denied {
            builtin: exec.deny_list.is_on(),
            names: exec.deny.clone(),
        })
    }

    /// Returns the consent that an operation as a whole needs by profile, role and teams, for the descriptions of
    /// tools.
    ///
    /// A rule for one command, or a grant for one path, can decide otherwise when a call is made.
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
            // Commands that no rule matches.
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

    /// Returns the strongest grant of an operation by role and teams. `read_only` is for commands that only read.
    fn given(&self, operation: &str, read_only: bool) -> Option<Grant> {
        let of_role = self.policy.role(&self.role).and_then(|role| role.grant(operation, read_only));
        let of_teams =
            self.policy.teams_of(&self.agent).filter_map(|(_, team)| team.grant(operation, read_only));
        of_role.into_iter().chain(of_teams).max()
    }

    /// Returns true if at least some calls of this operation have the permissions that they need.
    pub(super) fn permits(&self, operation: &str) -> bool {
        let profile = self.policy.profile(&self.profile);
        let verdict = profile.and_then(|profile| profile.operation(operation)).map(|(_, verdict)| verdict);
        let Some(role) = self.policy.role(&self.role) else { return false };
        let mut teams = self.policy.teams_of(&self.agent);
        let denied = role.denies(operation, false)
            || self.policy.teams_of(&self.agent).any(|(_, team)| team.denies(operation, false))
            || self.has(Effect::Revocation, operation);
        // Commands that only read are a part of `exec`, and of no other operation.
        let read_only = operation == "exec";
        let held = role.grant(operation, read_only).is_some()
            || teams.any(|(_, team)| team.grant(operation, read_only).is_some())
            || self.has(Effect::Grant, operation);
        verdict.is_some_and(|verdict| verdict != Verdict::Deny) && !denied && held
    }

    /// Returns the policy's servers that may have a permitted tool.
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

    /// Returns true if the agent is granted some tool of a server. Without that, the server is not started for its
    /// list.
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

    /// Returns the plain name that the policy gives to a tool.
    pub(super) fn alias(&self, tool: &McpTool) -> Option<&str> {
        self.policy.alias_of(tool)
    }

    /// Returns true if a grant or a revocation, as `effect` says, of the operation is in force for the agent.
    ///
    /// A grant of a part of an operation is enough to list it. Only a revocation of the whole operation removes it.
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
