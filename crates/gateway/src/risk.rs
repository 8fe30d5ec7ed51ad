//! How much harm a call can do: by operation, by what its arguments name, and by what the operator says.
//!
//! ```text
//! risk = max(the profile's word or the operation's own risk, what the arguments name)
//! ```
//!
//! Arguments only raise the risk: no profile makes the reading of a key harmless. This is a guess by names, and finds
//! only names like a secret's.

use jail::SandboxPath;
use ops::Operation;

use crate::decision::Risk;
use crate::policy::names::speaking;
use crate::policy::{EXEC_READ_ONLY, Profile, default_risk};

mod secret;

pub use secret::looks_secret;

/// The risk of a call under a profile. `reads` are the paths of a command of the read-only rule.
pub(crate) fn risk_of(profile: &Profile, operation: &Operation, reads: Option<&[SandboxPath]>) -> Risk {
    let name = if reads.is_some() { EXEC_READ_ONLY } else { operation.name() };
    let own = speaking(&profile.risk, name)
        .map_or_else(|| default_risk(name, profile.exec.deny_list), |(_, risk)| *risk);
    own.max(of_arguments(operation, reads.unwrap_or_default()))
}

/// At least medium when what is read or looked for is called like a secret.
fn of_arguments(operation: &Operation, reads: &[SandboxPath]) -> Risk {
    let (paths, pattern) = operation.sought();
    let named = paths.into_iter().chain(reads).any(looks_secret) || pattern.is_some_and(secret::is_sought);
    if named { Risk::Medium } else { Risk::Low }
}

#[cfg(test)]
mod tests;
