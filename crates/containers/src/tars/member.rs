//! A parsed member of a tar.

use super::BadTar;
use super::pax::Records;

/// Kinds of members that a tar for the engine may contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    HardLink,
    Symlink,
    CharDevice,
    BlockDevice,
    Directory,
    Fifo,
}

impl Kind {
    /// Parses the type flag of a header.
    pub(super) fn of(flag: u8) -> Option<Self> {
        Some(match flag {
            // The old flag of a file, and the flag of a contiguous file.
            0 | b'0' | b'7' => Self::File,
            b'1' => Self::HardLink,
            b'2' => Self::Symlink,
            b'3' => Self::CharDevice,
            b'4' => Self::BlockDevice,
            b'5' => Self::Directory,
            b'6' => Self::Fifo,
            _ => return None,
        })
    }

    pub(super) fn flag(self) -> u8 {
        match self {
            Self::File => b'0',
            Self::HardLink => b'1',
            Self::Symlink => b'2',
            Self::CharDevice => b'3',
            Self::BlockDevice => b'4',
            Self::Directory => b'5',
            Self::Fifo => b'6',
        }
    }

    /// Returns the type bits that some writers add to a mode.
    pub(super) fn mode_bits(self) -> u64 {
        match self {
            Self::File | Self::HardLink => 0o100_000,
            Self::Symlink => 0o120_000,
            Self::CharDevice => 0o020_000,
            Self::BlockDevice => 0o060_000,
            Self::Directory => 0o040_000,
            Self::Fifo => 0o010_000,
        }
    }

    pub(super) fn is_link(self) -> bool {
        matches!(self, Self::HardLink | Self::Symlink)
    }

    pub(super) fn is_device(self) -> bool {
        matches!(self, Self::CharDevice | Self::BlockDevice)
    }
}

/// Format in which a member stores values that do not fit into a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Only the header, with a prefix of the name.
    Ustar,
    /// Separate members for a long name and a long link, and binary numbers.
    Gnu,
    /// An extended header.
    Pax,
}

/// A member of a tar. Its header is written anew only from these fields.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) form: Form,
    pub(super) name: Vec<u8>,
    /// Target, if it is a link.
    pub(super) link: Option<Vec<u8>>,
    pub(super) kind: Kind,
    /// Size of the content in bytes.
    pub(super) size: u64,
    pub(super) mode: u64,
    pub(super) uid: u64,
    pub(super) gid: u64,
    /// Time of modification, in seconds since 1970.
    pub(super) modified: u64,
    pub(super) user: Vec<u8>,
    pub(super) group: Vec<u8>,
    /// Major and minor number: zeros, or `None` as in its header, unless it is a device.
    pub(super) device: Option<(u64, u64)>,
    /// Records of its extended header.
    pub(super) records: Records,
}

impl Member {
    /// Returns the name for a message, bounded and on one line.
    pub(super) fn shown(&self) -> String {
        shown(&self.name)
    }

    pub(super) fn refused(&self, why: &'static str) -> BadTar {
        refused(&self.name, why)
    }
}

/// Returns the refusal of the member with this name.
pub(super) fn refused(name: &[u8], why: &'static str) -> BadTar {
    BadTar::Member { name: shown(name), why }
}

fn shown(name: &[u8]) -> String {
    text::excerpt(&String::from_utf8_lossy(name))
}
