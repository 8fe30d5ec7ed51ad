//! Notes of temporary files. A note is written before its file is made, and removed when the file is removed or in
//! place.
//!
//! A process that is killed in between leaves the file and its note. So the next process knows exactly which files to
//! remove, and where. It neither walks a tree that an agent has made, nor trusts a name, which an agent can give to any
//! file.
//!
//! A note is a link without a target file: its name is `JOB.RANDOM`, its text the directory as a [`SandboxPath`]. It
//! takes one system call, and is metadata, which a journalling file system commits before the temporary file that comes
//! after it. Notes are not synced, because that would double the cost of each write. So they survive every death of a
//! process, and also a power loss if they and the workspace are on one such file system.
//! and against a loss of power where they and the workspace are on one such file system.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags, readlinkat, symlinkat, unlinkat};
use rustix::io::Errno;

use crate::name::EntryName;
use crate::path::SandboxPath;
use crate::private::{Keeps, Private, Whose};
use crate::rel::MAX_PATH_BYTES;
use crate::resolve::open_confined;
use crate::temporary_name::{is_random, name_of};

/// Most bytes of a path as text: the longest alias, a slash, and the path beneath it.
const MAX_TEXT: usize = MAX_PATH_BYTES + 16;

/// A note on disk. Dropping this value keeps it: [`Self::remove`] removes it when there is no file left to find.
#[derive(Debug)]
pub(crate) struct Note {
    notes: OwnedFd,
    name: String,
}

impl Note {
    /// Notes that a temporary file with these random digits will be made in `directory`.
    pub(crate) fn make(private: &Private, directory: &SandboxPath, random: &str) -> Result<Self, Errno> {
        let notes = private.open_or_make(Keeps::Temporaries)?;
        let name = format!("{}.{random}", private.job());
        let text = directory.to_string();
        match symlinkat(&text, &notes, &name) {
            // Some file systems do not store a link text as long as the longest path.
            Err(Errno::NAMETOOLONG) => make_file(&notes, &name, text.as_bytes())?,
            made => made?,
        }
        Ok(Self { notes, name })
    }

    pub(crate) fn remove(&self) {
        // A note that remains refers to no file, and the next sweep removes it.
        let _ = unlinkat(&self.notes, &self.name, AtFlags::empty());
    }
}

fn make_file(notes: &OwnedFd, name: &str, text: &[u8]) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    let file = open_confined(notes, name.as_bytes(), flags, Mode::RUSR | Mode::WUSR)?;
    let mut left = text;
    while !left.is_empty() {
        left = &left[rustix::io::write(&file, left)?..];
    }
    Ok(())
}

/// Returns the name of the temporary file of a note. `None` if it is not a note, or a note of another operation.
pub(crate) fn temporary_of(note: &[u8], whose: Whose) -> Option<EntryName> {
    let (job, random) = str::from_utf8(note).ok()?.split_once('.')?;
    let job: u64 = job.parse().ok()?;
    let theirs = match whose {
        Whose::Everyone => true,
        Whose::Job(one) => job == one,
    };
    if theirs && is_random(random) { name_of(random) } else { None }
}

/// Returns the directory that a note names. `None` if the note is incomplete or not a note.
pub(crate) fn directory_of(notes: &OwnedFd, note: &[u8]) -> Result<Option<SandboxPath>, Errno> {
    let text = match readlinkat(notes, note, Vec::with_capacity(MAX_TEXT)) {
        Ok(text) => text.into_bytes(),
        Err(Errno::INVAL) => read_file(notes, note)?,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    Ok(String::from_utf8(text).ok().and_then(|text| text.parse().ok()))
}

fn read_file(notes: &OwnedFd, note: &[u8]) -> Result<Vec<u8>, Errno> {
    let file = open_confined(notes, note, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY, Mode::empty())?;
    let mut text = vec![0; MAX_TEXT];
    let mut length = 0;
    while length < text.len() {
        match rustix::io::read(&file, &mut text[length..])? {
            0 => break,
            read => length += read,
        }
    }
    text.truncate(length);
    Ok(text)
}
