//! What can go wrong once a path is well-formed. One table turns an errno into a kind.
//!
//! The text is meant for an agent: it names the place as the agent knows it, never a host path.

use std::io;

use rustix::io::Errno;
use thiserror::Error;

use crate::meta::FileKind;
use crate::refusal::PathRefusal;

/// Something beneath a mount could not be opened, listed or written.
#[derive(Debug, Error)]
#[error("{path}: {kind}")]
pub struct OpenError {
    /// The place, in the form that agents use.
    pub path: String,
    #[source]
    pub kind: OpenErrorKind,
}

/// What happened at a place.
#[derive(Debug, Error)]
pub enum OpenErrorKind {
    /// Nothing is there, or a link points to nothing.
    #[error("no such file or directory")]
    NotFound,
    /// A component that should be a directory is none.
    #[error("not a directory")]
    NotADirectory,
    /// A file was asked for.
    #[error("is a directory")]
    IsADirectory,
    /// A FIFO, socket or device.
    #[error("not a regular file: {0}")]
    NotRegular(FileKind),
    /// Following it would leave the mount.
    #[error("a symlink that leaves its mount (absolute links count)")]
    Escapes,
    /// Writing does not follow links, nor do walks by name.
    #[error("a symlink is in the path and is not followed here")]
    Symlink,
    /// Links that lead to each other, or too many of them.
    #[error("too many levels of symlinks")]
    LinkLoop,
    /// Another file system is mounted there.
    #[error("another mount point, which no path may cross")]
    MountPoint,
    /// The links on the way lead to a name that cannot be written as a path.
    #[error("a symlink to a name that no path can express")]
    Inexpressible,
    #[error("permission denied")]
    PermissionDenied,
    /// The name exists already.
    #[error("already exists")]
    Exists,
    /// More than the file system takes.
    #[error("the name is too long for its file system")]
    NameTooLong,
    /// The mount or its file system is read-only.
    #[error("read-only file system")]
    ReadOnly,
    /// Space, quota or file-size limit.
    #[error("no space left (disk, quota or size limit)")]
    NoSpace,
    /// The run's private directory took no note of it, so that it would not be found after a crash.
    #[error("not begun, since the daemon's own storage (its state_dir) takes no note of it: {0}")]
    Unnoted(#[source] io::Error),
    /// Somebody changed the directories on the way faster than they could be walked.
    #[error("the path kept changing while it was resolved; try again")]
    TooManyRetries,
    #[error("{0}")]
    Io(#[source] io::Error),
}

impl OpenErrorKind {
    /// Whether this is an attempt to leave the mount or to use what is no file, rather than a mere failure.
    pub const fn is_violation(&self) -> bool {
        matches!(
            self,
            Self::NotRegular(_) | Self::Escapes | Self::Symlink | Self::LinkLoop | Self::MountPoint
        )
    }
}

impl From<Errno> for OpenErrorKind {
    /// For opens that go without links: there `ELOOP` can only be a link on the way, and `EXDEV` only a mount.
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT => Self::NotFound,
            Errno::NOTDIR => Self::NotADirectory,
            Errno::ISDIR => Self::IsADirectory,
            Errno::LOOP => Self::Symlink,
            Errno::XDEV | Errno::BUSY => Self::MountPoint,
            Errno::ACCESS | Errno::PERM => Self::PermissionDenied,
            Errno::EXIST | Errno::NOTEMPTY => Self::Exists,
            Errno::NAMETOOLONG => Self::NameTooLong,
            Errno::ROFS => Self::ReadOnly,
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Self::NoSpace,
            Errno::AGAIN => Self::TooManyRetries,
            other => Self::Io(other.into()),
        }
    }
}

impl OpenError {
    pub(crate) fn new(path: impl Into<String>, kind: impl Into<OpenErrorKind>) -> Self {
        Self { path: path.into(), kind: kind.into() }
    }
}

/// A place was refused, or could not be opened.
#[derive(Debug, Error)]
pub enum AccessError {
    /// The path, or one that a symlink leads through, is not permitted.
    #[error(transparent)]
    Refused(#[from] PathRefusal),
    /// It is permitted, but did not work.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// A file or directory was not removed. Unless it says otherwise, it is still there.
#[derive(Debug, Error)]
pub enum RemoveError {
    /// The directory or the name in it gave an error.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A directory with something in it.
    #[error("{path}: the directory is not empty")]
    NotEmpty { path: String },
    /// It is no longer what it was at the look.
    #[error("{path}: changed by someone else in the meantime")]
    Changed { path: String },
    /// It *was* removed, but may be there again after a power loss.
    #[error("{path}: removed, but its directory could not be synced")]
    NotDurable {
        path: String,
        /// What the sync said.
        #[source]
        source: io::Error,
    },
}

/// A file was not written. Unless it says otherwise, nothing has changed and nothing remains but directories
/// that were made on the way.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The directory or a file in it gave an error.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It was to be created, and exists.
    #[error("{path}: already exists")]
    Exists { path: String },
    /// It is no longer what it was when the write began.
    #[error("{path}: changed by someone else in the meantime")]
    Changed { path: String },
    /// Something else took the place of the temporary file.
    #[error("{path}: its directory was interfered with during the write")]
    Interfered { path: String },
    /// The file *was* replaced, but may be the old one again after a power loss.
    #[error("{path}: written, but its directory could not be synced")]
    NotDurable {
        path: String,
        /// What the sync said.
        #[source]
        source: io::Error,
    },
}
