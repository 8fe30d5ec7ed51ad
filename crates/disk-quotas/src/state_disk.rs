//! The disk that has the state directory: its free space, and the operations that this space allows.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use operations::{Effect, Evidence, FILE_SYSTEM, Fault, Operation, Reason, ToolFailure};
use parking_lot::Mutex;
use refusal::Refusal;
use tokio::sync::Notify;
use wire::v1;

use crate::account::Account;
use crate::disk::{Disk, Free};

/// Free space that the daemon wants on its disk, in bytes. On a small disk it wants less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// Free space below which operators are warned.
    pub warn_free: u64,
    /// Free space below which no run writes. The rest is for the daemon, first of all for its audit log.
    pub min_free: u64,
}

/// Classification of the free space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    Enough,
    Low,
    Full,
}

impl Level {
    /// Returns the name for the audit log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enough => "enough",
            Self::Low => "low",
            Self::Full => "full",
        }
    }

    fn to_wire(self) -> v1::state_disk::State {
        match self {
            Self::Enough => v1::state_disk::State::Enough,
            Self::Low => v1::state_disk::State::Low,
            Self::Full => v1::state_disk::State::Full,
        }
    }

    fn from_number(number: u8) -> Self {
        [Self::Enough, Self::Low].into_iter().find(|level| *level as u8 == number).unwrap_or(Self::Full)
    }
}

/// The disk, as calls and clients see it.
pub struct Quotas {
    disk: Arc<Disk>,
    /// Disk of the engine, if it is another one.
    engine: Mutex<Option<Arc<Disk>>>,
    thresholds: Thresholds,
    level: AtomicU8,
    /// Notified when a caller waits for a look.
    pub look: Notify,
    /// True while the watch looks seldom, because no command runs.
    rests: AtomicBool,
    /// Notified when a command begins in that time.
    pub begins: Notify,
}

impl Quotas {
    pub fn open(state: &Path, thresholds: Thresholds) -> io::Result<Self> {
        let disk = Arc::new(Disk::open(state, "state-disk", thresholds.warn_free)?);
        Ok(Self {
            disk,
            engine: Mutex::default(),
            thresholds,
            level: AtomicU8::new(Level::Enough as u8),
            look: Notify::new(),
            rests: AtomicBool::new(true),
            begins: Notify::new(),
        })
    }

    /// Refuses an operation that would add to the disk of a run whose quota is used up, or to a full disk.
    pub fn check(&self, account: &Account, operation: &Operation) -> Result<(), Refusal> {
        let checked = account.check(operation);
        if checked.is_err() {
            // Files may have been deleted since the last look.
            self.look.notify_one();
        }
        checked?;
        let runs_something = operation.effect() == Effect::Runs;
        if runs_something && self.rests.swap(false, Ordering::SeqCst) {
            self.begins.notify_one();
        }
        if self.level() == Level::Full && (runs_something || account.adds(operation)) {
            let failure = ToolFailure::new(
                Reason::WriteLimit,
                "the daemon's disk is full, so writes and commands are refused until there is space: delete files that are not needed, or ask the operator",
            );
            return Err(of_the_host(failure).into());
        }
        Ok(())
    }

    /// Puts a write that found no space down to the host, if its disk is full and the run is within its quota.
    #[must_use]
    pub fn judge(&self, account: &Account, failure: ToolFailure) -> ToolFailure {
        let is_of_space = failure.details.get("limit").is_some_and(|limit| limit == FILE_SYSTEM);
        if !is_of_space || account.is_over() {
            return failure;
        }
        let is_full = self.free().is_ok_and(|free| self.thresholds.level(free, self.level()) == Level::Full);
        if is_full { of_the_host(failure) } else { failure }
    }

    /// Asks the watch for a look, after a deletion or for another reason.
    pub fn look_again(&self) {
        self.look.notify_one();
    }

    /// Makes the next command wake the watch. The watch calls this before it checks which runs are in use.
    pub fn rest(&self) {
        self.rests.store(true, Ordering::SeqCst);
    }

    /// Records that the watch looks often, so that commands need not wake it.
    pub fn watches(&self) {
        self.rests.store(false, Ordering::SeqCst);
    }

    /// Returns the state of the disk for clients.
    pub fn to_wire(&self, by_kernel: bool) -> Option<v1::StateDisk> {
        let free = self.free().ok()?;
        Some(v1::StateDisk {
            free_bytes: free.bytes,
            total_bytes: free.total_bytes,
            free_files: free.files,
            state: self.level().to_wire().into(),
            kernel: by_kernel,
        })
    }

    pub fn free(&self) -> io::Result<Free> {
        self.disk.free()
    }

    /// Returns the disk of the state directory.
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Returns the disk on which the engine has this directory. If the daemon does not see it, that is the state disk.
    pub fn engine_disk(&self, directory: &Path) -> Arc<Disk> {
        let Ok(found) = Disk::open(directory, "engine-disk", self.thresholds.warn_free) else {
            return self.disk.clone();
        };
        let mut engine = self.engine.lock();
        let known = || [Some(&self.disk), engine.as_ref()].into_iter().flatten();
        let same = known().find(|known| known.is_same(&found)).cloned();
        same.unwrap_or_else(|| engine.insert(Arc::new(found)).clone())
    }

    pub fn level(&self) -> Level {
        Level::from_number(self.level.load(Ordering::Relaxed))
    }

    /// Records the free space. Returns the level, and true if it has changed.
    pub fn take(&self, free: Free) -> (Level, bool) {
        let before = self.level();
        let level = self.thresholds.level(free, before);
        self.level.store(level as u8, Ordering::Relaxed);
        (level, level != before)
    }
}

/// Puts a failure down to the host. The numbers of its disk are for operators.
fn of_the_host(failure: ToolFailure) -> ToolFailure {
    let failure = failure.with("limit", "state-disk").by(Fault::Infrastructure);
    failure.shown_by(Evidence::new("disk.state", Level::Full.as_str()))
}

impl Thresholds {
    /// Returns the level. To leave a level, the free space has to exceed its threshold by a tenth.
    fn level(self, free: Free, before: Level) -> Level {
        let less = |level: Level, most: u64, bytes_part: u64, files_part: u64| {
            let more =
                |number: u64| if before >= level { number.saturating_add(number / 10) } else { number };
            free.bytes < more(most.min(free.total_bytes / bytes_part))
                || free.files.is_some_and(|files| files < more(free.total_files / files_part))
        };
        if less(Level::Full, self.min_free, 20, 100) {
            Level::Full
        } else if less(Level::Low, self.warn_free, 10, 20) {
            Level::Low
        } else {
            Level::Enough
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const THRESHOLDS: Thresholds = Thresholds { warn_free: 1024 * MIB, min_free: 128 * MIB };

    fn free(free_mib: u64, total_mib: u64) -> Free {
        Free { bytes: free_mib * MIB, total_bytes: total_mib * MIB, files: None, total_files: 0 }
    }

    #[test]
    fn the_engine_s_disk_is_the_state_disk_unless_it_is_seen_to_be_another() {
        let place = tempfile::tempdir().unwrap();
        let quotas = Quotas::open(place.path(), THRESHOLDS).unwrap();
        let is_state = |path: &Path| Arc::ptr_eq(&quotas.engine_disk(path), &quotas.disk);
        assert!(is_state(place.path()) && is_state(Path::new("/nonexistent")) && is_state(Path::new("")));
        assert!(!is_state(Path::new("/proc")));
        let other = quotas.engine_disk(Path::new("/proc"));
        let again = quotas.engine_disk(Path::new("/proc/sys"));
        assert!(Arc::ptr_eq(&other, &again), "all transfers of an engine share its promises");
    }

    #[test]
    fn levels_begin_at_their_threshold_and_end_above_it() {
        let level = |free_mib, before| THRESHOLDS.level(free(free_mib, 100_000), before);
        assert_eq!(level(1_024, Level::Enough), Level::Enough);
        assert_eq!(level(1_023, Level::Enough), Level::Low);
        assert_eq!(level(1_100, Level::Low), Level::Low);
        assert_eq!(level(1_127, Level::Low), Level::Enough);
        assert_eq!(level(127, Level::Low), Level::Full);
        assert_eq!(level(130, Level::Full), Level::Full);
        assert_eq!(level(141, Level::Full), Level::Low);
        for known in [Level::Enough, Level::Low, Level::Full] {
            assert_eq!(Level::from_number(known as u8), known);
        }
    }

    #[test]
    fn a_small_disk_is_not_always_full() {
        let level = |free_mib| THRESHOLDS.level(free(free_mib, 64), Level::Enough);
        assert_eq!((level(7), level(5), level(2)), (Level::Enough, Level::Low, Level::Full));
    }

    #[test]
    fn inodes_count() {
        let level = |files| {
            let free = Free { files: Some(files), total_files: 10_000, ..free(9_000, 10_000) };
            THRESHOLDS.level(free, Level::Enough)
        };
        assert_eq!((level(500), level(499), level(99)), (Level::Enough, Level::Low, Level::Full));
    }
}
