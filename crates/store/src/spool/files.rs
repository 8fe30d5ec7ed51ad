//! The spool's files: `RUN/CALL.stdout.sealed` and `RUN/CALL.stderr.sealed`, 0600 in directories of 0700.
//!
//! A file has one byte for each stored byte of the stream, encrypted with the keystream at its offset ([`StreamKey`]). So it can be read
//! from any offset, and a grep or a copy finds no plain text. It does not protect against changes: only root of this host could change a
//! byte, and root has the key as well.
//!
//! All functions here block on the disk.

#![expect(clippy::disallowed_methods, reason = "the spool, which no run sees")]

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use identity::{CallId, RunId};
use seal::StreamKey;

use super::ledger::Key;

/// Suffixes of the files' names, by the stream's index.
pub(super) const END: [&str; 2] = ["stdout", "stderr"];
/// Last suffix. An earlier release wrote plain files without it.
const SEALED: &str = "sealed";
/// Number of free inodes that are left to other programs.
const FREE_FILES: u64 = 1_024;

#[derive(Debug)]
pub(super) struct Files {
    root: PathBuf,
    /// Free bytes of the file system that are left to other programs.
    min_free: u64,
    key: StreamKey,
}

/// Bytes of a stream from an offset on.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Piece {
    pub data: Vec<u8>,
    /// Number of bytes of the stream that are stored.
    pub kept: u64,
}

impl Files {
    pub(super) fn new(root: PathBuf, min_free: u64, key: StreamKey) -> Self {
        Self { root, min_free, key }
    }

    /// Makes a stream's file, which must not exist yet.
    pub(super) fn create(&self, key: Key, stream: usize) -> io::Result<File> {
        let path = self.path(key, stream);
        let create = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        match create() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                match DirBuilder::new().mode(0o700).create(self.run(key.run)) {
                    Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
                    // Another call of the run may have made the directory meanwhile.
                    _ => create(),
                }
            }
            created => created,
        }
    }

    /// Reads at most `most` bytes of a stream from `offset` on. Returns no bytes if it has no file.
    pub(super) fn read(&self, key: Key, stream: usize, offset: u64, most: usize) -> io::Result<Piece> {
        let opened =
            OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(self.path(key, stream));
        let file = match opened {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Piece::default()),
            opened => opened?,
        };
        let kept = file.metadata()?.len();
        let there = usize::try_from(kept.saturating_sub(offset)).unwrap_or(usize::MAX).min(most);
        let mut data = vec![0; there];
        let mut filled = 0;
        while filled < there {
            match file.read_at(&mut data[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        data.truncate(filled);
        self.apply(key, stream, offset, &mut data)?;
        Ok(Piece { data, kept })
    }

    pub(super) fn remove(&self, key: Key) -> io::Result<()> {
        (0..END.len()).try_for_each(|stream| self.remove_stream(key, stream))
    }

    pub(super) fn remove_stream(&self, key: Key, stream: usize) -> io::Result<()> {
        gone(std::fs::remove_file(self.path(key, stream)))
    }

    /// Removes the directory of a run. Only the daemon has ever written there.
    pub(super) fn remove_run(&self, run: RunId) -> io::Result<()> {
        gone(std::fs::remove_dir_all(self.run(run)))
    }

    /// Returns the runs that have a directory. Entries with other names, such as `lost+found`, do not belong to the spool.
    pub(super) fn runs(&self) -> io::Result<Vec<RunId>> {
        let mut runs = Vec::new();
        for entry in std::fs::read_dir(&self.root)? {
            runs.extend(entry?.file_name().to_str().and_then(|name| RunId::parse(name).ok()));
        }
        Ok(runs)
    }

    /// Returns call, stream and size of a run's files.
    pub(super) fn of_run(&self, run: RunId) -> io::Result<Vec<(CallId, usize, u64)>> {
        let mut streams = Vec::new();
        for entry in std::fs::read_dir(self.run(run))? {
            let entry = entry?;
            match entry.file_name().to_str().and_then(parse) {
                Some((call, stream)) => streams.push((call, stream, entry.metadata()?.len())),
                // Only the daemon has ever written there: this is a plain file of an earlier release.
                None => std::fs::remove_file(entry.path())?,
            }
        }
        Ok(streams)
    }

    /// Returns the bytes that would be missing from the space for other programs after `bytes` more here.
    pub(super) fn shortage(&self, bytes: u64) -> io::Result<u64> {
        if self.min_free == 0 {
            return Ok(0);
        }
        let system = rustix::fs::statvfs(&self.root)?;
        // A file system without a limit on inodes reports 0 of them.
        if system.f_files > 0 && system.f_favail < FREE_FILES {
            return Ok(1);
        }
        let free = system.f_bavail.saturating_mul(system.f_frsize);
        Ok(self.min_free.saturating_add(bytes).saturating_sub(free))
    }

    /// Writes `data` at `offset` of the stream. Returns the bytes written, and the error that ended the write.
    ///
    /// An offset must never be written twice with different bytes. So a caller must stop writing after an error.
    pub(super) fn write(
        &self,
        key: Key,
        stream: usize,
        file: &File,
        data: &[u8],
        offset: u64,
    ) -> (u64, io::Result<()>) {
        let mut sealed = data.to_vec();
        match self.apply(key, stream, offset, &mut sealed) {
            Ok(()) => write(file, &sealed, offset),
            Err(error) => (0, Err(error)),
        }
    }

    fn apply(&self, key: Key, stream: usize, offset: u64, data: &mut [u8]) -> io::Result<()> {
        let place = format!("{} {} {}", key.run, key.call, END[stream]);
        let applied = self.key.apply(&place, offset, data);
        applied.map_err(|_| io::Error::new(ErrorKind::FileTooLarge, "a stream has an end"))
    }

    fn run(&self, run: RunId) -> PathBuf {
        self.root.join(run.to_string())
    }

    fn path(&self, key: Key, stream: usize) -> PathBuf {
        self.run(key.run).join(format!("{}.{}.{SEALED}", key.call, END[stream]))
    }
}

fn parse(name: &str) -> Option<(CallId, usize)> {
    let (call, end) = name.strip_suffix(SEALED)?.strip_suffix('.')?.split_once('.')?;
    Some((CallId::parse(call).ok()?, END.iter().position(|known| *known == end)?))
}

fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Writes `data` at `offset`. Returns the bytes written, and the error that ended the write.
fn write(file: &File, data: &[u8], offset: u64) -> (u64, io::Result<()>) {
    let mut written = 0;
    while written < data.len() {
        match file.write_at(&data[written..], offset + written as u64) {
            Ok(0) => return (written as u64, Err(ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return (written as u64, Err(error)),
        }
    }
    (written as u64, Ok(()))
}
