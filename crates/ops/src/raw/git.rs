//! Requests to git.

use jail::{Mount, SandboxPath};

use super::Malformed;
use super::check::{required_path, text, within};
use crate::{GitDiffFlag, GitLogFlag, GitRevision, GitRevisions, Operation};

const MAX_PATHS: usize = 1_024;
const MAX_FLAGS: usize = 64;
const MAX_COMMITS: u32 = 10_000;
const DIFF_FLAGS: &str =
    "--cached --staged --stat --name-only --name-status --shortstat --numstat --no-color";
const LOG_FLAGS: &str =
    "--oneline --no-patch --stat --name-only --name-status --shortstat --numstat --no-color";
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
    /// `git log`
    Log {
        /// As typed, such as `--oneline`.
        flags: Vec<String>,
        /// From 1 to 10,000; 100 by default.
        max_count: Option<u32>,
        /// Where it begins, or `A..B`. Empty is HEAD.
        revision: String,
        /// Only commits that touch these.
        paths: Vec<String>,
    },
    /// `git show`
    Show {
        /// As typed, such as `--stat`.
        flags: Vec<String>,
        /// What to show, or `REVISION:PATH`. Empty is HEAD.
        revision: String,
        /// Of a commit's changes only these.
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
                let flags = parsed("git.diff.flags", &flags, GitDiffFlag::parse, DIFF_FLAGS)?;
                crate::Git::Diff { flags, paths: in_project("git.diff.paths", &paths)? }
            }
            Self::Log { flags, max_count, revision, paths } => crate::Git::Log {
                flags: parsed("git.log.flags", &flags, GitLogFlag::parse, LOG_FLAGS)?,
                max_count: within("git.log.max_count", max_count, 100, 1, MAX_COMMITS)?,
                revisions: revisions("git.log.revision", &revision)?,
                paths: in_project("git.log.paths", &paths)?,
            },
            Self::Show { flags, revision, paths } => show(&flags, &revision, &paths)?,
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

fn show(flags: &[String], revision: &str, paths: &[String]) -> Result<crate::Git, Malformed> {
    const FIELD: &str = "git.show.revision";
    let (name, file) = match revision.split_once(':') {
        None => (revision, None),
        // Before the colon there is no default: `:PATH` is what the index has.
        Some(("", _)) => {
            return Err(Malformed::new(FIELD, "needs a commit before the colon, as in HEAD:README.md"));
        }
        Some((name, "")) => (name, Some("@project".to_owned())),
        Some((name, path)) => (name, Some(path.to_owned())),
    };
    let file = in_project(FIELD, file.as_slice())?.pop();
    if file.is_some() && !paths.is_empty() {
        return Err(Malformed::new(
            "git.show.paths",
            "do not go with REVISION:PATH, which is one file or directory",
        ));
    }
    Ok(crate::Git::Show {
        flags: parsed("git.show.flags", flags, GitLogFlag::parse, LOG_FLAGS)?,
        revision: self::revision(FIELD, name)?,
        file,
        paths: in_project("git.show.paths", paths)?,
    })
}

fn revisions(field: &str, typed: &str) -> Result<GitRevisions, Malformed> {
    let Some((without, of)) = typed.split_once("..") else {
        return Ok(GitRevisions { of: revision(field, typed)?, without: None });
    };
    Ok(GitRevisions { of: revision(field, of)?, without: Some(revision(field, without)?) })
}

fn revision(field: &str, typed: &str) -> Result<GitRevision, Malformed> {
    if typed.is_empty() {
        return Ok(GitRevision::default());
    }
    GitRevision::parse(typed).ok_or_else(|| {
        Malformed::new(
            field,
            "must name a commit or tag, such as HEAD, main~2, v1.0^{commit} or 1a2b3c4; paths come after `--`",
        )
    })
}

/// What each flag means.
fn parsed<F>(
    field: &str,
    flags: &[String],
    parse: fn(&str) -> Option<F>,
    known: &str,
) -> Result<Vec<F>, Malformed> {
    if flags.len() > MAX_FLAGS {
        return Err(Malformed::new(field, format!("are more than {MAX_FLAGS}")));
    }
    let flag =
        |flag: &String| parse(flag).ok_or_else(|| Malformed::new(field, format!("may only be {known}")));
    flags.iter().map(flag).collect()
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
