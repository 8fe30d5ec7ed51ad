//! Walks through a tar by its headers, in bounded memory.

use std::io::{self, Read};

use tar::{EntryType, Header};

use super::BadTar;
use super::member::{Extension, Member};

pub(super) const BLOCK: usize = 512;
/// Bytes of one extension, such as a long name.
const MAX_EXTENSION: u64 = 1 << 20;
/// Bytes of all headers of one member.
const MAX_HEADERS: usize = 4 << 20;
/// Members of one tar.
const MAX_MEMBERS: u64 = 4_000_000;

/// Whether a tar has to say where it ends. Without that a cut is not noticed where a member begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Said,
    /// A layer within an archive, whose length is said by its member. It may be empty.
    Known,
}

pub(super) struct Walk<R> {
    input: R,
    end: End,
    members: u64,
    /// Bytes of the member that is at hand, and of what fills its last block.
    left: u64,
    filling: u64,
}

/// A member, and its headers as they were written.
pub(super) struct Found {
    pub(super) member: Member,
    pub(super) headers: Vec<u8>,
}

impl<R: Read> Walk<R> {
    pub(super) fn new(input: R, end: End) -> Self {
        Self { input, end, members: 0, left: 0, filling: 0 }
    }

    /// The next member, once the content of the last one was read. `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Found>, BadTar> {
        let mut extension = Extension::default();
        let mut headers = Vec::new();
        loop {
            let Some(block) = self.block(headers.is_empty())? else { return Ok(None) };
            let header = Header::from_byte_slice(&block);
            let size = checked(header)?;
            headers.extend_from_slice(&block);
            if headers.len() > MAX_HEADERS {
                return Err(BadTar::NoTar("a member has headers of more than 4 MiB"));
            }
            match header.entry_type() {
                kind @ (EntryType::GNULongName | EntryType::GNULongLink) => {
                    extension.long(kind, &self.extension(size, &mut headers)?);
                }
                EntryType::XHeader => extension.pax(&self.extension(size, &mut headers)?)?,
                // What holds for all members that follow is a comment, as git writes it.
                EntryType::XGlobalHeader => {
                    let mut global = Extension::default();
                    global.pax(&self.extension(size, &mut headers)?)?;
                    if !global.is_empty() {
                        return Err(BadTar::NoTar("a global header renames or resizes members"));
                    }
                }
                _ => {
                    let member = extension.describe(header)?;
                    self.members += 1;
                    if self.members > MAX_MEMBERS {
                        return Err(member.refused("is one member too many"));
                    }
                    self.left = member.size;
                    self.filling = filling(member.size);
                    return Ok(Some(Found { member, headers }));
                }
            }
        }
    }

    /// The content of the member that is at hand.
    pub(super) fn content(&mut self) -> Content<'_, R> {
        Content(self)
    }

    /// Reads past what fills the last block of a member whose content was read.
    pub(super) fn finish(&mut self, member: &Member) -> Result<(), BadTar> {
        let wanted = self.left.saturating_add(self.filling);
        let read = io::copy(&mut (&mut self.input).take(wanted), &mut io::sink())?;
        (self.left, self.filling) = (0, 0);
        if read == wanted { Ok(()) } else { Err(BadTar::Cut(member.shown())) }
    }

    /// Reads to the end of the input, whatever follows the end of the tar.
    pub(super) fn drain(&mut self) -> Result<(), BadTar> {
        io::copy(&mut self.input, &mut io::sink())?;
        Ok(())
    }

    fn block(&mut self, may_end: bool) -> Result<Option<[u8; BLOCK]>, BadTar> {
        let mut block = [0; BLOCK];
        let mut have = 0;
        while have < BLOCK {
            match self.input.read(&mut block[have..])? {
                0 => break,
                count => have += count,
            }
        }
        match have {
            0 if may_end && self.end == End::Known => Ok(None),
            0 if self.members > 0 => Err(BadTar::Cut("its members".to_owned())),
            0 => Err(BadTar::NoTar("it is empty")),
            BLOCK if block.iter().all(|byte| *byte == 0) => {
                let is_empty = self.members == 0 && self.end == End::Said;
                if is_empty { Err(BadTar::NoTar("it has no members")) } else { Ok(None) }
            }
            BLOCK => Ok(Some(block)),
            _ => Err(BadTar::Cut("a header".to_owned())),
        }
    }

    fn extension(&mut self, size: u64, headers: &mut Vec<u8>) -> Result<Vec<u8>, BadTar> {
        if size > MAX_EXTENSION {
            return Err(BadTar::NoTar("a name or a pax header is longer than 1 MiB"));
        }
        let whole = size + filling(size);
        let mut content = Vec::new();
        (&mut self.input).take(whole).read_to_end(&mut content)?;
        if content.len() as u64 != whole {
            return Err(BadTar::Cut("a name or a pax header".to_owned()));
        }
        headers.extend_from_slice(&content);
        content.truncate(usize::try_from(size).unwrap_or(usize::MAX));
        Ok(content)
    }
}

/// Bytes of one member, to its end.
pub(super) struct Content<'w, R>(&'w mut Walk<R>);

impl<R: Read> Read for Content<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.0.left).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let count = self.0.input.read(&mut buffer[..most])?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.0.left -= count as u64;
        Ok(count)
    }
}

fn filling(size: u64) -> u64 {
    size.wrapping_neg() % BLOCK as u64
}

/// The size that a header names, if its checksum is right.
fn checked(header: &Header) -> Result<u64, BadTar> {
    let bytes = header.as_bytes();
    let sum: u32 = bytes
        .iter()
        .enumerate()
        .map(|(at, byte)| {
            // The checksum itself counts as spaces.
            u32::from(if (148..156).contains(&at) { b' ' } else { *byte })
        })
        .sum();
    match header.cksum() {
        Ok(told) if told == sum => {}
        _ => return Err(BadTar::NoTar("the checksum of a header is wrong")),
    }
    header.entry_size().map_err(|_| BadTar::NoTar("a header has a size that is none"))
}
