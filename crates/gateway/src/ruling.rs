//! The ruling of a rule on a call. Most rulings are never shown, so their texts are made only when needed: for a
//! decision that of the decisive ruling, for an explanation all of them.

use std::fmt;
use std::sync::Arc;

use operations::Reason;

use crate::exec::ExecRuling;
use crate::grants::Permission;
use policy::{Risk, Verdict};

/// Ruling of one rule.
#[derive(Debug)]
pub(crate) struct Ruling<'q> {
    pub(crate) verdict: Verdict,
    pub(crate) operation: &'q str,
    pub(crate) says: Says<'q>,
}

/// The rule that made the ruling, with the details that its text needs.
#[derive(Debug)]
pub(crate) enum Says<'q> {
    /// The agent holds the operation.
    Held(Holder<'q>, How),
    /// The agent's role, named here, does not have the operation, and no team or grant gives it.
    NotHeld(&'q str),
    /// The agent's role, named here, denies the operation.
    RoleDenies(&'q str),
    /// A team of the agent denies the operation.
    TeamDenies(&'q str),
    /// A revocation took the operation.
    Revoked(Arc<Permission>),
    /// The profile's verdict on the operation, and its key.
    Profile { name: &'q str, key: &'q str },
    /// The profile's verdict on the command.
    Command { profile: &'q str, ruling: Box<ExecRuling> },
    /// The profile's verdict on a path.
    Path { profile: &'q str, number: usize, justification: &'q str, path: String },
    /// A role with many operations may need consent for risky calls.
    ConsentFrom { role: &'q str, from: Risk, risk: Risk },
    /// A critical call always needs consent.
    Critical,
    /// A permission has answered this ruling beforehand.
    Preapproved { asks: Box<Says<'q>>, given: Arc<Permission> },
}

/// Source of an agent's operation.
#[derive(Debug)]
pub(crate) enum Holder<'q> {
    Role(&'q str),
    Team(&'q str),
    Permission(Arc<Permission>),
}

/// Way in which the operation is held.
#[derive(Debug, Clone, Copy)]
pub(crate) enum How {
    AsProfile,
    /// With consent, which an unattended profile does not ask for.
    Unattended,
    WithConsent,
}

impl Ruling<'_> {
    /// Turns the ruling into `allow`, because this permission has answered it.
    pub(crate) fn preapprove(&mut self, given: Arc<Permission>) {
        self.verdict = Verdict::Allow;
        let asks = Box::new(std::mem::replace(&mut self.says, Says::Critical));
        self.says = Says::Preapproved { asks, given };
    }

    /// Returns the name of the rule, such as `profile review: operations.write`.
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

    /// Returns the text for the agent if the ruling denies.
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

    /// Returns the reason code of the API if the ruling denies.
    pub(crate) fn reason(&self) -> Reason {
        match &self.says {
            Says::Command { ruling, .. } => ruling.reason,
            _ => Reason::PermissionDenied,
        }
    }
}

impl Says<'_> {
    /// Returns true if the agent does not hold the operation, whatever the profile decides on it.
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

/// Returns a suggestion for the agent if an operation is denied.
fn instead_of(operation: &str) -> &'static str {
    match operation {
        "shell" => "; run one program at a time, its arguments as a list",
        _ => "",
    }
}
