//! Copies a part of a run for a checkpoint, with a list of the marks that an overlay has in its layer.
//!
//! The list has one entry for each mark: `w` and the path of a deleted name, or `o` and the path of a directory that hides the one
//! beneath. It also has each FIFO, socket and device that is not copied, as `s` and the path. A zero byte ends an entry. So no copy of a mark has an effect, wherever the copy is.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use host_launch::{Marks, TreeBounds};
use rustix::fs::{Mode, OFlags, mkdirat, open, openat};
use wire::v1::Base;

use crate::copying::DIRECTORY;
use crate::sys;
use crate::tree::{TreeFailure, walk_with};

/// Copies the source into `files` of the workspace, which is empty, and lists a layer's marks in `marks` of it.
pub(crate) fn save(most: TreeBounds, marks: Marks) -> Result<Base, TreeFailure> {
    save_in(Path::new("/source"), Path::new("/workspace"), most, marks, sys::is_abandoned)
}

fn save_in(
    from: &Path,
    into: &Path,
    most: TreeBounds,
    marks: Marks,
    is_abandoned: fn() -> bool,
) -> Result<Base, TreeFailure> {
    let failed = |name: &str, error| TreeFailure::Write { path: name.to_owned(), error };
    let top = open(into, DIRECTORY, Mode::empty()).map_err(io::Error::from)?;
    mkdirat(&top, "files", Mode::RWXU).map_err(|errno| failed("the copy", errno.into()))?;
    let (found, listed) = walk_with(from, Some(&into.join("files")), most, marks, is_abandoned)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let list = openat(&top, "marks", flags, Mode::RUSR | Mode::WUSR).map_err(io::Error::from);
    let written = list.and_then(|list| File::from(list).write_all(&listed));
    written.map_err(|error| failed("the list of deleted names", error))?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, chown};

    use rustix::fs::{CWD, FileType, XattrFlags, flistxattr, lsetxattr, mknodat};

    use super::*;

    const ALL: TreeBounds = TreeBounds { bytes: u64::MAX, files: u64::MAX };

    #[test]
    fn a_saved_layer_lists_its_marks_and_has_none() {
        let place = tempfile::tempdir().unwrap();
        let from = place.path().join("from");
        fs::create_dir_all(from.join("a/b")).unwrap();
        fs::write(from.join("a/file"), "content").unwrap();
        fs::write(from.join("z"), "last").unwrap();
        let into = |name: &str| {
            let into = place.path().join(name);
            fs::create_dir(&into).unwrap();
            into
        };
        let save = |name: &str, marks| save_in(&from, &into(name), ALL, marks, || false);
        lsetxattr(from.join("a"), "user.overlay.opaque", b"y", XattrFlags::empty()).unwrap();
        let without = save("one", Marks::Listed).unwrap();
        assert_eq!((without.files, without.size_bytes), (5, 11));
        assert_eq!(fs::read(place.path().join("one/marks")).unwrap(), b"oa\0");
        assert_eq!(fs::read(place.path().join("one/files/a/file")).unwrap(), b"content");
        mknodat(CWD, from.join("a/gone"), FileType::CharacterDevice, Mode::empty(), 0).unwrap();
        let saved = save("two", Marks::Listed).unwrap();
        assert_eq!((saved.files, saved.left_out), (6, 0));
        assert_ne!(saved.digest, without.digest);
        assert_eq!(fs::read(place.path().join("two/marks")).unwrap(), b"oa\0wa/gone\0");
        assert!(fs::symlink_metadata(place.path().join("two/files/a/gone")).is_err());
        let mut names = [0_u8; 64];
        assert_eq!(flistxattr(File::open(place.path().join("two/files/a")).unwrap(), &mut names[..]), Ok(0));
        let plain = save("three", Marks::Ignored).unwrap();
        assert_eq!((plain.files, plain.left_out), (5, 1), "it is no layer, so a device is a device");
        assert_eq!(fs::read(place.path().join("three/marks")).unwrap(), b"");
    }

    #[test]
    fn the_list_of_marks_is_within_the_bound_of_all_bytes() {
        let place = tempfile::tempdir().unwrap();
        let from = place.path().join("from");
        let deep = from.join("d".repeat(200)).join("d".repeat(200));
        fs::create_dir_all(&deep).unwrap();
        for number in 0..10 {
            mknodat(CWD, deep.join(number.to_string()), FileType::Fifo, Mode::RWXU, 0).unwrap();
        }
        let save = |name: &str, bytes| {
            let into = place.path().join(name);
            fs::create_dir(&into).unwrap();
            save_in(&from, &into, TreeBounds { bytes, ..ALL }, Marks::Listed, || false)
        };
        let refused = save("one", 4_000);
        assert!(matches!(refused, Err(TreeFailure::Bytes(4_000))), "{refused:?}");
        assert_eq!(save("two", 5_000).unwrap().left_out, 10);
        assert_eq!(fs::read(place.path().join("two/marks")).unwrap().len(), 10 * (2 * 201 + 3));
    }

    #[test]
    fn mount_points_of_the_engine_are_no_changes_of_a_layer() {
        let place = tempfile::tempdir().unwrap();
        let from = place.path().join("from");
        fs::create_dir(&from).unwrap();
        for (name, content, mode) in
            [("hosts", "", 0o600), ("own", "", 0o600), ("open", "", 0o644), ("filled", "x", 0o604)]
        {
            fs::write(from.join(name), content).unwrap();
            fs::set_permissions(from.join(name), Permissions::from_mode(mode)).unwrap();
            let is_given = name == "own" || chown(from.join(name), Some(4321), Some(4321)).is_ok();
            if !is_given {
                // Only root can give files away.
                return;
            }
        }
        let save = |name: &str, marks| {
            let into = place.path().join(name);
            fs::create_dir(&into).unwrap();
            save_in(&from, &into, ALL, marks, || false).map(|_| into.join("files"))
        };
        let saved = save("layer", Marks::Listed).unwrap();
        let has = ["hosts", "own", "open", "filled"].map(|name| saved.join(name).exists());
        assert_eq!(has, [false, true, true, true]);
        // In a plain directory it is a file that the owner cannot read.
        let refused = save("plain", Marks::Ignored).unwrap_err().to_string();
        assert_eq!(refused, "hosts: permission denied");
        fs::set_permissions(from.join("filled"), Permissions::from_mode(0o600)).unwrap();
        let refused = save("closed", Marks::Listed).unwrap_err().to_string();
        assert_eq!(refused, "filled: permission denied", "it has content, so it is no mount point");
    }
}
