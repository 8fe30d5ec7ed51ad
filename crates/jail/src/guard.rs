//! Rules of a profile for paths, besides the fixed ones of [`crate::Protection`].

use std::fmt;

use crate::access::Access;
use crate::path::SandboxPath;
use crate::refusal::PathRefusal;

/// Judges each path that a caller passes to a jail, and each that a link or a walk leads to.
pub trait PathGuard: fmt::Debug + Send + Sync {
    /// Refuses `path` if `access` to it is not permitted.
    fn check(&self, path: &SandboxPath, access: Access) -> Result<(), PathRefusal>;
}
