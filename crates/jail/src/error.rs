//! Errors for well-formed paths. One table turns an errno into a kind.
//!
//! The text is for an agent: it names the path as the agent knows it, never a host path.

use std::io;

use rustix::io::Errno;
use thiserror::Error;

use crate::meta::FileKind;
use crate::refusal::PathRefusal;

/// A file or directory beneath a mount could not be opened, listed or written.
#[derive(Debug, Error)]
#[error("{path}: {kind}")]
pub struct OpenError {
    /// The path, in the form that agents use.
    pub path: String,
    #[source]
    pub kind: OpenErrorKind,
}

/// Kind of an error at a path.
#[derive(Debug, Error)]
pub enum OpenErrorKind {
    /// The file does not exist, or a link has no target.
    #[error("no such file or directory")]
    NotFound,
    /// A component that should be a directory is not one.
    #[error("not a directory")]
    NotADirectory,
    /// A directory, where the caller expects a file.
    #[error("is a directory")]
    IsADirectory,
    /// A FIFO, socket or device.
    #[error("not a regular file: {0}")]
    NotRegular(FileKind),
    /// A link whose target is outside the mount.
    #[error("a symlink that leaves its mount (absolute links count)")]
    Escapes,
    /// A link in the path. Writes do not follow links, and walks by name do not either.
    #[error("a symlink is in the path and is not followed here")]
    Symlink,
    /// A loop of links, or too many of them.
    #[error("too many levels of symlinks")]
    LinkLoop,
    /// A directory on which another file system is mounted.
    #[error("another mount point, which no path may cross")]
    MountPoint,
    /// The links in the path lead to a name that no path can express.
    #[error("a symlink to a name that no path can express")]
    Inexpressible,
    #[error("permission denied")]
    PermissionDenied,
    /// The name exists already.
    #[error("already exists")]
    Exists,
    /// The name is longer than the file system allows.
    #[error("the name is too long for its file system")]
    NameTooLong,
    /// The mount or its file system is read-only.
    #[error("read-only file system")]
    ReadOnly,
    /// No space, or a quota or file-size limit was reached.
    #[error("no space left (disk, quota or size limit)")]
    NoSpace,
    /// The run's private directory could not store a note of the file, which would not be found after a crash.
    #[error("not started, because the daemon could not write its recovery note (in state_dir): {0}")]
    Unnoted(#[source] io::Error),
    /// The directories in the path changed faster than they could be walked.
    #[error("the path kept changing while it was resolved; try again")]
    TooManyRetries,
    #[error("{0}")]
    Io(#[source] io::Error),
}

impl OpenErrorKind {
    /// Returns true for an attempt to leave the mount or to use a special file, false for a mere failure.
    pub const fn is_violation(&self) -> bool {
        matches!(
            self,
            Self::NotRegular(_) | Self::Escapes | Self::Symlink | Self::LinkLoop | Self::MountPoint
        )
    }
}

impl From<Errno> for OpenErrorKind {
    /// Converts the errno of an open that follows no links: `ELOOP` then means a link in the path, and `EXDEV` a mount.
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

/// A path was refused, or could not be opened.
#[derive(Debug, Error)]
pub enum AccessError {
    /// The path, or one that a symlink leads through, is not permitted.
    #[error(transparent)]
    Refused(#[from] PathRefusal),
    /// The path is permitted, but opening it failed.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// A file or directory was not removed. It still exists, unless the variant says otherwise.
#[derive(Debug, Error)]
pub enum RemoveError {
    /// The directory or the name in it gave an error.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The directory is not empty.
    #[error("{path}: the directory is not empty")]
    NotEmpty { path: String },
    /// The file changed after it was examined.
    #[error("{path}: changed by another process in the meantime")]
    Changed { path: String },
    /// The file *was* removed, but may reappear after a power loss.
    #[error("{path}: removed, but its directory could not be synced")]
    NotDurable {
        path: String,
        /// Error of the sync.
        #[source]
        source: io::Error,
    },
}

/// A file was not written.
///
/// Unless the variant says otherwise, nothing has changed, except that directories on the path may have been made.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The directory or a file in it gave an error.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The file was meant to be new, and exists.
    #[error("{path}: already exists")]
    Exists { path: String },
    /// The file changed after the write began.
    #[error("{path}: changed by another process in the meantime")]
    Changed { path: String },
    /// Another file has the name of the temporary file.
    #[error("{path}: another process changed its directory during the write")]
    Interfered { path: String },
    /// The file *was* replaced, but may have its old content again after a power loss.
    #[error("{path}: written, but its directory could not be synced")]
    NotDurable {
        path: String,
        /// Error of the sync.
        #[source]
        source: io::Error,
    },
}
