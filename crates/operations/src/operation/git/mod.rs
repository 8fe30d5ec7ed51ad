//! `git`: reads the workspace's own repository and adds to it.

mod names;
mod remote;

use jail::{Mount, SandboxPath};
use serde_json::{Value, json};
use wire::v1::git_request::Command;
use wire::v1::{self, GitAdd, GitCommit, GitDiff, GitLog, GitRequest, GitResult, GitShow, GitStatus};

use super::check::{required_path, text, within};
use super::{Answer, Class, Describe, Effect, Lane, Part, Request, Sketch};
use crate::{CommandLimits, Malformed};

pub use names::{GitDiffFlag, GitFormat, GitLogFlag, GitRevision, GitRevisions};
pub use remote::{GitFetch, GitPull, GitPullMode, GitPush, GitPushed, GitRefName, GitRemote};

pub(super) const STATUS: Class = Class { name: "git.status", lane: Lane::Host, effect: Effect::Looks };
pub(super) const DIFF: Class = Class { name: "git.diff", lane: Lane::Host, effect: Effect::Looks };
pub(super) const LOG: Class = Class { name: "git.log", lane: Lane::Host, effect: Effect::Looks };
pub(super) const SHOW: Class = Class { name: "git.show", lane: Lane::Host, effect: Effect::Looks };
pub(super) const ADD: Class = Class { name: "git.add", lane: Lane::Host, effect: Effect::Commits };
pub(super) const COMMIT: Class = Class { name: "git.commit", lane: Lane::Host, effect: Effect::Commits };
pub(super) const FETCH: Class = Class { name: "git.fetch", lane: Lane::Host, effect: Effect::Commits };
pub(super) const PULL: Class = Class { name: "git.pull", lane: Lane::Host, effect: Effect::Commits };
pub(super) const PUSH: Class = Class { name: "git.push", lane: Lane::Host, effect: Effect::Commits };

const MAX_PATHS: usize = 1_024;
const MAX_FLAGS: usize = 64;
const MAX_COMMITS: u32 = 10_000;
const DIFF_FLAGS: &str =
    "--cached --staged --stat --name-only --name-status --shortstat --numstat --no-color";
const LOG_FLAGS: &str =
    "--oneline --no-patch --stat --name-only --name-status --shortstat --numstat --no-color";
const MAX_MESSAGE: usize = 64 * 1024;
/// Most references of a result, as its message promises.
const MAX_UPDATES: usize = 1_000;
/// References that the record of a call names.
const RECORDED_UPDATES: usize = 64;

/// Git in the workspace's own repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Git {
    /// `git status --porcelain=v1 --branch`.
    Status,
    /// `git diff`.
    Diff {
        /// Flags of the allow list.
        flags: Vec<GitDiffFlag>,
        /// Only these paths.
        paths: Vec<SandboxPath>,
    },
    /// `git log`.
    Log {
        /// Flags of the allow list.
        flags: Vec<GitLogFlag>,
        /// Most commits, 1 to 10,000.
        max_count: u32,
        /// Commits to show.
        revisions: GitRevisions,
        /// Only commits that touch these paths.
        paths: Vec<SandboxPath>,
    },
    /// `git show`.
    Show {
        /// Flags of the allow list.
        flags: Vec<GitLogFlag>,
        /// A commit, or a tag.
        revision: GitRevision,
        /// The file or directory of that commit, shown instead of the commit itself. Excludes `paths`.
        file: Option<SandboxPath>,
        /// Only changes to these paths.
        paths: Vec<SandboxPath>,
    },
    /// `git add`.
    Add {
        /// At least one path.
        paths: Vec<SandboxPath>,
    },
    /// `git commit`.
    Commit {
        /// Not blank, at most 64 KiB.
        message: String,
    },
    /// `git fetch`.
    Fetch(GitFetch),
    /// `git pull`.
    Pull(GitPull),
    /// `git push`.
    Push(GitPush),
}

impl Request for Git {
    type Message = GitRequest;

    fn parse(message: GitRequest, _: CommandLimits) -> Result<Self, Malformed> {
        let command = message.command.ok_or_else(|| {
            let commands = "status, diff, log, show, add, commit, fetch, pull, push";
            Malformed::new("git", format!("needs one of {commands}"))
        })?;
        Ok(match command {
            Command::Status(GitStatus {}) => Self::Status,
            Command::Diff(GitDiff { flags, paths }) => Self::Diff {
                flags: parsed("git.diff.flags", &flags, GitDiffFlag::parse, DIFF_FLAGS)?,
                paths: in_project("git.diff.paths", &paths)?,
            },
            Command::Log(GitLog { flags, max_count, revision, paths }) => Self::Log {
                flags: parsed("git.log.flags", &flags, GitLogFlag::parse, LOG_FLAGS)?,
                max_count: within("git.log.max_count", max_count, 100, 1, MAX_COMMITS)?,
                revisions: revisions("git.log.revision", &revision)?,
                paths: in_project("git.log.paths", &paths)?,
            },
            Command::Show(GitShow { flags, revision, paths }) => show(&flags, &revision, &paths)?,
            Command::Add(GitAdd { paths }) => {
                if paths.is_empty() {
                    return Err(Malformed::new(
                        "git.add.paths",
                        "is empty: name the files to add, or `.` for all",
                    ));
                }
                Self::Add { paths: in_project("git.add.paths", &paths)? }
            }
            Command::Commit(GitCommit { message }) => {
                text("git.commit.message", &message, 1, MAX_MESSAGE)?;
                if message.trim().is_empty() {
                    return Err(Malformed::new("git.commit.message", "is blank"));
                }
                Self::Commit { message }
            }
            Command::Fetch(message) => Self::Fetch(GitFetch::parse(&message)?),
            Command::Pull(message) => Self::Pull(GitPull::parse(&message)?),
            Command::Push(message) => Self::Push(GitPush::parse(message)?),
        })
    }

    fn message(&self) -> GitRequest {
        let command = match self {
            Self::Status => Command::Status(GitStatus {}),
            Self::Diff { flags, paths } => Command::Diff(GitDiff {
                flags: flags.iter().map(|flag| flag.as_str().to_owned()).collect(),
                paths: texts(paths),
            }),
            Self::Log { flags, max_count, revisions, paths } => Command::Log(GitLog {
                flags: flags.iter().map(|flag| flag.as_str().to_owned()).collect(),
                max_count: Some(*max_count),
                revision: revisions.to_string(),
                paths: texts(paths),
            }),
            Self::Show { flags, revision, file, paths } => Command::Show(GitShow {
                flags: flags.iter().map(|flag| flag.as_str().to_owned()).collect(),
                revision: match file {
                    Some(file) => format!("{revision}:{file}"),
                    None => revision.to_string(),
                },
                paths: texts(paths),
            }),
            Self::Add { paths } => Command::Add(GitAdd { paths: texts(paths) }),
            Self::Commit { message } => Command::Commit(GitCommit { message: message.clone() }),
            Self::Fetch(fetch) => Command::Fetch(fetch.message()),
            Self::Pull(pull) => Command::Pull(pull.message()),
            Self::Push(push) => Command::Push(push.message()),
        };
        GitRequest { command: Some(command) }
    }

    fn sketch(message: &GitRequest) -> Sketch {
        match &message.command {
            Some(Command::Status(_)) => (STATUS.name, json!({})),
            Some(Command::Diff(diff)) => (DIFF.name, json!({ "paths": diff.paths })),
            Some(Command::Log(log)) => (LOG.name, json!({ "revision": log.revision, "paths": log.paths })),
            Some(Command::Show(show)) => {
                (SHOW.name, json!({ "revision": show.revision, "paths": show.paths }))
            }
            Some(Command::Add(add)) => (ADD.name, json!({ "paths": add.paths })),
            Some(Command::Commit(_)) => (COMMIT.name, json!({})),
            Some(Command::Fetch(fetch)) => {
                (FETCH.name, json!({ "remote": fetch.remote, "refs": fetch.refs }))
            }
            Some(Command::Pull(pull)) => (PULL.name, json!({ "remote": pull.remote, "branch": pull.branch })),
            Some(Command::Push(push)) => {
                let refs: Vec<&String> = push.refs.iter().map(|to| &to.remote_ref).collect();
                (PUSH.name, json!({ "remote": push.remote, "refs": refs }))
            }
            None => ("", json!({})),
        }
    }
}

impl Describe for Git {
    fn class(&self) -> Class {
        match self {
            Self::Status => STATUS,
            Self::Diff { .. } => DIFF,
            Self::Log { .. } => LOG,
            Self::Show { .. } => SHOW,
            Self::Add { .. } => ADD,
            Self::Commit { .. } => COMMIT,
            Self::Fetch(_) => FETCH,
            Self::Pull(_) => PULL,
            Self::Push(_) => PUSH,
        }
    }

    fn paths(&self) -> Vec<&SandboxPath> {
        match self {
            Self::Diff { paths, .. } | Self::Log { paths, .. } | Self::Add { paths } => {
                paths.iter().collect()
            }
            Self::Show { file, paths, .. } => file.iter().chain(paths).collect(),
            Self::Status | Self::Commit { .. } | Self::Fetch(_) | Self::Pull(_) | Self::Push(_) => Vec::new(),
        }
    }

    /// Without paths these commands cover the whole repository.
    fn searches_beneath(&self) -> bool {
        !matches!(self, Self::Status | Self::Commit { .. }) && !self.uses_network()
    }

    fn uses_network(&self) -> bool {
        matches!(self, Self::Fetch(_) | Self::Pull(_) | Self::Push(_))
    }

    /// A repository gets the content of a file that is added.
    fn shows_changed(&self) -> bool {
        matches!(self, Self::Add { .. })
    }

    fn parts(&self) -> Vec<Part<'_>> {
        match self {
            Self::Commit { message } => vec![Part::Text("commit message", message.as_bytes())],
            _ => Vec::new(),
        }
    }
}

impl Answer for GitResult {
    fn check(&mut self) -> Result<(), Malformed> {
        if self.updates.len() > MAX_UPDATES {
            return Err(Malformed::new("git.updates", format!("are more than {MAX_UPDATES}")));
        }
        Ok(())
    }

    fn facts(&self) -> Value {
        let mut facts = json!({ "output_bytes": self.output.len(), "commit": self.commit });
        if !self.remote.is_empty() {
            let update = |update: &v1::GitRefUpdate| json!([update.name, update.old_id, update.new_id]);
            facts["remote"] = self.remote.clone().into();
            facts["updates"] = self.updates.iter().take(RECORDED_UPDATES).map(update).collect();
            facts["updated_refs"] = self.updates.len().into();
            facts["received_bytes"] = self.received_bytes.into();
            facts["commits"] = self.commits.into();
        }
        facts
    }
}

fn texts(paths: &[SandboxPath]) -> Vec<String> {
    paths.iter().map(ToString::to_string).collect()
}

fn show(flags: &[String], revision: &str, paths: &[String]) -> Result<Git, Malformed> {
    const FIELD: &str = "git.show.revision";
    let (name, file) = match revision.split_once(':') {
        None => (revision, None),
        // Before the colon there is no default: `:PATH` means the index.
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
            "cannot be combined with REVISION:PATH, which names one file or directory",
        ));
    }
    Ok(Git::Show {
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

/// Parses each flag.
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
