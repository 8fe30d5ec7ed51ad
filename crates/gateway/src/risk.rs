//! Harm that a call can do: by operation, by names in its arguments, and by the profile.
//!
//! ```text
//! risk = max(the profile's word or the operation's own risk, what the arguments name)
//! ```
//!
//! Arguments only raise the risk: no profile makes the reading of a key harmless. This is a guess from names, and finds
//! only names that look like a secret's.

use jail::SandboxPath;
use operations::Operation;

use policy::{EXEC_READ_ONLY, Profile, Risk, default_risk, speaking};

mod secret;

pub use secret::looks_secret;

/// Returns the risk of a call under a profile. `reads` are the paths of a command of the read-only rule.
pub(crate) fn risk_of(profile: &Profile, operation: &Operation, reads: Option<&[SandboxPath]>) -> Risk {
    let name = if reads.is_some() { EXEC_READ_ONLY } else { operation.name() };
    let own = speaking(&profile.risk, name)
        .map_or_else(|| default_risk(name, profile.exec.deny_list), |(_, risk)| *risk);
    own.max(of_arguments(operation, reads.unwrap_or_default()))
}

/// Returns at least medium if a file that is read or searched for has a name like a secret's.
fn of_arguments(operation: &Operation, reads: &[SandboxPath]) -> Risk {
    let (paths, pattern) = operation.sought();
    let named = paths.into_iter().chain(reads).any(looks_secret) || pattern.is_some_and(secret::is_sought);
    if named { Risk::Medium } else { Risk::Low }
}

#[cfg(test)]
mod tests;
