//! One entry of the index.

use std::ops::Range;

use git2::Oid;

/// Bytes in front of a name, without the second flags.
const FIXED: usize = 62;
/// No entry has fewer bytes.
pub(super) const SMALLEST: usize = FIXED + 1;

const ASSUMED_VALID: u16 = 0x8000;
const EXTENDED: u16 = 0x4000;
const SKIPPED: u16 = 0x4000;
const INTENDED: u16 = 0x2000;

/// Seconds and nanoseconds, as far as the index keeps them.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) struct Time {
    seconds: u32,
    nanos: u32,
}

impl Time {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // the index has the lower 32 bits
    pub(in super::super) fn new(seconds: i64, nanos: i64) -> Self {
        Self { seconds: seconds as u32, nanos: nanos as u32 }
    }

    /// Equal as far as both are known: some programs write no nanoseconds.
    pub(in super::super) fn agrees(self, other: Self) -> bool {
        self.seconds == other.seconds && (self.nanos == other.nanos || self.nanos == 0 || other.nanos == 0)
    }

    /// Whether a file of this time may have been changed after an index of the `other` time without showing it.
    pub(in super::super) fn may_follow(self, other: Self) -> bool {
        if self.nanos == 0 || other.nanos == 0 { self.seconds >= other.seconds } else { self >= other }
    }
}

/// What the index says of a path.
#[derive(Debug, Clone)]
pub(in super::super) struct Entry {
    /// Where its name is among all names.
    pub(super) name: Range<u32>,
    pub(in super::super) id: Oid,
    /// Type and permission bits, such as `0o100644`.
    pub(in super::super) mode: u32,
    /// 0, or the side of a conflict: 1 the ancestor, 2 ours, 3 theirs.
    pub(in super::super) stage: u8,
    /// Only announced: the content is not staged.
    pub(in super::super) is_intended: bool,
    /// Not looked at: assumed to be unchanged, or out of a sparse checkout.
    pub(in super::super) is_skipped: bool,
    /// Of the file when it was last known to have this content.
    pub(in super::super) changed: Time,
    pub(in super::super) modified: Time,
    pub(in super::super) inode: u32,
    /// Its lower 32 bits.
    pub(in super::super) size: u32,
}

/// An entry, and its bytes in the file.
pub(super) struct Read {
    pub(super) entry: Entry,
    pub(super) length: usize,
}

/// Reads the entry at the front of `bytes`; its name goes to the end of `names`.
pub(super) fn read(
    bytes: &[u8],
    version: u32,
    before: &[Entry],
    names: &mut Vec<u8>,
) -> Result<Read, &'static str> {
    const CUT: &str = "an entry is cut";
    let fixed: &[u8; FIXED] = bytes.first_chunk().ok_or(CUT)?;
    let word = |at| number(fixed, at).unwrap_or_default();
    let flags = u16::from_be_bytes([fixed[60], fixed[61]]);
    let (mut more, mut at) = (0, FIXED);
    if flags & EXTENDED != 0 && version >= 3 {
        let second: &[u8; 2] = bytes.get(at..).and_then(<[u8]>::first_chunk).ok_or(CUT)?;
        more = u16::from_be_bytes(*second);
        at += 2;
    }
    let start = names.len();
    if version >= 4 {
        let (strip, length) = strip_length(&bytes[at..]).ok_or(CUT)?;
        at += length;
        let last = before.last().map_or(0..0, |last| last.name.start as usize..last.name.end as usize);
        let kept = last.len().checked_sub(strip).ok_or("a name is no continuation of the last")?;
        names.extend_from_within(last.start..last.start + kept);
    }
    let rest = &bytes[at..];
    // Names up to 4,094 bytes have their length in the flags.
    let known = usize::from(flags & 0xfff);
    let length = if version < 4 && known < 0xfff && rest.get(known) == Some(&0) {
        known
    } else {
        rest.iter().position(|byte| *byte == 0).ok_or(CUT)?
    };
    names.extend_from_slice(&rest[..length]);
    at += length;
    // Up to version 3 an entry ends with one to eight zeros, at a multiple of eight.
    at = if version >= 4 { at + 1 } else { (at + 8) & !7 };
    let end = |at: usize| u32::try_from(at).map_err(|_| "it is too large");
    let entry = Entry {
        name: end(start)?..end(names.len())?,
        id: Oid::from_bytes(&fixed[40..60]).map_err(|_| CUT)?,
        mode: word(24),
        stage: ((flags >> 12) & 3) as u8,
        is_intended: more & INTENDED != 0,
        is_skipped: flags & ASSUMED_VALID != 0 || more & SKIPPED != 0,
        changed: Time { seconds: word(0), nanos: word(4) },
        modified: Time { seconds: word(8), nanos: word(12) },
        inode: word(20),
        size: word(36),
    };
    Ok(Read { entry, length: at })
}

/// Four bytes, the highest first.
pub(super) fn number(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_be_bytes)
}

/// Bytes to take off the last name, and the length of that number.
fn strip_length(bytes: &[u8]) -> Option<(usize, usize)> {
    const MOST: usize = 5;
    let mut value = 0_usize;
    for (index, byte) in bytes.iter().take(MOST).enumerate() {
        value = value << 7 | usize::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some((value, index + 1));
        }
        value += 1;
    }
    None
}
