//! The ends of a shallow history, in the file `shallow` of a repository.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;

use git2::{Oid, Repository};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use crate::advertisement::{parse_id, trimmed};
use crate::error::RemoteError;

/// Longest file, bytes.
const LONGEST: u64 = 4 * 1024 * 1024;
/// Most ends that a server can make.
pub(crate) const MOST: usize = 100_000;

fn path(repository: &Repository, name: &str) -> PathBuf {
    repository.commondir().join(name)
}

fn failed(error: impl Into<io::Error>) -> RemoteError {
    RemoteError::Repository(format!("its file `shallow`: {}", error.into()))
}

/// Reads the ends. None if the history is whole.
pub(crate) fn read(repository: &Repository) -> Result<BTreeSet<Oid>, RemoteError> {
    // An agent may have put a FIFO or a link there.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match open(path(repository, "shallow"), flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(BTreeSet::new()),
        Err(errno) => return Err(failed(errno)),
    };
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() || metadata.len() > LONGEST {
        return Err(failed(io::ErrorKind::InvalidData));
    }
    let mut bytes = Vec::new();
    file.take(LONGEST).read_to_end(&mut bytes).map_err(failed)?;
    let lines = bytes.split_inclusive(|byte| *byte == b'\n').map(trimmed).filter(|line| !line.is_empty());
    lines.map(|line| parse_id(line).ok_or_else(|| failed(io::ErrorKind::InvalidData))).collect()
}

/// Replaces the file, or removes it if the history is whole.
pub(crate) fn write(repository: &Repository, ends: &BTreeSet<Oid>) -> Result<(), RemoteError> {
    let (file, lock) = (path(repository, "shallow"), path(repository, "shallow.lock"));
    if ends.is_empty() {
        return match std::fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
            _ => Ok(()),
        };
    }
    let mut text = String::new();
    for id in ends {
        text.push_str(&id.to_string());
        text.push('\n');
    }
    // The lock is the same as that of git: one that is there belongs to another program.
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut new = File::from(open(&lock, flags, Mode::from_raw_mode(0o644)).map_err(failed)?);
    let written = new.write_all(text.as_bytes()).and_then(|()| new.sync_all());
    let written = written.and_then(|()| std::fs::rename(&lock, file));
    if written.is_err() {
        // The error is the first one.
        let _ = std::fs::remove_file(&lock);
    }
    written.map_err(failed)
}
