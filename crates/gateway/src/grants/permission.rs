//! One grant or revocation.

use std::fmt;

use jail::SandboxPath;
use operations::deny::is_denied;
use operations::{Operation, PathPattern};
use serde::{Deserialize, Serialize};
use timestamp::UnixMillis;

use crate::exec::Sight;
use command_rules::named_files;
use document::nearest;
use operations::is_wrapper;
use policy::{EXEC_READ_ONLY, Policy, Words, covers, is_of_tools};

/// Most words of a command prefix, and most bytes of all of them.
const MAX_WORDS: usize = 64;
const MAX_WORD_BYTES: usize = 4_096;
/// Most characters of a reason.
const MAX_REASON: usize = 1_000;
/// Longest name of an agent.
const MAX_NAME: usize = 128;

/// Effect of a permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Gives the operation.
    Grant,
    /// Takes the operation away, and overrides every grant.
    Revocation,
}

/// Holder of a permission.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// One agent, in all of its runs.
    Agent(String),
    /// Every agent whose run has this role.
    Role(String),
    /// Every agent of this team.
    Team(String),
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// The operation, or `exec.read_only`. `None` is every operation, which only a revocation may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// Limits the permission to calls that name matching paths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathPattern>,
    /// Limits the permission to commands that begin with these words. Empty for any command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
}

/// The end of a permission before its time: by whom, when and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    pub by: String,
    pub at: UnixMillis,
    pub reason: String,
}

/// A grant or a revocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permission {
    pub id: String,
    pub effect: Effect,
    /// Holder of the permission.
    pub subject: Subject,
    pub scope: Scope,
    /// For a grant: consent is given beforehand.
    pub preapproved: bool,
    /// Reason for the record.
    pub reason: String,
    /// The principal who gave it.
    pub by: String,
    pub at: UnixMillis,
    /// Time from which it no longer counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<UnixMillis>,
    /// Set if it was ended before its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ended>,
}

/// A permission that cannot be given. No part of it comes into force.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct BadPermission {
    /// Name of the field that is wrong.
    pub field: &'static str,
    /// Describes the mistake, and the text to write instead.
    pub message: String,
}

impl BadPermission {
    fn new(field: &'static str, message: impl Into<String>) -> Self {
        Self { field, message: message.into() }
    }
}

impl Permission {
    /// Checks that it may be given under this policy at this moment.
    pub fn check(&self, policy: &Policy, now: UnixMillis) -> Result<(), BadPermission> {
        self.check_subject(policy)?;
        self.check_scope()?;
        if self.reason.trim().is_empty() || self.reason.chars().count() > MAX_REASON {
            let message = format!("must say why, in at most {MAX_REASON} characters");
            return Err(BadPermission::new("reason", message));
        }
        if self.expires_at.is_some_and(|end| end <= now) {
            return Err(BadPermission::new("expires_at", "is not in the future"));
        }
        if self.preapproved { self.check_preapproved() } else { Ok(()) }
    }

    fn check_subject(&self, policy: &Policy) -> Result<(), BadPermission> {
        let unknown = |field, name: &str, known: Vec<&str>| {
            let message = format!("the policy has no such {field} ({})", nearest(name, &known));
            Err(BadPermission::new(field, message))
        };
        match &self.subject {
            Subject::Role(name) if policy.role(name).is_none() => {
                unknown("role", name, policy.role_names().collect())
            }
            Subject::Team(name) if policy.team(name).is_none() => {
                unknown("team", name, policy.team_names().collect())
            }
            Subject::Role(_) | Subject::Team(_) => Ok(()),
            Subject::Agent(name) => {
                let plain = |c: char| c.is_ascii_alphanumeric() || "._:@/-".contains(c);
                if (1..=MAX_NAME).contains(&name.len()) && name.chars().all(plain) {
                    return Ok(());
                }
                let message = format!("must be 1 to {MAX_NAME} characters of [A-Za-z0-9._:@/-]");
                Err(BadPermission::new("agent", message))
            }
        }
    }

    fn check_scope(&self) -> Result<(), BadPermission> {
        let Scope { operation, path, command } = &self.scope;
        let known: Vec<&str> = Operation::NAMES.into_iter().chain([EXEC_READ_ONLY]).collect();
        let operation = operation.as_deref();
        if let Some(name) = operation.filter(|name| !known.contains(name) && !is_of_tools(name)) {
            let message = format!("there is no such operation ({})", nearest(name, &known));
            return Err(BadPermission::new("operation", message));
        }
        let grants = self.effect == Effect::Grant;
        if grants && operation.is_none() {
            return Err(BadPermission::new("operation", "is missing: a grant names its operation"));
        }
        let runs = operation.is_none_or(|name| matches!(name, "exec" | "shell" | EXEC_READ_ONLY));
        if !command.is_empty() {
            let bytes: usize = command.iter().map(String::len).sum();
            let plain = |word: &String| !word.is_empty() && !word.chars().any(char::is_control);
            if command.len() > MAX_WORDS || bytes > MAX_WORD_BYTES || !command.iter().all(plain) {
                let message = format!(
                    "must be at most {MAX_WORDS} words and {MAX_WORD_BYTES} bytes, none of them empty"
                );
                return Err(BadPermission::new("command", message));
            }
            if !runs || grants && operation != Some("exec") {
                return Err(BadPermission::new("command", "is for the operation `exec`"));
            }
            if path.is_some() {
                return Err(BadPermission::new("path", "cannot be given together with a command"));
            }
        }
        let pathless =
            matches!(operation, Some("git.status" | "git.commit" | "git.fetch" | "git.pull" | "git.push"))
                || operation.is_some_and(is_of_tools);
        if path.is_some() && (pathless || grants && runs) {
            let message =
                "the paths that this operation touches are not known beforehand; name a command instead";
            return Err(BadPermission::new("path", message));
        }
        Ok(())
    }

    /// Refuses preapproval of calls that a reviewer has to see, and of revocations, which need no consent.
    fn check_preapproved(&self) -> Result<(), BadPermission> {
        let refuse = |message: String| Err(BadPermission::new("preapproved", message));
        let operation = self.scope.operation.as_deref().unwrap_or_default();
        if self.effect == Effect::Revocation {
            return refuse("is for grants".to_owned());
        }
        let is_seen = matches!(operation, "delete" | "shell" | "process" | "session");
        if is_seen || Operation::effect_of(operation) == Some(operations::Effect::Commits) {
            return refuse(format!("a reviewer has to see each `{operation}`"));
        }
        if operation != "exec" {
            return Ok(());
        }
        match self.scope.command.first() {
            None => refuse("for `exec` a command prefix has to be named".to_owned()),
            Some(program) if is_wrapper(program) || may_wrap(program) => {
                refuse(format!("`{program}` runs other programs, so a reviewer has to see each"))
            }
            Some(program) if is_denied(program) => {
                refuse(format!("`{program}` is on the deny list, so it never runs"))
            }
            Some(_) => Ok(()),
        }
    }

    /// Returns true if it counts at this moment.
    pub fn is_in_force(&self, now: UnixMillis) -> bool {
        self.ended.is_none() && self.expires_at.is_none_or(|end| now < end)
    }

    /// Returns true if this grant gives the call. `read_only` says that the read-only rule covers the command.
    pub(super) fn gives(&self, call: &Sight<'_>, read_only: bool) -> bool {
        let Scope { operation: wanted, path, command } = &self.scope;
        let name = call.operation().name();
        let named = wanted
            .as_deref()
            .is_some_and(|wanted| covers(wanted, name) || read_only && wanted == EXEC_READ_ONLY);
        named
            && path.as_ref().is_none_or(|pattern| {
                let paths = call.operation().paths();
                !paths.is_empty() && paths.into_iter().all(|path| pattern.matches(path))
            })
            && Words::of(command).is_none_or(|words| call.begins_plainly(words))
    }

    /// Returns true if this revocation takes the call away.
    pub(super) fn takes(&self, call: &Sight<'_>, read_only: bool) -> bool {
        let Scope { operation: wanted, path, command } = &self.scope;
        let name = call.operation().name();
        let named = wanted
            .as_deref()
            .is_none_or(|wanted| covers(wanted, name) || read_only && wanted == EXEC_READ_ONLY);
        named
            && path.as_ref().is_none_or(|pattern| touches(call.operation(), pattern))
            && Words::of(command).is_none_or(|words| call.contains(words))
    }
}

/// Returns true if the prefix itself is a shell, or a program such as `find` that may run another.
fn may_wrap(program: &str) -> bool {
    let name = operations::deny::base_name(program);
    matches!(name.as_str(), "find" | "gfind" | "fd" | "fdfind" | "tar" | "rsync" | "awk" | "gawk" | "perl")
        || name.ends_with("sh")
}

/// Returns true if a call may touch a path that matches: one that it names, or one beneath a directory that it searches.
fn touches(operation: &Operation, pattern: &PathPattern) -> bool {
    if operation.effect() == operations::Effect::Runs {
        return named_files(operation).iter().any(|path| pattern.matches(path));
    }
    let (paths, beneath) = (operation.paths(), operation.searches_beneath());
    let whole = if beneath && paths.is_empty() { SandboxPath::parse("@project").ok() } else { None };
    let touches = |path| pattern.matches(path) || beneath && pattern.may_be_beneath(path);
    paths.into_iter().chain(&whole).any(touches)
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent(name) => write!(f, "agent {name}"),
            Self::Role(name) => write!(f, "role {name}"),
            Self::Team(name) => write!(f, "team {name}"),
        }
    }
}
