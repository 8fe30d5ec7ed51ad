//! Files that the index does not have: by file, or by directory where it has nothing in it at all.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{AtFlags, Dir, FileType, statat};

use super::{DEPTH, Walk, denied, open};
use crate::git::error::GitError;

/// A name in a directory.
pub(super) struct Listed {
    name: Box<[u8]>,
    kind: FileType,
    is_tracked: bool,
}

/// What is in a directory, in the order of the names. Without `.git`, which is never part of a work tree.
pub(super) fn list(directory: BorrowedFd<'_>) -> Result<Vec<Listed>, GitError> {
    let failed = |errno| denied(b"a directory", errno);
    let mut listed = Vec::new();
    for entry in Dir::read_from(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b".." | b".git") {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => statat(directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)
                .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
            kind => kind,
        };
        listed.push(Listed { name: name.into(), kind, is_tracked: false });
    }
    listed.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    Ok(listed)
}

/// The index has this name, if it is of such a kind.
pub(super) fn take_out(listed: &mut [Listed], name: &[u8], is_it: impl Fn(FileType) -> bool) {
    let at = listed.binary_search_by(|each| (*each.name).cmp(name));
    if let Some(each) = at.ok().and_then(|at| listed.get_mut(at)).filter(|each| is_it(each.kind)) {
        each.is_tracked = true;
    }
}

impl Walk<'_> {
    /// What is left of a directory's names.
    pub(super) fn untracked(
        &mut self,
        directory: BorrowedFd<'_>,
        path: &mut Vec<u8>,
        listed: &[Listed],
        depth: usize,
    ) -> Result<(), GitError> {
        let length = path.len();
        for each in listed.iter().filter(|each| !each.is_tracked) {
            path.extend_from_slice(&each.name);
            if self.shows(directory, each, path, depth)? {
                self.found.untracked.push(path.clone());
            }
            path.truncate(length);
        }
        Ok(())
    }

    /// Whether it is neither ignored nor empty nor of a kind that git does not see. A directory's path gets its slash.
    fn shows(
        &self,
        directory: BorrowedFd<'_>,
        each: &Listed,
        path: &mut Vec<u8>,
        depth: usize,
    ) -> Result<bool, GitError> {
        match each.kind {
            FileType::RegularFile | FileType::Symlink => Ok(!self.is_ignored(path)?),
            FileType::Directory => {
                path.push(b'/');
                if self.is_ignored(path)? {
                    return Ok(false);
                }
                let Ok(inner) = open(directory, &each.name) else { return Ok(false) };
                // One that is a repository is not looked into.
                if is_repository(inner.as_fd()) || depth >= DEPTH {
                    return Ok(true);
                }
                let length = path.len();
                for each in list(inner.as_fd())? {
                    path.extend_from_slice(&each.name);
                    let shows = self.shows(inner.as_fd(), &each, path, depth + 1)?;
                    path.truncate(length);
                    if shows {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            _ => Ok(false),
        }
    }

    fn is_ignored(&self, path: &[u8]) -> Result<bool, GitError> {
        use std::os::unix::ffi::OsStrExt;
        let path = std::path::Path::new(std::ffi::OsStr::from_bytes(path));
        Ok(self.contents.repository.is_path_ignored(path)?)
    }
}

/// Whether there is a `.git` in it that git would take for one.
fn is_repository(directory: BorrowedFd<'_>) -> bool {
    let kind = |path| {
        statat(directory, path, AtFlags::SYMLINK_NOFOLLOW)
            .ok()
            .map(|stat| FileType::from_raw_mode(stat.st_mode))
    };
    match kind(".git") {
        Some(FileType::Directory) => {
            kind(".git/HEAD").is_some()
                && kind(".git/objects") == Some(FileType::Directory)
                && kind(".git/refs") == Some(FileType::Directory)
        }
        other => other.is_some(),
    }
}
