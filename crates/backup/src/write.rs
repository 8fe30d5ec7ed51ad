//! Writes an archive.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use sha2::{Digest as _, Sha256};

use crate::format::{
    AUDIT_KEY, DRAIN, Entry, HEAD, Head, LOG, MANIFEST, MOST, Manifest, SEAL_KEY, STORE, USAGE, longest,
};

/// Bytes at the end of a segment in which its last line ends.
const END: u64 = 64 * 1024;

/// Files of which an archive is made.
#[derive(Debug)]
pub struct Sources<'a> {
    /// Snapshot of the store.
    pub store: File,
    /// Snapshot of the use of models, if there is any.
    pub usage: Option<File>,
    /// The state directory, for the keys and the drain of the node.
    pub state_dir: &'a Path,
    /// Directory of the log, whose segments are kept meanwhile.
    pub log: &'a Path,
}

/// Reason why there is no archive.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    #[error("cannot read or write a file of the backup")]
    Io(#[from] io::Error),
    #[error("the description of the backup cannot be written")]
    Describe(#[from] serde_json::Error),
    /// The log's key was replaced meanwhile, so that key and log may not fit together.
    #[error("the audit log's key was rotated meanwhile")]
    KeyRotated,
    #[error("the audit log has more than {MOST} files")]
    TooMany,
}

/// Writes the archive from front to back.
pub fn write(out: &mut dyn Write, head: &Head, sources: &Sources<'_>) -> Result<(), WriteError> {
    let mut archive = Archive { tar: tar::Builder::new(out), manifest: Manifest::default() };
    let key = read_key(sources.state_dir, AUDIT_KEY)?;
    let drain = atomic_file::read(&sources.state_dir.join(DRAIN), longest(DRAIN))?;
    append(&mut archive.tar, HEAD, &serde_json::to_vec_pretty(head)?)?;
    archive.file(STORE, &sources.store, None)?;
    if let Some(usage) = &sources.usage {
        archive.file(USAGE, usage, None)?;
    }
    if let Some(drain) = drain {
        archive.bytes(DRAIN, &drain)?;
    }
    archive.bytes(SEAL_KEY, &read_key(sources.state_dir, SEAL_KEY)?)?;
    archive.bytes(AUDIT_KEY, &key)?;
    let names = audit::files_to_copy(sources.log)?;
    if names.len() > MOST - 10 {
        return Err(WriteError::TooMany);
    }
    let last = names.last().cloned().unwrap_or_default();
    for name in names {
        let file = match File::open(sources.log.join(&name)) {
            // Only the newest checkpoints are kept.
            Err(error) if error.kind() == io::ErrorKind::NotFound && name.contains('/') => continue,
            file => file?,
        };
        let whole =
            (name == last && audit::is_plain_segment(&name)).then(|| whole_lines(&file)).transpose()?;
        archive.file(&format!("{LOG}/{name}"), &file, whole)?;
    }
    // A rotation puts the next key beside this one before it is in the log.
    let next = sources.state_dir.join(AUDIT_KEY).with_extension("key.next");
    if read_key(sources.state_dir, AUDIT_KEY)? != key || next.exists() {
        return Err(WriteError::KeyRotated);
    }
    let manifest = serde_json::to_vec(&archive.manifest)?;
    append(&mut archive.tar, MANIFEST, &manifest)?;
    archive.tar.finish()?;
    Ok(())
}

struct Archive<'a> {
    tar: tar::Builder<&'a mut dyn Write>,
    manifest: Manifest,
}

impl Archive<'_> {
    fn bytes(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        append(&mut self.tar, name, content)?;
        let sha256 = hex::encode(Sha256::digest(content));
        self.manifest.members.insert(name.to_owned(), Entry { bytes: content.len() as u64, sha256 });
        Ok(())
    }

    /// Appends the first `length` bytes of a file, or all that it has now.
    fn file(&mut self, name: &str, file: &File, length: Option<u64>) -> io::Result<()> {
        let bytes = match length {
            Some(length) => length,
            None => file.metadata()?.len(),
        };
        let mut content = Copied { file, offset: 0, end: bytes, sha256: Sha256::new() };
        self.tar.append_data(&mut header(bytes), name, &mut content)?;
        if content.offset != bytes {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "a file became shorter while it was copied",
            ));
        }
        let sha256 = hex::encode(content.sha256.finalize());
        self.manifest.members.insert(name.to_owned(), Entry { bytes, sha256 });
        Ok(())
    }
}

fn header(bytes: u64) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    header.set_size(bytes);
    header.set_mode(0o600);
    header.set_mtime(0);
    header
}

fn append(tar: &mut tar::Builder<&mut dyn Write>, name: &str, content: &[u8]) -> io::Result<()> {
    tar.append_data(&mut header(content.len() as u64), name, content)
}

/// Reads a key that the archive has under this name.
fn read_key(state_dir: &Path, name: &str) -> io::Result<Vec<u8>> {
    let key = atomic_file::read(&state_dir.join(name), longest(name))?;
    key.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Returns the length of a segment up to the end of its last whole line. Another line may be half written.
fn whole_lines(file: &File) -> io::Result<u64> {
    let mut end = file.metadata()?.len();
    let mut buffer = vec![0; usize::try_from(END).unwrap_or_default()];
    while end > 0 {
        let start = end.saturating_sub(END);
        let part = &mut buffer[..usize::try_from(end - start).unwrap_or_default()];
        file.read_exact_at(part, start)?;
        if let Some(newline) = part.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + newline as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

/// Reader of the first bytes of a file. It leaves the offset of the file alone.
struct Copied<'a> {
    file: &'a File,
    offset: u64,
    end: u64,
    sha256: Sha256,
}

impl Read for Copied<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.end - self.offset).unwrap_or(usize::MAX).min(buffer.len());
        let count = self.file.read_at(&mut buffer[..most], self.offset)?;
        self.sha256.update(&buffer[..count]);
        self.offset += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_written_line_is_left_out() {
        let mut file = tempfile::tempfile().unwrap();
        for (content, whole) in [("", 0), ("x", 0), ("a\n", 2), ("a\nb\nc", 4)] {
            file.set_len(0).unwrap();
            file.write_all_at(content.as_bytes(), 0).unwrap();
            assert_eq!(whole_lines(&file).unwrap(), whole, "{content:?}");
        }
        file.write_all(&vec![b'y'; 200_000]).unwrap();
        file.write_all_at(b"\n", 9).unwrap();
        assert_eq!(whole_lines(&file).unwrap(), 10);
    }
}
