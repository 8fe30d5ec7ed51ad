//! Lists the directories of a root's layer that hide the directory beneath.
//!
//! The mark is the attribute `trusted.overlay.opaque`, which only root can read, so the host worker cannot. This code opens directories
//! alone, name by name, follows no link and reads no file. No process of the run changes the layer meanwhile, because it is frozen.

use std::ffi::CStr;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fgetxattr, openat, statat};
use rustix::io::Errno;

/// Most levels of directories, as in the copy of the layer.
const MAX_DEPTH: usize = 128;
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const MARK: &str = "trusted.overlay.opaque";

/// Returns the paths of the marked directories, each ended by a zero byte, in the order of the names' bytes.
pub(crate) fn opaque(layer: &OwnedFd, most: u64) -> Result<Vec<u8>, Errno> {
    let top = openat(layer, ".", DIRECTORY, Mode::empty())?;
    let mut walk = Walk { left: most, path: Vec::new(), found: Vec::new() };
    walk.directory(&top, 0)?;
    Ok(walk.found)
}

struct Walk {
    /// Names that may still be read.
    left: u64,
    path: Vec<u8>,
    found: Vec<u8>,
}

impl Walk {
    fn directory(&mut self, directory: &OwnedFd, depth: usize) -> Result<(), Errno> {
        if depth > MAX_DEPTH {
            return Err(Errno::NAMETOOLONG);
        }
        if fgetxattr(directory, MARK, &mut [0_u8; 2][..]).is_ok_and(|length| length > 0) {
            self.found.extend_from_slice(&self.path);
            self.found.push(0);
        }
        let mut names = Vec::new();
        for entry in Dir::read_from(directory)? {
            let name = entry?.file_name().to_owned();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            self.left = self.left.checked_sub(1).ok_or(Errno::OVERFLOW)?;
            names.push(name);
        }
        names.sort_unstable();
        for name in names {
            self.name(directory, &name, depth)?;
        }
        Ok(())
    }

    fn name(&mut self, directory: &OwnedFd, name: &CStr, depth: usize) -> Result<(), Errno> {
        let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if !FileType::from_raw_mode(stat.st_mode).is_dir() {
            return Ok(());
        }
        let above = self.path.len();
        if above > 0 {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name.to_bytes());
        self.directory(&openat(directory, name, DIRECTORY, Mode::empty())?, depth + 1)?;
        self.path.truncate(above);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::{XattrFlags, lsetxattr, open};

    use super::*;

    #[test]
    fn only_marked_directories_are_listed_and_links_are_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let layer = place.path().join("upper");
        for name in ["etc/a/b", "usr/new"] {
            fs::create_dir_all(layer.join(name)).unwrap();
        }
        fs::create_dir(place.path().join("outside")).unwrap();
        symlink("../outside", layer.join("link")).unwrap();
        fs::write(layer.join("file"), "").unwrap();
        for marked in [layer.join("etc/a"), layer.join("usr/new"), place.path().join("outside")] {
            lsetxattr(marked, MARK, b"y", XattrFlags::empty()).unwrap();
        }
        let handle = open(&layer, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        assert_eq!(opaque(&handle, 100).unwrap(), b"etc/a\0usr/new\0");
        assert_eq!(opaque(&handle, 3), Err(Errno::OVERFLOW));
    }
}
