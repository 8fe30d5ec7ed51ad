//! Withholds paths that the profile's rules deny from the answers of git, which finds them without opening any by name.

use std::cell::Cell;

use git2::DiffDelta;
use jail::{Access, Jail, SandboxPath};

use super::error::GitError;
use super::formats::{new_path, old_path};
use super::output::Output;

/// The profile's rules for paths, and the number of changes or names that they have withheld.
pub(super) struct Withheld<'j> {
    jail: &'j Jail,
    count: Cell<u64>,
}

impl<'j> Withheld<'j> {
    pub(super) fn new(jail: &'j Jail) -> Self {
        Self { jail, count: Cell::new(0) }
    }

    /// Returns true if a change may be shown, and counts it if not.
    pub(super) fn shows(&self, delta: &DiffDelta<'_>) -> bool {
        self.counted(self.permits(delta))
    }

    /// Returns true if a change may be shown, without counting it.
    pub(super) fn permits(&self, delta: &DiffDelta<'_>) -> bool {
        [old_path(delta), new_path(delta)].into_iter().all(|path| self.permits_path(path))
    }

    /// Returns true if a path of the work tree may be shown, and counts it if not.
    pub(super) fn shows_path(&self, path: &[u8]) -> bool {
        self.counted(self.permits_path(path))
    }

    /// Refuses an object without a path if the profile has rules for paths.
    pub(super) fn demand_path(&self) -> Result<(), GitError> {
        if !self.jail.has_rules() {
            return Ok(());
        }
        Err(GitError::Withheld(
            "this profile has rules for paths, and an object named by its id has none; name a commit and a file".to_owned(),
        ))
    }

    /// Writes how many were withheld.
    pub(super) fn note(&self, output: &mut Output) {
        if self.count.get() > 0 {
            output.push_str(&format!(
                "* {} kept from this call by the profile's rules for paths\n",
                self.count.get()
            ));
        }
    }

    fn permits_path(&self, path: &[u8]) -> bool {
        check(self.jail, path, Access::Read).is_ok()
    }

    fn counted(&self, shows: bool) -> bool {
        self.count.set(self.count.get() + u64::from(!shows));
        shows
    }
}

/// Checks a path of the work tree against the profile's rules.
pub(super) fn check(jail: &Jail, path: &[u8], access: Access) -> Result<(), GitError> {
    if path.is_empty() || !jail.has_rules() {
        return Ok(());
    }
    SandboxPath::parse(&format!("@project/{}", String::from_utf8_lossy(path)))
        .and_then(|path| jail.check_rules(&path, access))
        .map_err(|refusal| GitError::Withheld(refusal.to_string()))
}
