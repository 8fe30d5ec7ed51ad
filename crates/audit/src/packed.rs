//! Compressed segments: one gzip member (RFC 1952) with a fixed header, and no bytes after it.
//!
//! They are read as a stream, with limited memory. After every [`CHUNK`] of content the compressor flushes and forgets the content before,
//! so that reading can begin there as well. The positions follow from the bytes alone, because a flush ends with an empty stored block (RFC
//! 1951, 3.2.4). If their number does not match that of the chunks, as in a segment that another program compressed, a reader that goes
//! back begins again.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read, Seek as _, SeekFrom, Write as _};

use flate2::bufread::{DeflateDecoder, GzDecoder};
use flate2::{Compress, Compression, Crc, FlushCompress, Status};

use crate::lines::{ReadAt, retry};

/// Header without name, time and further fields, for an unknown system, so that the same records always give the same header.
pub(crate) const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
/// Bytes of content between two positions at which reading can begin.
pub(crate) const CHUNK: usize = 128 * 1024;
/// Bytes at the end of every flush.
const FLUSHED: [u8; 4] = [0, 0, 0xff, 0xff];
const BUFFER: usize = 64 * 1024;

/// Reader of a compressed segment's content. It reports malformed bytes as [`io::ErrorKind::InvalidData`].
#[derive(Debug)]
pub(crate) struct Unpacked {
    decoder: Decoder,
    position: u64,
    /// Positions in the file where the chunks after the first one begin. `None` if they were not searched for yet.
    chunks: Option<Vec<u64>>,
}

#[derive(Debug)]
enum Decoder {
    /// Reads from the beginning. At the end it has compared the content with the checksum.
    Whole(GzDecoder<BufReader<File>>),
    /// Reads from a later chunk, for callers that verify each line.
    Part(DeflateDecoder<BufReader<File>>),
}

impl Decoder {
    fn file(&self) -> &File {
        match self {
            Self::Whole(decoder) => decoder.get_ref().get_ref(),
            Self::Part(decoder) => decoder.get_ref().get_ref(),
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Part(decoder) => decoder.read(buffer),
            Self::Whole(decoder) => {
                let count = decoder.read(buffer)?;
                if count == 0 && !decoder.get_mut().fill_buf()?.is_empty() {
                    return Err(invalid("bytes after its end"));
                }
                Ok(count)
            }
        }
    }
}

impl Unpacked {
    pub(crate) fn new(mut file: File) -> io::Result<Self> {
        let mut header = [0; HEADER.len()];
        file.seek(SeekFrom::Start(0))?;
        retry(|| file.read_exact(&mut header)).map_err(spoilt)?;
        if header != HEADER {
            return Err(invalid("an unknown header"));
        }
        file.seek(SeekFrom::Start(0))?;
        let decoder = Decoder::Whole(GzDecoder::new(BufReader::with_capacity(BUFFER, file)));
        Ok(Self { decoder, position: 0, chunks: None })
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let count = retry(|| self.decoder.read(buffer)).map_err(spoilt)?;
        self.position += count as u64;
        Ok(count)
    }

    /// Goes to the last position at or before `offset` at which reading can begin, unless the current position is nearer.
    fn approach(&mut self, offset: u64) -> io::Result<()> {
        let is_ahead = self.position <= offset;
        if is_ahead && offset - self.position < CHUNK as u64 {
            return Ok(());
        }
        let mut file = self.decoder.file().try_clone()?;
        let chunks = match self.chunks.take() {
            Some(chunks) => chunks,
            None => chunks(&mut file)?,
        };
        let chunk = usize::try_from(offset / CHUNK as u64).unwrap_or(usize::MAX).min(chunks.len());
        let begins = (chunk * CHUNK) as u64;
        if !is_ahead || begins > self.position {
            *self = match chunk.checked_sub(1) {
                None => Self::new(file)?,
                Some(later) => {
                    file.seek(SeekFrom::Start(chunks[later]))?;
                    let decoder = DeflateDecoder::new(BufReader::with_capacity(BUFFER, file));
                    Self { decoder: Decoder::Part(decoder), position: begins, chunks: None }
                }
            };
        }
        self.chunks = Some(chunks);
        Ok(())
    }
}

impl ReadAt for Unpacked {
    fn read_at(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.approach(offset)?;
        let mut scratch = [0; 8192];
        while self.position < offset {
            let ahead = usize::try_from(offset - self.position).unwrap_or(usize::MAX).min(scratch.len());
            if self.read(&mut scratch[..ahead])? == 0 {
                return Ok(0);
            }
        }
        self.read(buffer)
    }
}

/// Returns the positions in a file where the chunks after the first one begin, or none if their number does not match the file's length.
///
/// It reads by position, because the decoder shares the file and its cursor.
fn chunks(file: &mut File) -> io::Result<Vec<u64>> {
    let mut length = [0; 4];
    let end = file.metadata()?.len().saturating_sub(length.len() as u64);
    if retry(|| ReadAt::read_at(file, &mut length, end))? < length.len() {
        return Ok(Vec::new());
    }
    // `kept` is the number of bytes at the beginning of the buffer that were read already, and `begins` is their position in the file.
    let (mut found, mut kept, mut begins) = (Vec::new(), 0, 0_u64);
    let mut buffer = vec![0; BUFFER];
    loop {
        let count = retry(|| ReadAt::read_at(file, &mut buffer[kept..], begins + kept as u64))?;
        if count == 0 {
            break;
        }
        let bytes = &buffer[..kept + count];
        let ends = memchr::memmem::find_iter(bytes, &FLUSHED).map(|at| begins + (at + FLUSHED.len()) as u64);
        found.extend(ends);
        // A marker may begin here and end in the bytes that are read next.
        let rest = bytes.len().min(FLUSHED.len() - 1);
        let read = bytes.len() - rest;
        buffer.copy_within(read..read + rest, 0);
        (begins, kept) = (begins + read as u64, rest);
    }
    let expected = u32::from_le_bytes(length) as usize / CHUNK;
    Ok(if found.len() == expected { found } else { Vec::new() })
}

/// Reads a whole segment from its beginning, and returns the length of its content in bytes, or `None` if it cannot be unpacked completely.
pub(crate) fn length(file: File) -> io::Result<Option<u64>> {
    let mut buffer = vec![0; BUFFER];
    let whole = || -> io::Result<u64> {
        let mut unpacked = Unpacked::new(file)?;
        while unpacked.read(&mut buffer)? > 0 {}
        Ok(unpacked.position)
    };
    match whole() {
        Ok(length) => Ok(Some(length)),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(None),
        Err(error) => Err(error),
    }
}

/// Compresses the content of `from` and appends it to `to`.
pub(crate) fn pack(from: &mut File, to: &mut File) -> io::Result<()> {
    let (mut deflate, mut sum) = (Compress::new(Compression::new(6), false), Crc::new());
    let (mut chunk, mut packed) = (Vec::with_capacity(CHUNK), Vec::with_capacity(2 * CHUNK));
    from.seek(SeekFrom::Start(0))?;
    to.write_all(&HEADER)?;
    loop {
        chunk.clear();
        Read::by_ref(from).take(CHUNK as u64).read_to_end(&mut chunk)?;
        sum.update(&chunk);
        let is_last = chunk.len() < CHUNK;
        packed.clear();
        let flush = if is_last { FlushCompress::Finish } else { FlushCompress::Full };
        let status = deflate.compress_vec(&chunk, &mut packed, flush)?;
        if is_last != (status == Status::StreamEnd) || packed.len() == packed.capacity() {
            return Err(io::Error::other("a chunk of a segment is not whole when compressed"));
        }
        to.write_all(&packed)?;
        if is_last {
            break;
        }
    }
    to.write_all(&[sum.sum().to_le_bytes(), sum.amount().to_le_bytes()].concat())
}

/// Converts errors of the decoder to [`io::ErrorKind::InvalidData`], because the file causes them. Errors of the disk remain unchanged.
fn spoilt(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
            io::Error::new(io::ErrorKind::InvalidData, error)
        }
        _ => error,
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("a compressed segment has {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn packed(text: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let (plain, path) = (dir.path().join("plain"), dir.path().join("packed"));
        fs::write(&plain, text).unwrap();
        pack(&mut File::open(plain).unwrap(), &mut File::create(&path).unwrap()).unwrap();
        (dir, path)
    }

    /// Content that does not repeat itself, longer than a few chunks.
    fn content(chunks: usize, more: usize) -> Vec<u8> {
        let text: Vec<u8> =
            (0..u32::MAX).flat_map(|n| n.to_string().into_bytes()).take(chunks * CHUNK + more).collect();
        assert_eq!(text.len(), chunks * CHUNK + more);
        text
    }

    /// Reads at positions that move forward and back.
    fn reads_anywhere(path: &Path, text: &[u8]) -> Unpacked {
        let mut unpacked = Unpacked::new(File::open(path).unwrap()).unwrap();
        let middle = text.len() / 2;
        for offset in [
            0,
            middle,
            middle.saturating_sub(1),
            7,
            CHUNK,
            CHUNK - 1,
            text.len().saturating_sub(3),
            2 * CHUNK - 5,
            text.len(),
            text.len() + 9,
            12,
        ] {
            let (mut buffer, mut read) = ([0; 64], 0);
            loop {
                let count = unpacked.read_at(&mut buffer[read..], (offset + read) as u64).unwrap();
                read += count;
                if count == 0 {
                    break;
                }
            }
            let expected = &text[offset.min(text.len())..];
            assert_eq!(buffer[..read], expected[..expected.len().min(64)], "{offset}");
        }
        unpacked
    }

    #[test]
    fn any_position_can_be_read_in_any_order() {
        for (chunks, more) in [(0, 0), (0, 100_000), (1, 0), (2, 0), (5, 1_000)] {
            let text = content(chunks, more);
            let (_dir, path) = packed(&text);
            assert_eq!(fs::read(&path).unwrap()[..10], HEADER);
            assert_eq!(length(File::open(&path).unwrap()).unwrap(), Some(text.len() as u64));
            let unpacked = reads_anywhere(&path, &text);
            assert_eq!(unpacked.chunks.map(|found| found.len()), Some(chunks), "{chunks} and {more}");
            // One whole member for every other program.
            let mut whole = Vec::new();
            GzDecoder::new(fs::read(&path).unwrap().as_slice()).read_to_end(&mut whole).unwrap();
            assert!(whole == text);
        }
    }

    #[test]
    fn foreign_gzip_is_read_from_its_beginning() {
        let text = content(3, 500);
        let (_dir, path) = packed(b"");
        let builder = flate2::GzBuilder::new().operating_system(HEADER[9]);
        let mut other = builder.write(File::create(&path).unwrap(), Compression::new(6));
        other.write_all(&text).unwrap();
        other.finish().unwrap();
        assert_eq!(reads_anywhere(&path, &text).chunks, Some(Vec::new()));
    }

    #[test]
    fn truncated_changed_or_extended_segments_are_not_whole() {
        let (_dir, path) = packed(b"{\"v\":1}\n".repeat(50).as_slice());
        let good = fs::read(&path).unwrap();
        for cut in 0..good.len() {
            fs::write(&path, &good[..cut]).unwrap();
            assert_eq!(length(File::open(&path).unwrap()).unwrap(), None, "{cut}");
        }
        for more in [&b"\0"[..], b"x", &good] {
            fs::write(&path, [&good[..], more].concat()).unwrap();
            assert_eq!(length(File::open(&path).unwrap()).unwrap(), None);
        }
        for at in 0..HEADER.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            fs::write(&path, bad).unwrap();
            assert_eq!(length(File::open(&path).unwrap()).unwrap(), None, "{at}");
        }
    }
}
