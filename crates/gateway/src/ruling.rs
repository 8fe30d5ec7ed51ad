//! The ruling of a rule on a call. Most rulings are never shown, so words are made only if needed: for a decision
//! those of the ruling that decides, for an explanation all of them.

use std::fmt;
use std::sync::Arc;

use ops::Reason;

use crate::decision::{Risk, Verdict};
use crate::exec::ExecRuling;
use crate::grants::Permission;

/// What a rule says.
#[derive(Debug)]
pub(crate) struct Ruling<'q> {
    pub(crate) verdict: Verdict,
    pub(crate) operation: &'q str,
    pub(crate) says: Says<'q>,
}

/// Which rule it is, and what of it matters.
#[derive(Debug)]
pub(crate) enum Says<'q> {
    /// The agent holds the operation.
    Held(Holder<'q>, How),
    /// This role, the agent's own, does not have it, and nothing else gives it.
    NotHeld(&'q str),
    /// This role, the agent's own, denies it.
    RoleDenies(&'q str),
    /// A team of the agent denies it.
    TeamDenies(&'q str),
    /// A revocation took the operation.
    Revoked(Arc<Permission>),
    /// The profile's word on the operation, and under which key.
    Profile { name: &'q str, key: &'q str },
    /// The profile's word on the command.
    Command { profile: &'q str, ruling: Box<ExecRuling> },
    /// The profile's word on a path.
    Path { profile: &'q str, number: usize, justification: &'q str, path: String },
    /// A role that has much may have to ask for what is risky.
    ConsentFrom { role: &'q str, from: Risk, risk: Risk },
    /// Nothing critical runs without consent.
    Critical,
    /// What it says is answered beforehand.
    Preapproved { asks: Box<Says<'q>>, given: Arc<Permission> },
}

/// Through what an agent holds an operation.
#[derive(Debug)]
pub(crate) enum Holder<'q> {
    Role(&'q str),
    Team(&'q str),
    Permission(Arc<Permission>),
}

/// How it is held.
#[derive(Debug, Clone, Copy)]
pub(crate) enum How {
    AsProfile,
    /// With consent, which an unattended profile does not ask for.
    Unattended,
    WithConsent,
}

impl Ruling<'_> {
    /// It asks no more: this permission has answered.
    pub(crate) fn preapprove(&mut self, given: Arc<Permission>) {
        self.verdict = Verdict::Allow;
        let asks = Box::new(std::mem::replace(&mut self.says, Says::Critical));
        self.says = Says::Preapproved { asks, given };
    }

    /// Its name, such as `profile review: operations.write`.
    pub(crate) fn rule(&self) -> String {
        self.says.rule(self.operation)
    }

    pub(crate) fn justification(&self) -> String {
        let Self { verdict, operation, says } = self;
        match says {
            Says::Held(holder, how) => {
                let (kind, name) = holder.parts();
                let how = match how {
                    How::AsProfile => "",
                    How::Unattended => " in unattended profiles",
                    How::WithConsent => " only with consent",
                };
                format!("the {kind} `{name}` has `{operation}`{how}")
            }
            Says::NotHeld(_) | Says::RoleDenies(_) | Says::TeamDenies(_) | Says::Revoked(_) => self.message(),
            Says::Profile { name, .. } => format!("`{operation}` is `{verdict}` under the profile `{name}`"),
            Says::Command { ruling, .. } => ruling.justification.clone(),
            Says::Path { justification, path, .. } => format!("{path}: {justification}"),
            Says::ConsentFrom { role, from, risk } => {
                format!(
                    "the role `{role}` needs consent for calls of {from} risk or more, and this is {risk}"
                )
            }
            Says::Critical => "nothing critical runs without consent".to_owned(),
            Says::Preapproved { asks, given } => {
                format!("{}; preapproved by {}: {}", asks.rule(operation), given.by, given.reason)
            }
        }
    }

    /// For the agent, where it denies.
    pub(crate) fn message(&self) -> String {
        let operation = self.operation;
        match &self.says {
            Says::NotHeld(role) => {
                let instead = instead_of(operation);
                format!("the role `{role}` does not have the operation `{operation}`{instead}")
            }
            Says::RoleDenies(role) => format!("the role `{role}` denies the operation `{operation}`"),
            Says::TeamDenies(team) => format!("the team `{team}` denies the operation `{operation}`"),
            Says::Revoked(_) => format!("the permission for this `{operation}` was revoked"),
            Says::Profile { name, .. } => {
                let instead = instead_of(operation);
                format!("the operation `{operation}` is denied under the profile `{name}`{instead}")
            }
            Says::Command { ruling, .. } => ruling.message.clone(),
            Says::Path { profile, justification, path, .. } => {
                format!("{path}: {justification} (the profile `{profile}` denies this path; use other files)")
            }
            Says::Held(..) | Says::ConsentFrom { .. } | Says::Critical | Says::Preapproved { .. } => {
                String::new()
            }
        }
    }

    /// In the terms of the API, where it denies.
    pub(crate) fn reason(&self) -> Reason {
        match &self.says {
            Says::Command { ruling, .. } => ruling.reason,
            _ => Reason::PermissionDenied,
        }
    }
}

impl Says<'_> {
    /// The agent does not hold the operation, whatever the profile says to it.
    pub(crate) fn is_not_held(&self) -> bool {
        matches!(self, Self::NotHeld(_) | Self::RoleDenies(_) | Self::TeamDenies(_) | Self::Revoked(_))
    }

    fn rule(&self, operation: &str) -> String {
        match self {
            Self::Held(holder, _) => format!("{holder}: {operation}"),
            Self::NotHeld(role) | Self::RoleDenies(role) => format!("role {role}: {operation}"),
            Self::TeamDenies(team) => format!("team {team}: {operation}"),
            Self::Revoked(permission) | Self::Preapproved { given: permission, .. } => {
                format!("permission {}", permission.id)
            }
            Self::Profile { name, key } => format!("profile {name}: operations.{key}"),
            Self::Command { profile, ruling } => format!("profile {profile}: {}", ruling.rule),
            Self::Path { profile, number, .. } => format!("profile {profile}: paths[{number}]"),
            Self::ConsentFrom { role, .. } => format!("role {role}: consent_from"),
            Self::Critical => "risk: critical".to_owned(),
        }
    }
}

impl Holder<'_> {
    fn parts(&self) -> (&'static str, &str) {
        match self {
            Self::Role(name) => ("role", name),
            Self::Team(name) => ("team", name),
            Self::Permission(permission) => ("permission", &permission.id),
        }
    }
}

impl fmt::Display for Holder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name) = self.parts();
        write!(f, "{kind} {name}")
    }
}

/// What to try where an operation is denied.
fn instead_of(operation: &str) -> &'static str {
    match operation {
        "shell" => "; run one program at a time, its arguments as a list",
        _ => "",
    }
}
