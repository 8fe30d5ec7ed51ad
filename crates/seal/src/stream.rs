//! Streams in files: appended to in any portions, read from any offset, cut into pieces that are sealed each by itself.
//!
//! ```text
//! ┌─────────┬──────┬───────┬────────────────────┬─────┐  one piece: a block of the disk
//! │ version │ last │ nonce │ ciphertext ≤ PIECE │ tag │  associated: version, last, number, context
//! └─────────┴──────┴───────┴────────────────────┴─────┘
//! ```
//!
//! The construction is STREAM (Hoang, Reyhanitabar, Rogaway, Vizár 2015) with a random nonce of 192 bits for each piece in
//! place of a counter: the tail of a stream is sealed again whenever it grows, also after a restart, so that a counter
//! could come back. All pieces but the tail are full. The tail has the mark `last` after [`StreamKey::end`].

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt as _;

use crate::{Broken, Cipher, KEY_BYTES, NONCE_BYTES, TAG_BYTES, VERSION, associated};

/// Bytes of a full piece on the disk.
pub const BLOCK: u64 = 4096;
const BLOCK_BYTES: usize = 4096;
/// Version and mark.
const HEADER: usize = 2;
const OVERHEAD: usize = HEADER + NONCE_BYTES + TAG_BYTES;
const PIECE_BYTES: usize = BLOCK_BYTES - OVERHEAD;
/// Bytes of a stream in a full piece.
pub const PIECE: u64 = PIECE_BYTES as u64;

/// Returns the bytes that so many bytes of a stream take in its file.
pub fn sealed_length(length: u64) -> u64 {
    length.saturating_add(length.div_ceil(PIECE).saturating_mul(OVERHEAD as u64))
}

/// Returns the bytes of a stream that a file of this length has. A rest too short for a piece counts as none.
pub fn plain_length(sealed: u64) -> u64 {
    sealed / BLOCK * PIECE + (sealed % BLOCK).saturating_sub(OVERHEAD as u64)
}

/// Key of the streams of one purpose.
pub struct StreamKey(Cipher);

/// The end of a stream, as its only writer knows it.
#[derive(Debug, Default)]
pub struct Tail {
    /// Number of the piece that is written next or again.
    number: u64,
    /// Content of that piece. It is full only until the next byte comes.
    plain: Vec<u8>,
}

impl Tail {
    /// Bytes of the stream.
    pub fn length(&self) -> u64 {
        self.number * PIECE + self.plain.len() as u64
    }
}

/// Part of a stream.
#[derive(Debug, PartialEq, Eq)]
pub struct Read {
    pub data: Vec<u8>,
    /// Bytes of the whole stream.
    pub length: u64,
    /// The stream has its last piece. One without it grows, or its writer was lost, or its end was cut off.
    pub ended: bool,
}

impl StreamKey {
    pub fn from_bytes(bytes: [u8; KEY_BYTES]) -> Self {
        Self(Cipher::new(&bytes))
    }

    /// Appends `data` as far as the disk takes it, and returns the bytes that it took. After an error `tail` and the file
    /// agree, if the disk still takes anything.
    pub fn append(&self, context: &str, file: &File, tail: &mut Tail, data: &[u8]) -> (u64, io::Result<()>) {
        let before = tail.length();
        let result = self.try_append(context, file, tail, data);
        (tail.length().saturating_sub(before), result)
    }

    fn try_append(&self, context: &str, file: &File, tail: &mut Tail, data: &[u8]) -> io::Result<()> {
        let is_full = tail.plain.len() == PIECE_BYTES;
        let from = tail.number + u64::from(is_full);
        let first = if is_full { Vec::new() } else { tail.plain.clone() };
        let mut next = Tail { number: from, plain: first.clone() };
        let mut sealed = Vec::with_capacity(data.len() + data.len() / 64 + 2 * BLOCK_BYTES);
        let mut rest = data;
        while !rest.is_empty() {
            if next.plain.len() == PIECE_BYTES {
                next = Tail { number: next.number + 1, plain: Vec::with_capacity(PIECE_BYTES) };
            }
            let (now, later) = rest.split_at(rest.len().min(PIECE_BYTES - next.plain.len()));
            next.plain.extend_from_slice(now);
            rest = later;
            self.seal(context, next.number, false, &next.plain, &mut sealed)?;
        }
        let (written, result) = write(file, &sealed, from * BLOCK);
        if result.is_ok() {
            *tail = next;
            return Ok(());
        }
        // Only whole pieces count, and the last of them is the tail. Writing it again needs no space on the disk.
        let whole = written / BLOCK_BYTES;
        if let Some(last) = whole.checked_sub(1) {
            let plain = [&first, data].concat();
            let plain = plain.get(last * PIECE_BYTES..whole * PIECE_BYTES).unwrap_or_default().to_vec();
            *tail = Tail { number: from + last as u64, plain };
        }
        self.write_tail(context, file, tail, false)?;
        result
    }

    /// Marks the last piece as such. The caller appends no piece afterwards.
    pub fn end(&self, context: &str, file: &File, tail: &Tail) -> io::Result<()> {
        self.write_tail(context, file, tail, true)
    }

    fn write_tail(&self, context: &str, file: &File, tail: &Tail, is_last: bool) -> io::Result<()> {
        let mut sealed = Vec::with_capacity(BLOCK_BYTES);
        if !tail.plain.is_empty() {
            self.seal(context, tail.number, is_last, &tail.plain, &mut sealed)?;
        }
        file.set_len(sealed_length(tail.length()))?;
        file.write_all_at(&sealed, tail.number * BLOCK)
    }

    /// Finds the end of a stream whose writer was lost, and cuts off a last piece that was not written whole.
    pub fn resume(&self, context: &str, file: &File) -> io::Result<Tail> {
        let length = plain_length(file.metadata()?.len());
        let mut number = length.div_ceil(PIECE);
        while let Some(last) = number.checked_sub(1) {
            if let Ok((plain, _)) = self.read_piece(context, file, last)? {
                let tail = Tail { number: last, plain };
                file.set_len(sealed_length(tail.length()))?;
                return Ok(tail);
            }
            number = last;
        }
        file.set_len(0)?;
        Ok(Tail::default())
    }

    /// Reads at most `most` bytes from `offset` on. The caller keeps the writer off meanwhile.
    ///
    /// A piece that was changed, or moved from another number, context or key, is [`ErrorKind::InvalidData`]. A tail that
    /// does not open and does not claim to be the last piece was not written whole, and is left out.
    pub fn read(&self, context: &str, file: &File, offset: u64, most: usize) -> io::Result<Read> {
        let Some((last, mut tail, ended)) = self.find_tail(context, file)? else {
            return Ok(Read { data: Vec::new(), length: 0, ended: false });
        };
        let length = last * PIECE + tail.len() as u64;
        let end = offset.saturating_add(most as u64).min(length);
        let mut data = Vec::with_capacity(usize::try_from(end.saturating_sub(offset)).unwrap_or(0));
        let mut at = offset;
        while at < end {
            let number = at / PIECE;
            let plain = if number == last {
                std::mem::take(&mut tail)
            } else {
                match self.read_piece(context, file, number)? {
                    // Only the tail may be short or marked.
                    Ok((plain, false)) if plain.len() == PIECE_BYTES => plain,
                    _ => return Err(damaged()),
                }
            };
            let from = usize::try_from(at % PIECE).unwrap_or(usize::MAX);
            let until = usize::try_from((end - number * PIECE).min(PIECE)).unwrap_or(usize::MAX);
            data.extend_from_slice(plain.get(from..until).ok_or_else(damaged)?);
            at = number * PIECE + until as u64;
        }
        Ok(Read { data, length, ended })
    }

    /// Number, content and mark of the tail.
    fn find_tail(&self, context: &str, file: &File) -> io::Result<Option<(u64, Vec<u8>, bool)>> {
        let pieces = plain_length(file.metadata()?.len()).div_ceil(PIECE);
        let Some(last) = pieces.checked_sub(1) else { return Ok(None) };
        match self.read_piece(context, file, last)? {
            Ok((plain, ended)) => return Ok(Some((last, plain, ended))),
            Err(true) => return Err(damaged()),
            Err(false) => {}
        }
        let Some(before) = last.checked_sub(1) else { return Ok(None) };
        match self.read_piece(context, file, before)? {
            Ok((plain, false)) => Ok(Some((before, plain, false))),
            _ => Err(damaged()),
        }
    }

    /// Encrypts a whole content, which is read and replaced as one.
    pub fn seal_whole(&self, context: &str, plain: &[u8]) -> io::Result<Vec<u8>> {
        let mut sealed = Vec::with_capacity(plain.len() + OVERHEAD);
        self.seal(context, 0, true, plain, &mut sealed)?;
        Ok(sealed)
    }

    /// Decrypts a whole content.
    pub fn unseal_whole(&self, context: &str, sealed: &[u8]) -> Result<Vec<u8>, Broken> {
        match self.unseal(context, 0, sealed) {
            Ok((plain, true)) => Ok(plain),
            _ => Err(Broken),
        }
    }

    fn seal(
        &self,
        context: &str,
        number: u64,
        is_last: bool,
        plain: &[u8],
        to: &mut Vec<u8>,
    ) -> io::Result<()> {
        to.extend_from_slice(&[VERSION, u8::from(is_last)]);
        let sealed = self.0.encrypt(&associated(number, is_last, context), plain, to);
        sealed.map_err(|error| io::Error::new(ErrorKind::FileTooLarge, error))
    }

    fn unseal(&self, context: &str, number: u64, sealed: &[u8]) -> Result<(Vec<u8>, bool), Broken> {
        let (&[version, mark], sealed) = sealed.split_first_chunk::<HEADER>().ok_or(Broken)?;
        if version != VERSION || mark > 1 {
            return Err(Broken);
        }
        let is_last = mark == 1;
        Ok((self.0.decrypt(&associated(number, is_last, context), sealed)?, is_last))
    }

    /// Reads one piece: its content and its mark or, where it does not open, only its claim of being the last.
    fn read_piece(
        &self,
        context: &str,
        file: &File,
        number: u64,
    ) -> io::Result<Result<(Vec<u8>, bool), bool>> {
        let mut sealed = vec![0; BLOCK_BYTES];
        let mut filled = 0;
        while let Some(rest) = sealed.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match file.read_at(rest, number * BLOCK + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        sealed.truncate(filled);
        let claims_to_be_last = sealed.get(1).is_some_and(|mark| *mark != 0);
        Ok(self.unseal(context, number, &sealed).map_err(|_| claims_to_be_last))
    }
}

impl fmt::Debug for StreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StreamKey")
    }
}

fn damaged() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, Broken)
}

/// Writes `data` at `offset`, and returns how much of it the disk took.
fn write(file: &File, data: &[u8], offset: u64) -> (usize, io::Result<()>) {
    let mut written = 0;
    while let Some(rest) = data.get(written..).filter(|rest| !rest.is_empty()) {
        match file.write_at(rest, offset + written as u64) {
            Ok(0) => return (written, Err(ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, Ok(()))
}

#[cfg(test)]
mod tests;
