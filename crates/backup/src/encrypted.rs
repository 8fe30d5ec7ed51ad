//! Archives under a key.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use seal::{Seal, StreamKey, Tail};

const CONTEXT: &str = "backup archive";
const PURPOSE: &str = "backup";
/// Bytes that are decrypted at once.
const PORTION: usize = 1 << 20;

/// Returns true if the file is an archive under a key. The first member of an archive without one begins with its name.
pub fn is_encrypted(file: &File) -> io::Result<bool> {
    let mut first = [0; 1];
    Ok(file.read_at(&mut first, 0)? == 1 && first[0] != b'b')
}

/// Writer of an archive under the key in a file.
#[derive(Debug)]
pub struct Encrypting {
    key: StreamKey,
    file: File,
    tail: Tail,
}

impl Encrypting {
    /// Creates a writer into an empty file. The file of the key is made if there is none.
    pub fn new(key_file: &Path, file: File) -> io::Result<Self> {
        Ok(Self { key: Seal::open(key_file)?.stream_key(PURPOSE)?, file, tail: Tail::default() })
    }

    /// Marks the end. Without it, the archive is cut off.
    pub fn finish(self) -> io::Result<()> {
        self.key.end(CONTEXT, &self.file, &self.tail)
    }
}

impl Write for Encrypting {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (taken, result) = self.key.append(CONTEXT, &self.file, &mut self.tail, bytes);
        result?;
        Ok(usize::try_from(taken).unwrap_or(bytes.len()))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens an archive, encrypted or not.
pub fn open(path: &Path, key_file: Option<&Path>) -> io::Result<Box<dyn Read>> {
    let file = File::open(path)?;
    match (is_encrypted(&file)?, key_file) {
        (true, Some(key_file)) => Ok(Box::new(open_encrypted(file, key_file)?)),
        (true, None) => Err(io::Error::new(
            ErrorKind::InvalidInput,
            "it is encrypted, or not a backup: name the file of its key with --key-file",
        )),
        (false, Some(_)) => Err(io::Error::new(
            ErrorKind::InvalidInput,
            "it is not encrypted, so it is not the backup that the key is for: leave --key-file out if you trust it",
        )),
        (false, None) => Ok(Box::new(BufReader::with_capacity(PORTION, file))),
    }
}

/// Opens an archive under the key in a file, which must exist.
pub fn open_encrypted(file: File, key_file: &Path) -> io::Result<impl Read + use<>> {
    // A missing key must not be made: nothing would open under it.
    std::fs::metadata(key_file)?;
    let key = Seal::open(key_file)?.stream_key(PURPOSE)?;
    let first = key.read(CONTEXT, &file, 0, 1).map_err(wrong_key)?;
    if !first.ended {
        return Err(io::Error::new(ErrorKind::UnexpectedEof, "it is cut off, or its key is another one"));
    }
    Ok(BufReader::with_capacity(PORTION, Decrypting { key, file, offset: 0 }))
}

fn wrong_key(error: io::Error) -> io::Error {
    if error.kind() == ErrorKind::InvalidData {
        return io::Error::new(ErrorKind::InvalidData, "its key is another one, or it was changed");
    }
    error
}

struct Decrypting {
    key: StreamKey,
    file: File,
    offset: u64,
}

impl Read for Decrypting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read =
            self.key.read(CONTEXT, &self.file, self.offset, buffer.len().min(PORTION)).map_err(wrong_key)?;
        let count = read.data.len();
        buffer[..count].copy_from_slice(&read.data);
        self.offset += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encrypted_archive_opens_whole_with_its_key_and_not_otherwise() {
        let place = tempfile::tempdir().unwrap();
        let (path, key, other) = ["archive", "key", "other"].map(|name| place.path().join(name)).into();
        let write = || {
            let file =
                File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
            let mut out = Encrypting::new(&key, file).unwrap();
            out.write_all(&vec![b'b'; 100_000]).unwrap();
            out
        };
        write().finish().unwrap();
        let read = |key: &Path| {
            let mut content = Vec::new();
            open(&path, Some(key)).and_then(|mut from| from.read_to_end(&mut content)).map(|_| content)
        };
        assert_eq!(read(&key).unwrap(), vec![b'b'; 100_000]);
        assert!(open(&path, None).is_err());
        assert_eq!(read(&other).unwrap_err().kind(), ErrorKind::NotFound);
        assert!(!other.exists(), "no key is made to read");
        Seal::open(&other).unwrap();
        assert!(read(&other).is_err());
        let bytes = std::fs::read(&path).unwrap();
        let mut changed = bytes.clone();
        changed[5_000] ^= 1;
        std::fs::write(&path, &changed).unwrap();
        assert!(read(&key).is_err());
        std::fs::write(&path, &bytes[..8_192]).unwrap();
        assert!(read(&key).is_err(), "cut off between two pieces");
        drop(write());
        assert!(read(&key).is_err(), "its writer was lost");
    }
}
