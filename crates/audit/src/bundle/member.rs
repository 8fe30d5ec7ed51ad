//! The members of a bundle. Short contents are in memory and long ones in files, so that a bundle of a long run needs little memory.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::FileExt as _;

use sha2::{Digest as _, Sha256};

use crate::hash::Hash;

/// A member's content, with its size and SHA-256.
#[derive(Debug)]
pub struct Member {
    pub(super) bytes: u64,
    pub(super) sha256: Hash,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Memory(Vec<u8>),
    File(File),
}

impl Member {
    pub fn of(content: Vec<u8>) -> Self {
        Self { bytes: content.len() as u64, sha256: Hash::of(&content), content: Content::Memory(content) }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn sha256(&self) -> Hash {
        self.sha256
    }

    /// Returns at most `most` bytes from `offset` on, or none at the end.
    pub fn piece(&self, offset: u64, most: usize) -> io::Result<Vec<u8>> {
        let mut piece = Vec::new();
        Reader { member: self, offset }.take(most as u64).read_to_end(&mut piece)?;
        Ok(piece)
    }

    /// Returns a reader of the whole content.
    pub(super) fn reader(&self) -> impl Read + '_ {
        Reader { member: self, offset: 0 }
    }
}

struct Reader<'a> {
    member: &'a Member,
    offset: u64,
}

impl Read for Reader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = match &self.member.content {
            Content::Memory(content) => {
                let offset = usize::try_from(self.offset).unwrap_or(usize::MAX);
                content.get(offset..).unwrap_or_default().read(buffer)?
            }
            Content::File(file) => file.read_at(buffer, self.offset)?,
        };
        self.offset += count as u64;
        Ok(count)
    }
}

/// Writes a member's content into a file, which needs no name.
#[derive(Debug)]
pub struct MemberWriter {
    file: BufWriter<File>,
    sha256: Sha256,
    bytes: u64,
}

impl MemberWriter {
    /// Creates a writer into this empty file, which must be open for reading as well.
    pub fn new(file: File) -> Self {
        Self { file: BufWriter::new(file), sha256: Sha256::new(), bytes: 0 }
    }

    /// Returns the number of bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn finish(self) -> io::Result<Member> {
        let file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        let sha256 = Hash::from_bytes(self.sha256.finalize().into());
        Ok(Member { bytes: self.bytes, sha256, content: Content::File(file) })
    }
}

impl Write for MemberWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.sha256.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
