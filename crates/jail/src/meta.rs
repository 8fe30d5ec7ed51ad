//! Metadata of files.

use std::fmt;
use std::fs::File;

use rustix::fs::{FileType, Stat};

/// Kind of the file that a name refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    File,
    Directory,
    /// A symbolic link itself, not its target.
    Symlink,
    Fifo,
    Socket,
    /// A character or block device.
    Device,
    /// A kind that the kernel knows and this program does not.
    Other,
}

impl From<FileType> for FileKind {
    fn from(kind: FileType) -> Self {
        match kind {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Symlink,
            FileType::Fifo => Self::Fifo,
            FileType::Socket => Self::Socket,
            FileType::CharacterDevice | FileType::BlockDevice => Self::Device,
            FileType::Unknown => Self::Other,
        }
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File => "file",
            Self::Directory => "directory",
            Self::Symlink => "symlink",
            Self::Fifo => "fifo",
            Self::Socket => "socket",
            Self::Device => "device",
            Self::Other => "special file",
        })
    }
}

/// A file's metadata at one moment.
///
/// If two values are equal, the file was not written in between, as far as the file system's clock can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata {
    pub kind: FileKind,
    /// Length of the content in bytes.
    pub size: u64,
    /// Permission bits, `0o7777` at most.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Number of names of the file.
    pub links: u64,
    /// Last change of the content: seconds since 1970 and nanoseconds.
    pub modified: (i64, u32),
    /// Last change of content or metadata. No program can set it.
    pub changed: (i64, u32),
    /// Device and inode: the file's identity.
    pub identity: (u64, u64),
}

impl Metadata {
    pub(crate) fn new(stat: &Stat) -> Self {
        // The widths of these fields differ between architectures.
        let nanos = |nanos| u32::try_from(nanos).unwrap_or(0);
        #[allow(clippy::useless_conversion)] // 32 bits on aarch64
        let links = u64::from(stat.st_nlink);
        Self {
            kind: FileType::from_raw_mode(stat.st_mode).into(),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            links,
            modified: (stat.st_mtime, nanos(stat.st_mtime_nsec)),
            changed: (stat.st_ctime, nanos(stat.st_ctime_nsec)),
            identity: (stat.st_dev, stat.st_ino),
        }
    }
}

/// A regular file, open for reading. Only a regular file passes the check after the open.
#[derive(Debug)]
pub struct RegularFile {
    /// The open file. It is in non-blocking mode, which has no effect on a regular file.
    pub file: File,
    /// Taken from the open file, not from its name.
    pub meta: Metadata,
}
