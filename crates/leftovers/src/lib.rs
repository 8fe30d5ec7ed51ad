#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod mountinfo;
mod remove;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::mount::{UnmountFlags, unmount};

pub use remove::{remove_others, remove_tree, remove_unknown};

/// Label of a daemon's containers. Its value is the id of the daemon's state directory.
pub const LABEL_INSTANCE: &str = "io.cofferdam.instance";

/// Returns the mounts below `directory`, deepest first. A mount on `directory` itself is not one of them.
pub fn mounts_below(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let table = fs::read("/proc/self/mountinfo")?;
    Ok(below(&fs::canonicalize(directory)?, &table))
}

/// `directory` is absolute and without symbolic links, as the paths of the table are.
fn below(directory: &Path, table: &[u8]) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = mountinfo::entries(table)
        .map(|entry| entry.mount_point)
        .filter(|point| point != directory && point.starts_with(directory))
        .collect();
    // If a path has several mounts, the later one is on top. Reversing a stable sort puts it first.
    found.sort_by_key(|point| point.components().count());
    found.reverse();
    found
}

/// Takes the topmost mount away from a path. Its users keep it until they close their files.
pub fn detach(point: &Path) -> io::Result<()> {
    Ok(unmount(point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_below_a_directory_are_found_deepest_and_topmost_first() {
        let table = b"\
            22 1 8:1 / / rw - ext4 /dev/vda rw\n\
            29 22 8:1 /w /var/tmp/a rw - ext4 /dev/vda rw\n\
            30 22 8:1 /w /var/tmp/a/state/mounts/1 rw - ext4 /dev/vda rw\n\
            31 30 8:1 /w /var/tmp/a/state/mounts/1/with\\040space rw - ext4 /dev/vda rw\n\
            32 22 8:1 /w /var/tmp/ab/state rw - ext4 /dev/vda rw\n\
            33 30 8:1 /w /var/tmp/a/state/mounts/1 rw - ext4 /dev/vda rw\n";
        let slot = PathBuf::from("/var/tmp/a/state/mounts/1");
        assert_eq!(below(Path::new("/var/tmp/a"), table), [slot.join("with space"), slot.clone(), slot]);
    }

    #[test]
    fn a_directory_without_mounts_has_none_below_it() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(mounts_below(directory.path()).unwrap(), Vec::<PathBuf>::new());
        let gone = mounts_below(&directory.path().join("gone")).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }
}
