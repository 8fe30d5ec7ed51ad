//! Requests to git.

use jail::{Mount, SandboxPath};

use super::Malformed;
use super::check::{required_path, text};
use crate::{GitDiffFlag, Operation};

const MAX_PATHS: usize = 1_024;
const MAX_FLAGS: usize = 64;
const MAX_MESSAGE: usize = 64 * 1024;

/// Becomes [`crate::Git`].
#[derive(Debug, Clone)]
pub enum Git {
    /// `git status`
    Status,
    /// `git diff`
    Diff {
        /// As typed, such as `--stat`.
        flags: Vec<String>,
        /// Only these.
        paths: Vec<String>,
    },
    /// `git add`
    Add {
        /// At least one.
        paths: Vec<String>,
    },
    /// `git commit`
    Commit {
        /// Not blank.
        message: String,
    },
}

impl Git {
    /// Validates.
    pub fn into_operation(self) -> Result<Operation, Malformed> {
        Ok(Operation::Git(match self {
            Self::Status => crate::Git::Status,
            Self::Diff { flags, paths } => {
                crate::Git::Diff { flags: diff_flags(&flags)?, paths: in_project("git.diff.paths", &paths)? }
            }
            Self::Add { paths } => {
                if paths.is_empty() {
                    return Err(Malformed::new(
                        "git.add.paths",
                        "is empty: name the files to add, or `.` for all",
                    ));
                }
                crate::Git::Add { paths: in_project("git.add.paths", &paths)? }
            }
            Self::Commit { message } => {
                text("git.commit.message", &message, 1, MAX_MESSAGE)?;
                if message.trim().is_empty() {
                    return Err(Malformed::new("git.commit.message", "is blank"));
                }
                crate::Git::Commit { message }
            }
        }))
    }
}

fn diff_flags(flags: &[String]) -> Result<Vec<GitDiffFlag>, Malformed> {
    let known = |flag: &String| {
        GitDiffFlag::parse(flag).ok_or_else(|| {
            Malformed::new(
                "git.diff.flags",
                "may only be --cached --staged --stat --name-only --name-status --shortstat --numstat --no-color",
            )
        })
    };
    if flags.len() > MAX_FLAGS {
        return Err(Malformed::new("git.diff.flags", format!("are more than {MAX_FLAGS}")));
    }
    flags.iter().map(known).collect()
}

fn in_project(field: &str, paths: &[String]) -> Result<Vec<SandboxPath>, Malformed> {
    if paths.len() > MAX_PATHS {
        return Err(Malformed::new(field, format!("has more than {MAX_PATHS} paths")));
    }
    let paths = paths.iter().map(|path| required_path(field, path)).collect::<Result<Vec<_>, _>>()?;
    if paths.iter().any(|path| path.mount() != Mount::Project) {
        return Err(Malformed::new(field, "must be beneath @project, where the repository is"));
    }
    Ok(paths)
}
