//! The file system of the state directory: detects that it is full, and keeps a reserve for a start on a full disk.
//!
//! ```text
//!  ROOMY ──less than the floor is free──► FULL ──twice the floor is free──► ROOMY
//!  calls are taken                         runs and workspaces are listed, stopped and deleted; no new call or run
//! ```
//!
//! The floor is the space that the audit log needs for the ends of current calls, and for the operations that free space again. A daemon
//! that starts on a full disk needs some space itself. It gives up a part of a file that was kept for this, and after that the oldest
//! outputs of commands. The reserve is made again when there is space.

#![expect(clippy::disallowed_methods, reason = "the state directory itself, its reserve and its spool")]

use std::convert::Infallible;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use rustix::fs::{FallocateFlags, fallocate};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Interval between two checks of the disk.
const TICK: Duration = Duration::from_secs(1);
/// Interval between attempts to start without any space.
const AGAIN: Duration = Duration::from_secs(2);
/// Bytes that a start needs.
const START: u64 = 512 * 1024;
/// Number of free inodes below which the disk counts as full.
const MIN_FILES: u64 = 64;

/// Space of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Space {
    pub(crate) total: u64,
    /// Bytes that the daemon may still use.
    pub(crate) free: u64,
    has_files: bool,
}

impl Space {
    /// Queries the file system that contains `path`.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let system = rustix::fs::statvfs(path)?;
        Ok(Self {
            total: system.f_blocks.saturating_mul(system.f_frsize),
            free: system.f_bavail.saturating_mul(system.f_frsize),
            // A file system without a limit on inodes reports 0 of them.
            has_files: system.f_files == 0 || system.f_favail >= MIN_FILES,
        })
    }

    /// Returns the free bytes below which no call is accepted.
    fn floor(self) -> u64 {
        (self.total / 32).clamp(1 << 20, 16 << 20)
    }

    /// Returns the bytes of the reserve.
    fn reserve(self) -> u64 {
        (self.total / 16).clamp(2 << 20, 32 << 20)
    }

    fn has(self, bytes: u64) -> bool {
        self.has_files && self.free >= bytes
    }
}

/// The state directory's file system. There is one value for the daemon.
pub struct StateDisk {
    directory: PathBuf,
    full: watch::Sender<bool>,
}

impl StateDisk {
    pub fn of(directory: &Path) -> Self {
        let disk = Self { directory: directory.to_owned(), full: watch::Sender::new(false) };
        disk.look();
        disk
    }

    /// Returns a receiver that tells whether the disk is full, and of changes.
    pub fn follow(&self) -> watch::Receiver<bool> {
        self.full.subscribe()
    }

    /// Blocks until there is space for a start, and gives up files if necessary.
    ///
    /// Before that the daemon can serve no request: it could not even open the log.
    pub fn make_room(&self) {
        while Space::of(&self.directory).is_ok_and(|space| !space.has(START)) {
            match self.give_up() {
                Ok(Some(what)) => {
                    tracing::error!(
                        "the state disk is full: {what} was deleted to free space for this start"
                    );
                }
                Ok(None) => {
                    tracing::error!(
                        "the state disk is full, and the daemon has nothing to delete: free space, the \
                         daemon waits for it"
                    );
                    std::thread::sleep(AGAIN);
                }
                Err(error) => {
                    tracing::error!(%error, "the state disk is full, and no space can be freed");
                    std::thread::sleep(AGAIN);
                }
            }
        }
    }

    /// Gives up a part of the reserve, or the oldest output of a command.
    ///
    /// Returns a description for the log, or `None` if there is neither.
    fn give_up(&self) -> io::Result<Option<&'static str>> {
        let reserve = OpenOptions::new().write(true).open(self.reserve());
        if let Ok(reserve) = reserve {
            let length = reserve.metadata()?.len();
            if length > 0 {
                // Some remains for the next start without space.
                reserve.set_len(length - (length / 2).max(START * 2).min(length))?;
                return Ok(Some("a part of the reserve"));
            }
        }
        Ok(remove_oldest(&self.directory.join("spool"))?.then_some("the oldest output of a command"))
    }

    /// Checks the disk repeatedly, and maintains the reserve.
    ///
    /// This runs in a separate thread. A disk that hangs blocks only this thread. Work that comes every second would also keep each idle
    /// thread of the runtime from ending.
    pub async fn watch(self, stop: CancellationToken) {
        let (watching, over) = mpsc::channel::<Infallible>();
        let looking = move || {
            while over.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                self.look();
            }
        };
        match std::thread::Builder::new().name("state-disk".to_owned()).spawn(looking) {
            Ok(_) => stop.cancelled().await,
            Err(error) => tracing::error!(%error, "the state disk is not watched: no thread for it"),
        }
        drop(watching);
    }

    fn look(&self) {
        // If the disk cannot be queried, its state remains unchanged.
        let Ok(space) = Space::of(&self.directory) else { return };
        let was = *self.full.borrow();
        let full = !space.has(if was { 2 * space.floor() } else { space.floor() });
        if full != was {
            if full {
                tracing::error!(
                    free = space.free,
                    "the state disk is full: no call and no new run is taken until there is space; runs and workspaces can be \
                     deleted"
                );
            } else {
                tracing::warn!(free = space.free, "the state disk has space again");
            }
            self.full.send_replace(full);
        }
        if !full && let Err(error) = self.keep_reserve(space) {
            tracing::debug!(%error, "the reserve was not made");
        }
    }

    fn keep_reserve(&self, space: Space) -> io::Result<()> {
        let wanted = space.reserve();
        let reserve =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(self.reserve())?;
        let length = reserve.metadata()?.len();
        if length < wanted && space.has(wanted - length + 4 * space.floor()) {
            fallocate(&reserve, FallocateFlags::empty(), 0, wanted)?;
        }
        Ok(())
    }

    fn reserve(&self) -> PathBuf {
        self.directory.join("reserve")
    }
}

/// Removes the oldest output in the spool, and returns true if there was one. Files are named by call ids, which sort by time.
fn remove_oldest(spool: &Path) -> io::Result<bool> {
    let mut outputs = Vec::new();
    for run in std::fs::read_dir(spool)?.flatten() {
        for output in std::fs::read_dir(run.path()).into_iter().flatten().flatten() {
            outputs.push((output.file_name(), output.path()));
        }
    }
    outputs.sort_unstable();
    for (_, path) in outputs {
        // Removing an empty file frees no space.
        let has_some =
            File::open(&path).and_then(|file| file.metadata()).is_ok_and(|metadata| metadata.len() > 0);
        std::fs::remove_file(&path)?;
        if has_some {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, metadata, write};

    use super::{START, Space, StateDisk};

    fn space(total: u64, free: u64) -> Space {
        Space { total, free, has_files: true }
    }

    #[test]
    fn the_floor_and_the_reserve_fit_the_disk() {
        for (total, floor, reserve) in
            [(16 << 20, 1 << 20, 2 << 20), (256 << 20, 8 << 20, 16 << 20), (1 << 40, 16 << 20, 32 << 20)]
        {
            assert_eq!((space(total, 0).floor(), space(total, 0).reserve()), (floor, reserve));
        }
        assert!(
            !Space { has_files: false, ..space(1 << 40, 1 << 39) }.has(1),
            "without an inode there is no space"
        );
    }

    #[test]
    fn a_start_without_space_frees_the_reserve_in_parts_and_then_the_oldest_outputs() {
        let place = tempfile::tempdir().unwrap();
        let disk = StateDisk::of(place.path());
        let reserve = place.path().join("reserve");
        let whole = metadata(&reserve).unwrap().len();
        assert!(whole >= 2 << 20, "made where there is space");
        let (run, other) = (place.path().join("spool/run"), place.path().join("spool/other"));
        for (directory, name) in [(&run, "1.stdout"), (&other, "2.stdout"), (&run, "3.stdout")] {
            create_dir_all(directory).unwrap();
            write(directory.join(name), "x").unwrap();
        }
        write(other.join("0.stdout"), "").unwrap();
        let mut left = whole;
        while left > 0 {
            assert_eq!(disk.give_up().unwrap(), Some("a part of the reserve"));
            let length = metadata(&reserve).unwrap().len();
            assert!(left - length >= START, "enough for a start");
            left = length;
        }
        assert!(run.join("1.stdout").exists());
        for gone in [run.join("1.stdout"), other.join("2.stdout"), run.join("3.stdout")] {
            assert_eq!(disk.give_up().unwrap(), Some("the oldest output of a command"));
            assert!(!gone.exists());
        }
        assert_eq!(disk.give_up().unwrap(), None);
        disk.look();
        assert_eq!(metadata(&reserve).unwrap().len(), whole, "made again");
    }
}
