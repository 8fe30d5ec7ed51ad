//! Checks the paths of a git command: they must be in `@project`, and outside of git's own files.

use jail::{Access, Mount, PathRefusal, Protection, SandboxPath};

use super::error::GitError;

/// Returns the path relative to the work tree; empty for the whole work tree.
pub(super) fn in_work_tree(path: &SandboxPath) -> Result<&str, GitError> {
    if path.mount() != Mount::Project {
        return Err(GitError::Forbidden(path.to_string()));
    }
    // The rule that keeps writers out of `.git`, in all its spellings. The other rules are not about git.
    match Protection::default().check(path, Access::Write) {
        Err(PathRefusal::GitInternals { path }) => Err(GitError::Forbidden(path)),
        _ => Ok(path.rel().as_str()),
    }
}

/// Returns true if `path` is one of these paths or beneath one. An empty list means all.
pub(super) fn is_within(path: &[u8], limit_to: &[&str]) -> bool {
    let is_beneath = |limit: &&str| {
        let rest = path.strip_prefix(limit.as_bytes());
        limit.is_empty() || rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
    };
    limit_to.is_empty() || limit_to.iter().any(is_beneath)
}
