//! How much harm a call can do: by operation, by what its arguments name, and by what the operator says.
//!
//! ```text
//! risk = max(the profile's word or the operation's own risk, what the arguments name)
//! ```
//!
//! Arguments only raise the risk: no profile makes the reading of a key harmless. This is a guess by names, and finds
//! only names like a secret's.

use jail::SandboxPath;
use ops::{Git, Operation};

use crate::decision::Risk;
use crate::policy::names::speaking;
use crate::policy::{EXEC_READ_ONLY, Profile};

mod secret;

pub use secret::looks_secret;

/// The risk of a call under a profile. `reads` are the paths of a command of the read-only rule.
pub(crate) fn risk_of(profile: &Profile, operation: &Operation, reads: Option<&[SandboxPath]>) -> Risk {
    let name = if reads.is_some() { EXEC_READ_ONLY } else { operation.name() };
    let own = speaking(&profile.risk, name).map_or_else(|| default_risk(name), |(_, risk)| *risk);
    own.max(of_arguments(operation, reads.unwrap_or_default()))
}

/// The risk of an operation, or of `exec.read_only`, where the profile says nothing. What is unknown is critical.
pub(crate) fn default_risk(operation: &str) -> Risk {
    match operation {
        "read" | "list" | "glob" | "grep" | "git.status" | "git.diff" | "git.log" | "git.show"
        | EXEC_READ_ONLY => Risk::Low,
        "exec" | "shell" | "write" | "edit" | "patch" | "git.add" | "git.commit" => Risk::High,
        // What a server says of its tools is no reason to think less of them.
        tool if tool.starts_with("mcp.") => Risk::High,
        _ => Risk::Critical,
    }
}

/// At least medium when what is read or looked for is called like a secret.
fn of_arguments(operation: &Operation, reads: &[SandboxPath]) -> Risk {
    let named = match operation {
        Operation::Glob(glob) => looks_secret(&glob.path) || secret::is_sought(&glob.pattern),
        Operation::Grep(grep) => {
            looks_secret(&grep.path) || grep.glob.as_deref().is_some_and(secret::is_sought)
        }
        // Names alone, of one directory or of what has changed.
        Operation::List(_) | Operation::Git(Git::Status | Git::Commit { .. }) => false,
        Operation::Exec(_) => reads.iter().any(looks_secret),
        other => other.paths().into_iter().any(looks_secret),
    };
    if named { Risk::Medium } else { Risk::Low }
}

#[cfg(test)]
mod tests;
