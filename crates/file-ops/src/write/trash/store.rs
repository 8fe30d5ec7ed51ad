//! The files of an entry.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{SystemTime, UNIX_EPOCH};

use operations::{TRASH_RECORD_SUFFIX, TrashEntry, TrashRecord};
use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;

/// Claims an unused name by creating an empty file.
pub(super) fn claim(trash: &OwnedFd, job: u64) -> io::Result<TrashEntry> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let deleted_unix_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    let mut entry = TrashEntry { deleted_unix_ms, job, count: 0 };
    loop {
        match create(trash, &entry.to_string()) {
            Ok(_) => return Ok(entry),
            // Taken by the same operation, or by an earlier host worker if the clock was set back.
            Err(Errno::EXIST) => entry.count += 1,
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Opens the claimed file for its content.
pub(super) fn content(trash: &OwnedFd, entry: TrashEntry) -> io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(trash, entry.to_string(), flags, Mode::empty())?)
}

/// Writes the entry's description, whole or not at all. From then on it is an entry.
pub(super) fn describe(trash: &OwnedFd, entry: TrashEntry, record: &TrashRecord) -> io::Result<()> {
    let mut text = serde_json::to_vec(record)?;
    text.push(b'\n');
    let draft = draft_name(entry);
    let mut file = File::from(create(trash, &draft)?);
    file.write_all(&text)?;
    file.sync_all()?;
    Ok(renameat(trash, draft, trash, record_name(entry))?)
}

/// Removes the entry's files, the description first. A file that cannot be removed stays until the run is deleted.
pub(super) fn remove(trash: &OwnedFd, entry: TrashEntry) {
    for name in [record_name(entry), draft_name(entry), entry.to_string()] {
        let _ = unlinkat(trash.as_fd(), name, AtFlags::empty());
    }
}

pub(super) fn record_name(entry: TrashEntry) -> String {
    format!("{entry}{TRASH_RECORD_SUFFIX}")
}

/// Returns the name of the description while it is written.
fn draft_name(entry: TrashEntry) -> String {
    format!("{entry}{TRASH_RECORD_SUFFIX}.new")
}

fn create(trash: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(trash, name, flags, Mode::RUSR | Mode::WUSR)
}
