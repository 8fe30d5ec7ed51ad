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
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use identity::{CallId, RunId};
use parking_lot::RwLock;
use seal::{Read, StreamKey, Tail};

use super::ledger::Key;

/// Suffixes of the files' names, by the stream's index.
pub(super) const END: [&str; 2] = ["stdout", "stderr"];
/// Form of the files. Files of earlier releases have none or another.
const FORM: &str = "pieces";
/// Locks between the writers of all streams and their readers.
const LOCKS: usize = 16;
/// Free inodes that are left to others where some bytes are.
const FREE_FILES: u64 = 1_024;

#[derive(Debug)]
pub(super) struct Files {
    root: PathBuf,
    /// Free bytes of the file system that are left to other programs.
    min_free: u64,
    key: StreamKey,
    /// A stream is not read while its tail is written again.
    locks: [RwLock<()>; LOCKS],
}

/// A stream's file, and the end of it.
#[derive(Debug)]
pub(super) struct Growing {
    file: File,
    tail: Tail,
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
        Self { root, min_free, key, locks: Default::default() }
    }

    /// Makes a stream's file, which must not be there yet.
    pub(super) fn create(&self, key: Key, stream: usize) -> io::Result<Growing> {
        let path = self.path(key, stream);
        let create = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let file = match create() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                match DirBuilder::new().mode(0o700).create(self.run(key.run)) {
                    Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
                    // Another call of the run may have made the directory meanwhile.
                    _ => create(),
                }
            }
            created => created,
        };
        Ok(Growing { file: file?, tail: Tail::default() })
    }

    /// Reads a stream from `offset` on, `most` bytes of it, and whether its end is marked. One without a file has nothing.
    pub(super) fn read(
        &self,
        key: Key,
        stream: usize,
        offset: u64,
        most: usize,
    ) -> io::Result<(Piece, bool)> {
        let opened =
            OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(self.path(key, stream));
        let file = match opened {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok((Piece::default(), true)),
            opened => opened?,
        };
        let _reading = self.lock(key).read();
        let Read { data, length, ended } = self.key.read(&place(key, stream), &file, offset, most)?;
        Ok((Piece { data, kept: length }, ended))
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
            if let Some((call, stream)) = entry.file_name().to_str().and_then(parse) {
                streams.push((call, stream, seal::plain_length(entry.metadata()?.len())));
            } else {
                // Only the daemon writes here.
                tracing::warn!(%run, "output that an older version stored is deleted");
                std::fs::remove_file(entry.path())?;
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
        growing: &mut Growing,
        data: &[u8],
    ) -> (u64, io::Result<()>) {
        let _writing = self.lock(key).write();
        self.key.append(&place(key, stream), &growing.file, &mut growing.tail, data)
    }

    /// Marks the end of a stream.
    pub(super) fn end(&self, key: Key, stream: usize, growing: &Growing) -> io::Result<()> {
        let _writing = self.lock(key).write();
        self.key.end(&place(key, stream), &growing.file, &growing.tail)
    }

    fn lock(&self, key: Key) -> &RwLock<()> {
        &self.locks[key.call.to_string().bytes().map(usize::from).sum::<usize>() % LOCKS]
    }

    fn run(&self, run: RunId) -> PathBuf {
        self.root.join(run.to_string())
    }

    fn path(&self, key: Key, stream: usize) -> PathBuf {
        self.run(key.run).join(format!("{}.{}.{FORM}", key.call, END[stream]))
    }
}

fn parse(name: &str) -> Option<(CallId, usize)> {
    let (call, end) = name.strip_suffix(FORM)?.strip_suffix('.')?.split_once('.')?;
    Some((CallId::parse(call).ok()?, END.iter().position(|known| *known == end)?))
}

fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn place(key: Key, stream: usize) -> String {
    format!("{} {} {}", key.run, key.call, END[stream])
}
