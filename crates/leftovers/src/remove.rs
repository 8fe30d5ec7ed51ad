//! Removes a directory that an agent may have filled.
//!
//! The usual walk needs one call and one open directory for each level. A tree of some thousand levels, which an agent makes in a second,
//! would overflow the daemon's stack or take all of its file descriptors. This code moves a directory that is not empty up into the first
//! one instead, so that depth costs neither. It follows no symbolic link.
//!
//! The agent may have taken all rights to a directory from its owner. A daemon that is that owner, and not root, takes them back first.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, chmod, openat, renameat, unlinkat};
use rustix::io::Errno;

const OPEN: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Opens a directory without any right to it.
const HANDLE: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Removes the directory and its contents. Logs a failure.
pub async fn remove_tree(path: PathBuf) {
    let removed = tokio::task::spawn_blocking(move || remove(&path).map_err(|error| (path, error))).await;
    if let Ok(Err((path, error))) = removed {
        tracing::warn!(path = %path.display(), error = %error, "a directory of a run was not removed");
    }
}

/// Removes the directories in `directory` whose names `is_kept` does not keep.
pub async fn remove_others(directory: &Path, is_kept: impl Fn(&OsStr) -> bool) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        if !is_kept(&entry.file_name()) {
            remove_tree(entry.path()).await;
        }
    }
}

/// Removes the directories in `directory` whose names `is_known` does not know, and logs each. Names that are no text stay.
pub async fn remove_unknown(directory: &Path, is_known: impl Fn(&str) -> bool) {
    let is_kept = |name: &OsStr| {
        let unknown = name.to_str().filter(|name| !is_known(name));
        if let Some(name) = unknown {
            let path = directory.join(name);
            tracing::warn!(path = %path.display(), "removing a tree that was not made completely, or was deleted");
        }
        unknown.is_none()
    };
    remove_others(directory, is_kept).await;
}

fn remove(path: &Path) -> io::Result<()> {
    let root = match open(CWD, path) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened?,
    };
    let mut moved = 0;
    // Entries that were moved up, or that appeared during the scan, are removed in the next round.
    while round(&root, &mut moved)? {}
    unlinkat(CWD, path, AtFlags::REMOVEDIR)?;
    Ok(())
}

/// Removes the entries of `root`. Returns true if there were any.
fn round(root: &OwnedFd, moved: &mut u64) -> Result<bool, Errno> {
    let mut any = false;
    for entry in Dir::read_from(root)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        any = true;
        if unlink(root, name)? {
            continue;
        }
        let directory = match open(root, name) {
            // The entry has become another type. The next round handles it.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
            opened => opened?,
        };
        for below in Dir::read_from(&directory)? {
            let below = below?;
            let name = below.file_name();
            if !matches!(name.to_bytes(), b"." | b"..") && !unlink(&directory, name)? {
                move_up(&directory, name, root, moved)?;
            }
        }
        unlink(root, name)?;
    }
    Ok(any)
}

/// Opens a directory that is to be emptied, and gives its owner all rights to it.
fn open(parent: impl AsFd, name: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    let handle = openat(parent, name, HANDLE, Mode::empty())?;
    // The mode of such a handle can be changed only by this name, which leads to exactly this directory. If the directory is another
    // user's, the next call fails.
    let _ = chmod(format!("/proc/self/fd/{}", handle.as_raw_fd()), Mode::RWXU);
    openat(handle, c".", OPEN, Mode::empty())
}

/// Unlinks a name. Returns false if it is a directory that is not empty.
fn unlink(directory: &OwnedFd, name: &std::ffi::CStr) -> Result<bool, Errno> {
    match unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(true),
        // Errors of unlink(2) for a directory, on Linux and elsewhere.
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(errno),
    }
    match unlinkat(directory, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(errno) => Err(errno),
    }
}

fn move_up(from: &OwnedFd, name: &std::ffi::CStr, root: &OwnedFd, moved: &mut u64) -> Result<(), Errno> {
    let mut opened = false;
    loop {
        let free = format!(".removed-{moved}");
        *moved += 1;
        match renameat(from, name, root, free) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            // The kernel changes `..` in the directory that moves.
            Err(Errno::ACCESS) if !opened => {
                open(from, name)?;
                opened = true;
            }
            // The name is in use.
            Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR | Errno::ISDIR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use rustix::fs::{Mode, mkdirat, open, openat};
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

    use super::{OPEN, remove, remove_unknown};

    #[test]
    fn trees_that_no_row_knows_are_removed() {
        let place = tempfile::tempdir().unwrap();
        for name in ["kept", "kept.part", "gone", "gone.part"] {
            std::fs::create_dir_all(place.path().join(name).join("a")).unwrap();
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            remove_unknown(place.path(), |name| name == "kept").await;
            remove_unknown(&place.path().join("none"), |_| false).await;
        });
        let left = std::fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(left.collect::<Vec<_>>(), ["kept"]);
    }

    #[test]
    fn a_tree_deeper_than_any_stack_is_removed_and_link_targets_stay() {
        let place = tempfile::tempdir().unwrap();
        let outside = place.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("kept"), "").unwrap();
        let tree = place.path().join("tree");
        std::fs::create_dir_all(tree.join("a/b/c")).unwrap();
        for name in ["file", "a/file", "a/b/file", ".removed-0", "a/b/c/.removed-1"] {
            std::fs::write(tree.join(name), "x").unwrap();
        }
        std::fs::create_dir_all(tree.join(".removed-2/full")).unwrap();
        symlink(&outside, tree.join("link")).unwrap();
        symlink(&outside, tree.join("a/b/link")).unwrap();
        let mut at = open(&tree, OPEN, Mode::empty()).unwrap();
        for _ in 0..5_000 {
            mkdirat(&at, "d", Mode::RWXU).unwrap();
            at = openat(&at, "d", OPEN, Mode::empty()).unwrap();
        }

        let path = tree.clone();
        let small = std::thread::Builder::new().stack_size(128 * 1024);
        small.spawn(move || remove(&path)).unwrap().join().unwrap().unwrap();
        assert!(!tree.exists());
        assert!(outside.join("kept").exists());
        remove(&tree).unwrap();
    }

    #[test]
    fn c4_closed_directories_are_removed_and_link_targets_keep_their_modes() {
        let place = tempfile::tempdir().unwrap();
        let outside = place.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        set_permissions(&outside, Permissions::from_mode(0o500)).unwrap();
        let tree = place.path().join("tree");
        for closed in ["a", "b/c/d", "e/f/g/h", "i"] {
            std::fs::create_dir_all(tree.join(closed)).unwrap();
            std::fs::write(tree.join(closed).join("file"), "x").unwrap();
            symlink(&outside, tree.join(closed).join("link")).unwrap();
        }
        for (closed, mode) in [
            ("a", 0),
            ("b/c/d", 0),
            ("b/c", 0o500),
            ("e/f/g/h", 0),
            ("e/f/g", 0),
            ("e/f", 0),
            ("e", 0),
            ("", 0),
        ] {
            set_permissions(tree.join(closed), Permissions::from_mode(mode)).unwrap();
        }

        let path = tree.clone();
        let unprivileged = std::thread::spawn(move || {
            // They belong to a thread.
            let mut sets = capabilities(None).unwrap();
            sets.effective = CapabilitySet::empty();
            set_capabilities(None, sets).unwrap();
            remove(&path)
        });
        unprivileged.join().unwrap().unwrap();
        assert!(!tree.exists());
        assert_eq!(std::fs::metadata(&outside).unwrap().permissions().mode() & 0o777, 0o500);
    }
}
