//! Permissions that operators grant and revoke at run time, besides the policy.
//!
//! ```text
//!   grant       the subject holds the operation as if its role had it; the profile then decides
//!   … preapproved   and where the profile would ask, consent is given beforehand
//!   revocation  the subject does not have it, whatever role, team or grant gives it
//! ```
//!
//! A grant allows nothing that the profile, a command rule or the deny list denies, nothing that a role or team denies,
//! and nothing critical. No script, no wrapper and no git write is ever preapproved. A revocation overrides every
//! grant. Both are looked up for every decision, also after a wait for approval, so they are in force at once.
//!
//! A grant matches exactly and a revocation loosely, as `allow` and `deny` rules do. A grant for a path covers a call
//! only if every path of the call matches. A revocation for a path covers it if any path matches, or if a matching path
//! may be beneath one that is searched. Paths are compared as names. A link in a workspace can have another name than
//! its target, so a revocation by path is no wall; the run's mounts are.

mod about;
mod permission;
mod table;

#[cfg(test)]
mod tests;

pub use operations::{BadPattern, PathPattern};
pub use permission::{BadPermission, Effect, Ended, Permission, Scope, Subject};
pub use table::{MAX_IN_FORCE, Permissions, TooMany};

pub(crate) use table::{Holders, Standing};
