//! The reasons why a git command failed, in words for an agent: `@project` instead of paths of the jail, and a remedy.

use git_remote::RemoteError;
use git2::{ErrorClass, ErrorCode};
use operations::{Held, Reason, ToolFailure, before_effect};
use text::{Shape, excerpt_of};
use thiserror::Error;

/// A git operation that failed or was refused.
#[derive(Debug, Error)]
pub(super) enum GitError {
    #[error("@project is not a git repository (there is no @project/.git)")]
    NoRepository,
    #[error("refused: {place} is {what}; only a repository that is complete in one directory is opened")]
    Redirected { place: String, what: &'static str },
    #[error("refused: @project/.git or the workspace belongs to another user")]
    NotOwned,
    #[error("refused: {0}: git does not touch its own files, other mounts or special files")]
    Forbidden(String),
    #[error("nothing was changed, because one of the files may not be written: {0}")]
    Protected(String),
    #[error("pathspec '{0}' is beyond a symbolic link")]
    BeyondLink(String),
    #[error("pathspec '{0}' did not match any files")]
    NoMatch(String),
    #[error(
        "The following paths are ignored by one of your .gitignore files:\n{0}\nNothing was added; name other paths."
    )]
    Ignored(String),
    #[error("'{0}' is a separate repository, and adding it is not supported; name the other paths")]
    NestedRepository(String),
    #[error("'{path}' has {bytes} bytes; at most {most} can be added")]
    TooLarge { path: String, bytes: u64, most: u64 },
    #[error(
        "These files pass through a filter or an encoding, which does not run here, so that their content cannot be \
         added:\n{0}\nNothing was added. Name the other paths, and leave these to a person with git on the host."
    )]
    Converted(String),
    #[error("options '{0}' and '{1}' cannot be used together")]
    Flags(&'static str, &'static str),
    #[error("unknown revision '{0}': it must be a commit or tag of this repository; paths come after `--`")]
    NoRevision(String),
    #[error("'{0}' begins the ids of several objects; give more digits")]
    Ambiguous(String),
    #[error("there is no commit yet on this branch")]
    NoCommits,
    #[error("'{path}' does not exist in '{revision}'")]
    NotInRevision { path: String, revision: String },
    #[error("'{path}' has {bytes} bytes; at most {most} are shown")]
    TooLargeToShow { path: String, bytes: u64, most: u64 },
    #[error("nothing to commit: nothing is staged; add files with git add first")]
    NothingStaged,
    #[error("not possible while a {0} is in progress; a person has to finish or abort it")]
    InProgress(&'static str),
    #[error("these files have unresolved conflicts; resolve and add them first:\n{0}")]
    Conflicts(String),
    #[error(
        "another process moved the branch at the same time, so nothing was committed; check the branch and try again"
    )]
    Moved,
    #[error(
        "{0} is also checked out in another work tree of this repository, which a new commit \
         would disturb; have a person run `git switch -c NEW-BRANCH` here on the host"
    )]
    CheckedOut(String),
    #[error("the commit message is empty")]
    EmptyMessage,
    #[error("the repository is locked by another git process (or one that crashed): {0}")]
    Locked(String),
    #[error("the repository uses {what}, which the git operations do not support; {remedy}")]
    Unsupported { what: String, remedy: &'static str },
    #[error(
        "an object is missing: this repository is a partial clone, and the git operations fetch nothing; have a person run \
         `git fetch --refetch --no-filter` on the host, or ask for changes and commits whose files are there"
    )]
    Missing,
    #[error(
        "an object is missing: this work tree's repository is shallow, and its history ends before the commits that were asked \
         for; ask for fewer, or have a person run `git fetch --unshallow` on the host"
    )]
    Shallow,
    #[error("the repository's index cannot be read: {0}")]
    DamagedIndex(String),
    #[error("the repository has no remote '{0}'; give the URL, which begins with https://")]
    NoRemote(String),
    #[error("the remote '{name}' cannot be used: {why}. Give a URL of the form https://HOST/PATH instead")]
    BadRemote { name: String, why: String },
    #[error("the remote has no '{0}'; fetch without references lists the branches that it has")]
    NotAtRemote(String),
    #[error(
        "the remote has {count} references, and one call fetches at most {most}; name those that are needed"
    )]
    TooManyRefs { count: usize, most: usize },
    #[error("HEAD is detached: name the branch")]
    NoBranch,
    #[error("'{0}' is no branch of this repository: name the reference of the remote, too")]
    NoBranchOf(String),
    #[error(
        "the branch and the remote's have diverged ({ahead} and {behind} commits), so nothing was changed; pull with the mode \
         merge makes a merge commit"
    )]
    Diverged { ahead: usize, behind: usize },
    #[error("the histories have no commit in common, so nothing was changed")]
    Unrelated,
    #[error(
        "the merge has conflicts in these files, so nothing was changed:\n{0}\nThe commits are here: change the files as the \
         remote has them, commit, and pull again."
    )]
    MergeConflicts(String),
    #[error(
        "these files have local changes and would be overwritten, so nothing was changed:\n{0}\nCommit them first."
    )]
    Overwrites(String),
    #[error("these are submodules, which are not supported here, so nothing was changed:\n{0}")]
    Submodules(String),
    #[error(
        "these are files of Git LFS, whose content is not transferred here, so nothing was changed:\n{0}"
    )]
    Lfs(String),
    #[error(
        "these files pass through a filter or an encoding, which does not run here, so nothing was changed:\n{0}"
    )]
    NotCheckedOut(String),
    #[error("'{path}' has {bytes} bytes; at most {most} can be written, so nothing was changed")]
    TooLargeToWrite { path: String, bytes: u64, most: u64 },
    #[error("the files that would be written have more than {most} bytes, so nothing was changed")]
    TooMuchToWrite { most: u64 },
    #[error(
        "another process moved the branch while the files were written; the files are those of {0}, and git status shows the \
         difference as changes"
    )]
    MovedAfterCheckout(String),
    #[error(
        "the push would lose commits of '{0}', so nothing was pushed; pull first, or push with force and its present id"
    )]
    NotFastForward(String),
    #[error(
        "the remote has the tag '{0}' with another id, so nothing was pushed; with force and its present id it is moved"
    )]
    TagExists(String),
    #[error("'{name}' {has} at the remote, which is not the expected id, so nothing was pushed")]
    Stale { name: String, has: String },
    #[error(
        "{0} of the repository changes the history that a push is shown by, so nothing was pushed; remove the file, or run \
         `git fetch --unshallow`, and push again"
    )]
    ChangedHistory(&'static str),
    #[error("two of the references are '{0}', so nothing was pushed")]
    PushedTwice(String),
    #[error("the remote's '{0}' moved meanwhile, so nothing was changed; try again")]
    MovedAtRemote(String),
    #[error("{0}")]
    Remote(#[source] RemoteError),
    #[error("{0}; some references may be pushed: check before trying again")]
    Push(#[source] RemoteError),
    #[error("the server refused:\n{refused}\n{done}")]
    PushRefused { refused: String, done: String },
    #[error("{0}")]
    Withheld(String),
    #[error("{}", .0.message)]
    Consent(ToolFailure),
    #[error("not enough memory for this repository")]
    Memory,
    #[error("git: {0}")]
    Library(String),
}

impl GitError {
    /// Converts the error of a push. Some references may be pushed, unless nothing was sent.
    pub(super) fn of_push(error: RemoteError) -> Self {
        match error {
            RemoteError::Grafted => Self::Remote(error),
            error => Self::Push(error),
        }
    }

    pub(super) fn before_effect(self, held_to: Option<&Held>) -> Self {
        match self {
            Self::Memory | Self::Locked(_) => self,
            error => Self::Consent(before_effect(held_to, error.into())),
        }
    }

    fn reason(&self) -> Reason {
        match self {
            Self::Redirected { .. } | Self::Forbidden(_) | Self::Protected(_) | Self::BeyondLink(_) => {
                Reason::SandboxViolation
            }
            Self::Withheld(_) => Reason::PermissionDenied,
            Self::NoMatch(_)
            | Self::NoRevision(_)
            | Self::NotInRevision { .. }
            | Self::NoRemote(_)
            | Self::NotAtRemote(_) => Reason::NotFound,
            Self::Remote(error) | Self::Push(error) => reason_of(error),
            Self::NoBranch
            | Self::NoBranchOf(_)
            | Self::PushedTwice(_)
            | Self::TooManyRefs { .. }
            | Self::BadRemote { .. }
            | Self::Flags(..)
            | Self::EmptyMessage
            | Self::NestedRepository(_)
            | Self::Ambiguous(_) => Reason::InvalidArgument,
            Self::TooLargeToShow { .. } => Reason::ReadLimit,
            Self::TooLarge { .. } | Self::TooLargeToWrite { .. } | Self::TooMuchToWrite { .. } => {
                Reason::WriteLimit
            }
            Self::NoRepository
            | Self::NotOwned
            | Self::NoCommits
            | Self::Ignored(_)
            | Self::Converted(_)
            | Self::Unsupported { .. }
            | Self::Missing
            | Self::NothingStaged
            | Self::InProgress(_)
            | Self::Conflicts(_)
            | Self::Locked(_)
            | Self::DamagedIndex(_)
            | Self::Memory
            | Self::Moved
            | Self::CheckedOut(_)
            | Self::Shallow
            | Self::Diverged { .. }
            | Self::Unrelated
            | Self::MergeConflicts(_)
            | Self::Overwrites(_)
            | Self::Submodules(_)
            | Self::Lfs(_)
            | Self::NotCheckedOut(_)
            | Self::MovedAfterCheckout(_)
            | Self::NotFastForward(_)
            | Self::TagExists(_)
            | Self::ChangedHistory(_)
            | Self::Stale { .. }
            | Self::MovedAtRemote(_)
            | Self::PushRefused { .. }
            | Self::Consent(_)
            | Self::Library(_) => Reason::PreconditionFailed,
        }
    }
}

impl From<git2::Error> for GitError {
    fn from(error: git2::Error) -> Self {
        match (error.code(), error.class()) {
            (ErrorCode::Locked, _) => Self::Locked(shown(error.message())),
            (ErrorCode::Owner, _) => Self::NotOwned,
            (_, ErrorClass::NoMemory) => Self::Memory,
            (_, ErrorClass::Index) => of_index(error.message()),
            _ => Self::Library(shown(error.message())),
        }
    }
}

impl From<GitError> for ToolFailure {
    fn from(error: GitError) -> Self {
        match error {
            GitError::Consent(failure) => failure,
            error => Self::new(error.reason(), error.to_string()),
        }
    }
}

/// Returns the reason of a call that failed at the server or on the way to it.
fn reason_of(error: &RemoteError) -> Reason {
    match error {
        RemoteError::Denied { .. } => Reason::PermissionDenied,
        RemoteError::NotFound { .. } | RemoteError::NoRef(_) => Reason::NotFound,
        RemoteError::TimedOut => Reason::TimedOut,
        RemoteError::TooMuch(_) => Reason::WriteLimit,
        _ => Reason::PreconditionFailed,
    }
}

/// Returns the error of an index that is damaged, or has a part that the library does not know.
fn of_index(message: &str) -> GitError {
    let is_part = message.contains("unsupported mandatory extension");
    let (what, remedy) = match message {
        _ if is_part && message.contains("'sdir'") => (
            "a sparse index",
            "run `git sparse-checkout reapply --no-sparse-index` (or `git sparse-checkout disable`)",
        ),
        _ if is_part && message.contains("'link'") => {
            ("a split index", "run `git update-index --no-split-index`, and unset core.splitIndex")
        }
        _ if is_part => ("an index of a newer git", "run `git read-tree HEAD` with an older one"),
        _ => return GitError::DamagedIndex(shown(message)),
    };
    GitError::Unsupported { what: what.to_owned(), remedy }
}

/// Returns libgit2's message, which may quote anything from the repository, as one short line.
pub(super) fn shown(message: &str) -> String {
    excerpt_of(
        &message.replace("/workspace", "@project").replace("/repository", "the repository"),
        Shape::Line,
        400,
    )
}
