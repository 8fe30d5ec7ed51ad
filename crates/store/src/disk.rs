//! The file system that the state directory is on: whether there is room for calls, and a reserve for a start without any.
//!
//! ```text
//!  ROOMY ──less than the floor is free──► FULL ──twice the floor is free──► ROOMY
//!  calls are taken                         runs and workspaces are listed, stopped and deleted; no new call or run
//! ```
//!
//! The floor is what the audit log has left for the ends of calls under way and for what makes room again. A daemon that starts
//! on a full disk needs some room itself: it gives up a part of a file that was kept for this, and after that the oldest outputs
//! of commands. The reserve is made again when there is room.

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

/// The wait between two checks of the disk.
const TICK: Duration = Duration::from_secs(1);
/// Between attempts to start without any room.
const AGAIN: Duration = Duration::from_secs(2);
/// What a start needs, bytes.
const START: u64 = 512 * 1024;
/// Fewer free inodes are as good as none.
const MIN_FILES: u64 = 64;

/// What a file system has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Space {
    pub(crate) total: u64,
    /// Bytes that the daemon may still use.
    pub(crate) free: u64,
    has_files: bool,
}

impl Space {
    /// Of the file system that `path` is on.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let system = rustix::fs::statvfs(path)?;
        Ok(Self {
            total: system.f_blocks.saturating_mul(system.f_frsize),
            free: system.f_bavail.saturating_mul(system.f_frsize),
            // A file system without a limit of inodes says that it has none.
            has_files: system.f_files == 0 || system.f_favail >= MIN_FILES,
        })
    }

    /// Free bytes below which no call is taken.
    fn floor(self) -> u64 {
        (self.total / 32).clamp(1 << 20, 16 << 20)
    }

    /// Bytes of the reserve.
    fn reserve(self) -> u64 {
        (self.total / 16).clamp(2 << 20, 32 << 20)
    }

    fn has(self, bytes: u64) -> bool {
        self.has_files && self.free >= bytes
    }
}

/// The state directory's file system. One for the daemon.
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

    /// Whether it is full, and changes of that.
    pub fn follow(&self) -> watch::Receiver<bool> {
        self.full.subscribe()
    }

    /// Returns when there is room for a start, if need be by giving something up. Until then nothing can be served: the log could
    /// not even be opened. Blocks.
    pub fn make_room(&self) {
        while Space::of(&self.directory).is_ok_and(|space| !space.has(START)) {
            match self.give_up() {
                Ok(Some(what)) => {
                    tracing::error!("the state disk is full: {what} was given up for this start");
                }
                Ok(None) => {
                    tracing::error!(
                        "the state disk is full, and nothing in it can be given up: make room, the daemon waits for it"
                    );
                    std::thread::sleep(AGAIN);
                }
                Err(error) => {
                    tracing::error!(%error, "the state disk is full, and no room can be made");
                    std::thread::sleep(AGAIN);
                }
            }
        }
    }

    /// A part of the reserve, or the oldest output of a command. What it was; nothing when there is neither.
    fn give_up(&self) -> io::Result<Option<&'static str>> {
        let reserve = OpenOptions::new().write(true).open(self.reserve());
        if let Ok(reserve) = reserve {
            let length = reserve.metadata()?.len();
            if length > 0 {
                // Some stays for the next start without room.
                reserve.set_len(length - (length / 2).max(START * 2).min(length))?;
                return Ok(Some("a part of the reserve"));
            }
        }
        Ok(remove_oldest(&self.directory.join("spool"))?.then_some("the oldest output of a command"))
    }

    /// Looks again and again, and keeps the reserve. In a thread of its own: a disk that hangs costs this watch alone, and
    /// work that comes every second would keep each idle thread of the runtime from ending.
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
        // One that cannot be asked is what it was.
        let Ok(space) = Space::of(&self.directory) else { return };
        let was = *self.full.borrow();
        let full = !space.has(if was { 2 * space.floor() } else { space.floor() });
        if full != was {
            if full {
                tracing::error!(
                    free = space.free,
                    "the state disk is full: no call and no new run is taken until there is room; runs and workspaces can be \
                     deleted"
                );
            } else {
                tracing::warn!(free = space.free, "the state disk has room again");
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

/// Removes the oldest output in the spool: ids of calls, which files are named by, sort by time. Whether there was one.
fn remove_oldest(spool: &Path) -> io::Result<bool> {
    let mut outputs = Vec::new();
    for run in std::fs::read_dir(spool)?.flatten() {
        for output in std::fs::read_dir(run.path()).into_iter().flatten().flatten() {
            outputs.push((output.file_name(), output.path()));
        }
    }
    outputs.sort_unstable();
    for (_, path) in outputs {
        // An empty one makes no room.
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
            "without an inode there is no room"
        );
    }

    #[test]
    fn a_start_without_room_gets_the_reserve_in_parts_and_then_the_oldest_outputs() {
        let place = tempfile::tempdir().unwrap();
        let disk = StateDisk::of(place.path());
        let reserve = place.path().join("reserve");
        let whole = metadata(&reserve).unwrap().len();
        assert!(whole >= 2 << 20, "made where there is room");
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
