//! Measures files that processes have open or mapped.
//!
//! A file without a name lives as long as a process has it open, and no directory walk finds it. Such files are found through `/proc`: the
//! kernel reports the size of each file that a descriptor or a mapping refers to. No file is opened.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, readlinkat, statat};

use super::Amount;

/// Largest number of files that are examined.
const MOST: usize = 100_000;
/// Suffix that the kernel adds to the path of such a file.
const DELETED: &[u8] = b" (deleted)";
const BLOCK: u64 = 512;

/// Returns the disk use of files without a name beneath `places` that these host processes have open.
///
/// `places` are directories as the processes see them. A process that has ended meanwhile counts as nothing. Blocks on `/proc`.
pub fn unnamed(pids: &[u32], places: &[&str]) -> Amount {
    held(pids, |target| target.ends_with(DELETED) && is_beneath(target, places), |has_name| !has_name)
}

/// Returns the disk use of all files beneath `places` that these processes have open, with or without a name.
pub fn open_files(pids: &[u32], places: &[&str]) -> Amount {
    held(pids, |target| is_beneath(target, places), |_has_name| true)
}

fn is_beneath(target: &[u8], places: &[&str]) -> bool {
    places.iter().any(|place| target.starts_with(place.as_bytes()))
}

/// Adds up the regular files whose path satisfies `is_of`, and for which `counts` accepts whether they have a name.
fn held(pids: &[u32], is_of: impl Fn(&[u8]) -> bool, counts: impl Fn(bool) -> bool) -> Amount {
    let mut seen = BTreeSet::new();
    let mut amount = Amount::default();
    let mut left = MOST;
    for pid in pids {
        for kind in ["fd", "map_files"] {
            let Some(directory) = open(&format!("/proc/{pid}/{kind}")) else { continue };
            let Ok(names) = Dir::read_from(&directory) else { continue };
            for name in names {
                let Ok(name) = name else { break };
                let name = name.file_name();
                let Ok(target) = readlinkat(&directory, name, Vec::new()) else { continue };
                if !is_of(target.to_bytes()) {
                    continue;
                }
                if left == 0 {
                    return amount;
                }
                left -= 1;
                // Follows the kernel's link to the file itself, even if the name now belongs to another file.
                let Ok(stat) = statat(&directory, name, AtFlags::empty()) else { continue };
                let is_file = FileType::from_raw_mode(stat.st_mode).is_file();
                if is_file && counts(stat.st_nlink > 0) && seen.insert((stat.st_dev, stat.st_ino)) {
                    amount.add(u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(BLOCK), 1);
                }
            }
        }
    }
    amount
}

fn open(path: &str) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, path, flags, Mode::empty()).ok()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    #[test]
    fn unlinked_open_files_are_counted_once() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        let own = [std::process::id()];
        let beneath = format!("{}/", place.path().display());
        let found = || unnamed(&own, &[&beneath]);
        fs::write(path("kept (deleted)"), vec![1; 1 << 20]).unwrap();
        let _kept = File::open(path("kept (deleted)")).unwrap();
        assert_eq!(found(), Amount::default());
        assert_eq!(open_files(&own, &[&beneath]), Amount { bytes: 1 << 20, files: 1 });

        fs::write(path("gone"), vec![1; 1 << 20]).unwrap();
        let open = File::open(path("gone")).unwrap();
        let _twice = open.try_clone().unwrap();
        fs::remove_file(path("gone")).unwrap();
        assert_eq!(found(), Amount { bytes: 1 << 20, files: 1 });
        assert_eq!(unnamed(&own, &["/nowhere/"]), Amount::default());
        // There is no such process.
        assert_eq!(unnamed(&[u32::MAX], &[&beneath]), Amount::default());
    }
}
