//! The 512 bytes of a header: read strictly, and written in one way.
//!
//! Readers of tars disagree about unusual headers. So unusual headers are refused, and no byte that was read is copied to the output.

use std::ops::Range;

use super::BadTar;

pub(super) const BLOCK: usize = 512;

const NAME: Range<usize> = 0..100;
const MODE: Range<usize> = 100..108;
const UID: Range<usize> = 108..116;
const GID: Range<usize> = 116..124;
const SIZE: Range<usize> = 124..136;
const MODIFIED: Range<usize> = 136..148;
const CHECKSUM: Range<usize> = 148..156;
const FLAG: usize = 156;
const LINK: Range<usize> = 157..257;
const MAGIC: Range<usize> = 257..265;
const USER: Range<usize> = 265..297;
const GROUP: Range<usize> = 297..329;
const MAJOR: Range<usize> = 329..337;
const MINOR: Range<usize> = 337..345;
const PREFIX: Range<usize> = 345..500;
/// Unused in a POSIX header. Other formats have further fields here.
const REST: Range<usize> = 500..512;

const USTAR: &[u8] = b"ustar\x0000";
const GNU: &[u8] = b"ustar  \0";
/// Largest numbers that fit as octal digits.
pub(super) const MAX_SHORT: u64 = 0o7_777_777;
pub(super) const MAX_LONG: u64 = 0o77_777_777_777;

/// The fields of a header.
#[derive(Debug, Default)]
pub(super) struct Fields {
    pub(super) is_gnu: bool,
    pub(super) flag: u8,
    pub(super) name: Vec<u8>,
    pub(super) prefix: Vec<u8>,
    pub(super) link: Vec<u8>,
    pub(super) mode: u64,
    pub(super) uid: u64,
    pub(super) gid: u64,
    pub(super) size: u64,
    pub(super) modified: u64,
    pub(super) user: Vec<u8>,
    pub(super) group: Vec<u8>,
    /// Major and minor number. `None`: both fields are empty.
    pub(super) device: Option<(u64, u64)>,
}

/// Returns true if a tar begins with this block: zeros, or a header with the right checksum.
pub(super) fn is_header(block: &[u8]) -> bool {
    block.len() == BLOCK && (block.iter().all(|byte| *byte == 0) || is_summed(block))
}

impl Fields {
    pub(super) fn read(block: &[u8; BLOCK]) -> Result<Self, BadTar> {
        if !is_summed(block) {
            return Err(BadTar::NoTar("the checksum of a header is wrong"));
        }
        let is_gnu = match &block[MAGIC] {
            USTAR => false,
            GNU => true,
            _ => {
                return Err(BadTar::NoTar(
                    "a header is neither POSIX's nor GNU's: pack it as ustar, pax or gnu",
                ));
            }
        };
        let rest = if is_gnu { PREFIX.start..BLOCK } else { REST };
        if block[rest].iter().any(|byte| *byte != 0) {
            return Err(BadTar::NoTar("a header has more fields than its format allows"));
        }
        let number = |field: Range<usize>, what| number(&block[field], is_gnu).ok_or(BadTar::NoTar(what));
        Ok(Self {
            is_gnu,
            flag: block[FLAG],
            name: text(&block[NAME]),
            prefix: if is_gnu { Vec::new() } else { text(&block[PREFIX]) },
            link: text(&block[LINK]),
            mode: number(MODE, "a header has an invalid mode")?,
            uid: number(UID, "a header has an invalid user")?,
            gid: number(GID, "a header has an invalid group")?,
            size: number(SIZE, "a header has an invalid size")?,
            modified: number(MODIFIED, "a header has an invalid time")?,
            user: text(&block[USER]),
            group: text(&block[GROUP]),
            device: match &block[MAJOR.start..MINOR.end] {
                empty if empty.iter().all(|byte| *byte == 0) => None,
                _ => Some((
                    number(MAJOR, "a header has an invalid device number")?,
                    number(MINOR, "a header has an invalid device number")?,
                )),
            },
        })
    }

    /// Writes the header. `None` if a field does not fit.
    pub(super) fn write(&self) -> Option<[u8; BLOCK]> {
        let mut block = [0; BLOCK];
        put(&mut block[NAME], &self.name)?;
        put(&mut block[LINK], &self.link)?;
        put(&mut block[MAGIC], if self.is_gnu { GNU } else { USTAR })?;
        put(&mut block[USER], &self.user)?;
        put(&mut block[GROUP], &self.group)?;
        put(&mut block[PREFIX], &self.prefix)?;
        block[FLAG] = self.flag;
        let numbers = [
            (MODE, self.mode),
            (UID, self.uid),
            (GID, self.gid),
            (SIZE, self.size),
            (MODIFIED, self.modified),
        ];
        for (field, value) in numbers {
            put_number(&mut block[field], value, self.is_gnu)?;
        }
        if let Some((major, minor)) = self.device {
            put_number(&mut block[MAJOR], major, self.is_gnu)?;
            put_number(&mut block[MINOR], minor, self.is_gnu)?;
        }
        let sum = format!("{:06o}\0 ", sum(&block));
        put(&mut block[CHECKSUM], sum.as_bytes())?;
        Some(block)
    }
}

fn is_summed(block: &[u8]) -> bool {
    number(&block[CHECKSUM], false) == Some(u64::from(sum(block)))
}

/// Returns the sum of all bytes, in which the checksum itself counts as spaces.
fn sum(block: &[u8]) -> u32 {
    let bytes = block.iter().enumerate();
    bytes.map(|(at, byte)| u32::from(if CHECKSUM.contains(&at) { b' ' } else { *byte })).sum()
}

/// Returns a text that ends with its field or before a zero.
fn text(field: &[u8]) -> Vec<u8> {
    field.split(|byte| *byte == 0).next().unwrap_or_default().to_vec()
}

/// Parses octal digits after spaces and before zeros and spaces, or a binary number of GNU. A field without digits is zero.
fn number(field: &[u8], may_be_binary: bool) -> Option<u64> {
    let (first, rest) = field.split_first()?;
    if *first == 0x80 && may_be_binary {
        return rest
            .iter()
            .try_fold(0_u64, |number, byte| number.checked_mul(256).map(|number| number | u64::from(*byte)));
    }
    let digits = field.trim_ascii_start();
    let length = digits.iter().take_while(|byte| matches!(byte, b'0'..=b'7')).count();
    let (digits, after) = digits.split_at(length);
    if after.iter().any(|byte| !matches!(byte, 0 | b' ')) {
        return None;
    }
    Some(digits.iter().fold(0, |number, digit| number * 8 + u64::from(digit - b'0')))
}

fn put(field: &mut [u8], bytes: &[u8]) -> Option<()> {
    field.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(())
}

fn put_number(field: &mut [u8], value: u64, may_be_binary: bool) -> Option<()> {
    let digits = field.len() - 1;
    let octal = format!("{value:0digits$o}");
    if octal.len() <= digits {
        return put(field, octal.as_bytes());
    }
    let bytes = value.to_be_bytes();
    let (mark, number) = field.split_first_mut()?;
    let unused = number.len().checked_sub(bytes.len());
    match unused {
        _ if !may_be_binary => return None,
        Some(unused) => number.get_mut(unused..)?.copy_from_slice(&bytes),
        None => {
            let (high, low) = bytes.split_at(bytes.len() - number.len());
            if high.iter().any(|byte| *byte != 0) {
                return None;
            }
            number.copy_from_slice(low);
        }
    }
    *mark = 0x80;
    Some(())
}
