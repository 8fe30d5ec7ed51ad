//! Removes copies that never became entries: their operation was killed before it could describe them.

use std::io;
use std::os::fd::OwnedFd;

use jail::{Jail, Keeps, Whose};
use operations::TrashEntry;
use rustix::fs::{AtFlags, Dir, statat};
use rustix::io::Errno;

use super::store::{record_name, remove};

/// Most names that one sweep examines: more than a trash holds.
const MOST: usize = 50_000;

/// Removes the leftovers of the operations of `whose`, which have ended.
pub(in crate::write) fn sweep(jail: &Jail, whose: Whose) -> io::Result<()> {
    let Some(private) = jail.private() else { return Ok(()) };
    let trash = private.directory(Keeps::Trash)?;
    for entry in entries(&trash)? {
        let theirs = match whose {
            Whose::Everyone => true,
            Whose::Job(job) => entry.job == job,
        };
        if theirs && statat(&trash, record_name(entry), AtFlags::SYMLINK_NOFOLLOW).err() == Some(Errno::NOENT)
        {
            remove(&trash, entry);
        }
    }
    Ok(())
}

fn entries(trash: &OwnedFd) -> Result<Vec<TrashEntry>, Errno> {
    let names = Dir::read_from(trash)?.take(MOST);
    let entry = |name: rustix::fs::DirEntry| TrashEntry::parse(name.file_name().to_str().ok()?);
    names.filter_map(|name| name.map(entry).transpose()).collect()
}
