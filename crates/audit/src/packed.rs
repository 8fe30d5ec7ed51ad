//! Compressed segments: one gzip member (RFC 1952) with a fixed header, and nothing after it.
//!
//! Bounded memory: they are read as a stream. Going back in one means beginning again.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use flate2::Compression;
use flate2::bufread::GzDecoder;

use crate::lines::{ReadAt, retry};

/// No name, no time, no further fields, unknown system: the same records give the same beginning everywhere.
pub(crate) const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
const BUFFER: usize = 64 * 1024;

/// A compressed segment, read as what it holds. Bytes that are no such thing are [`io::ErrorKind::InvalidData`].
#[derive(Debug)]
pub(crate) struct Unpacked {
    decoder: GzDecoder<BufReader<File>>,
    position: u64,
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
        Ok(Self { decoder: GzDecoder::new(BufReader::with_capacity(BUFFER, file)), position: 0 })
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let count = retry(|| self.decoder.read(buffer)).map_err(spoilt)?;
        if count == 0 && !self.decoder.get_mut().fill_buf()?.is_empty() {
            return Err(invalid("bytes behind its end"));
        }
        self.position += count as u64;
        Ok(count)
    }
}

impl ReadAt for Unpacked {
    fn read_at(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if offset < self.position {
            let file = self.decoder.get_ref().get_ref().try_clone()?;
            *self = Self::new(file)?;
        }
        let mut scratch = [0; 8192];
        while self.position < offset {
            let room = usize::try_from(offset - self.position).unwrap_or(usize::MAX).min(scratch.len());
            if self.read(&mut scratch[..room])? == 0 {
                return Ok(0);
            }
        }
        self.read(buffer)
    }
}

/// Reads all of it and says how much it holds, in bytes. `None`: it cannot be unpacked whole.
pub(crate) fn length(path: &Path) -> io::Result<Option<u64>> {
    let mut buffer = vec![0; BUFFER];
    let mut whole = || -> io::Result<u64> {
        let mut unpacked = Unpacked::new(File::open(path)?)?;
        while unpacked.read(&mut buffer)? > 0 {}
        Ok(unpacked.position)
    };
    match whole() {
        Ok(length) => Ok(Some(length)),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(None),
        Err(error) => Err(error),
    }
}

/// Compresses what is in `from` and appends it to `to`.
pub(crate) fn pack(from: &mut File, to: &mut File) -> io::Result<()> {
    let builder = flate2::GzBuilder::new().mtime(0).operating_system(HEADER[9]);
    let mut encoder = builder.write(to, Compression::new(6));
    from.seek(SeekFrom::Start(0))?;
    io::copy(from, &mut encoder)?;
    encoder.finish()?;
    Ok(())
}

/// What the decoder complains of is the file's fault; what the disk says stays what it is.
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

    fn packed(text: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let (plain, path) = (dir.path().join("plain"), dir.path().join("packed"));
        fs::write(&plain, text).unwrap();
        pack(&mut File::open(plain).unwrap(), &mut File::create(&path).unwrap()).unwrap();
        (dir, path)
    }

    #[test]
    fn any_place_can_be_read_in_any_order() {
        let text: Vec<u8> = (0..200_000_u32).flat_map(|n| n.to_string().into_bytes()).collect();
        let (_dir, path) = packed(&text);
        assert_eq!(fs::read(&path).unwrap()[..10], HEADER);
        assert_eq!(length(&path).unwrap(), Some(text.len() as u64));
        let mut unpacked = Unpacked::new(File::open(&path).unwrap()).unwrap();
        for offset in [0, 500_000, 499_999, 7, text.len() - 3, text.len(), text.len() + 9, 12] {
            let mut buffer = [0; 64];
            let count = unpacked.read_at(&mut buffer, offset as u64).unwrap();
            let expected = &text[offset.min(text.len())..];
            assert_eq!(buffer[..count], expected[..count]);
            assert_eq!(count == 0, expected.is_empty());
        }
    }

    #[test]
    fn what_is_cut_changed_or_followed_by_more_is_not_whole() {
        let (_dir, path) = packed(b"{\"v\":1}\n".repeat(50).as_slice());
        let good = fs::read(&path).unwrap();
        for cut in 0..good.len() {
            fs::write(&path, &good[..cut]).unwrap();
            assert_eq!(length(&path).unwrap(), None, "{cut}");
        }
        for more in [&b"\0"[..], b"x", &good] {
            fs::write(&path, [&good[..], more].concat()).unwrap();
            assert_eq!(length(&path).unwrap(), None);
        }
        for at in 0..HEADER.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            fs::write(&path, bad).unwrap();
            assert_eq!(length(&path).unwrap(), None, "{at}");
        }
    }
}
