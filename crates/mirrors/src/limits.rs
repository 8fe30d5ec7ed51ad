//! The limits for all mirrors, and the mirrors that go for others.

use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use operations::{Fault, Reason};
use refusal::Refusal;
use rustix::fs::statvfs;

/// Mirrors that are refreshed at the same time.
pub(crate) const AT_ONCE: usize = 4;
/// Least space for a refresh, bytes.
const LEAST: u64 = 1 << 20;

/// Limits for all mirrors of a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MirrorBounds {
    pub max_count: usize,
    /// Disk of all mirrors, bytes. A refresh may receive half of it.
    pub max_bytes: u64,
    /// Time after which an unused mirror is deleted, from its last use.
    pub max_age: Duration,
}

/// Space on the state disk, bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Space {
    pub(crate) free: u64,
    pub(crate) total: u64,
}

impl Space {
    pub(crate) fn of(directory: &Path) -> io::Result<Self> {
        let found = statvfs(directory)?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok(Self { free: bytes(found.f_bavail), total: bytes(found.f_blocks) })
    }
}

/// The use of one mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) key: String,
    pub(crate) bytes: u64,
    pub(crate) used_at: SystemTime,
}

impl MirrorBounds {
    /// Returns the most bytes that a refresh may receive. It leaves the space of which the daemon warns (`warn_free`).
    ///
    /// Refreshes at the same time share the rest. Refuses one if there is none.
    pub(crate) fn most(&self, space: Space, warn_free: u64) -> Result<u64, Refusal> {
        let left = warn_free.min(space.total / 10);
        let most = (self.max_bytes / 2).min(space.free.saturating_sub(left) / AT_ONCE as u64);
        if most < LEAST {
            let message = "the daemon's disk has no space for a mirror of the repository: delete bases, runs and workspaces \
                           that are no longer needed, or ask the operator";
            let refused = Refusal::new(Reason::WriteLimit, message).with("limit", "state-disk");
            return Err(refused.by(Fault::Infrastructure));
        }
        Ok(most)
    }

    /// Returns the mirrors that have to go, in this order, if all of them can.
    pub(crate) fn displaced(&self, mut mirrors: Vec<Use>, now: SystemTime) -> Vec<String> {
        mirrors.sort_by(|one, two| (one.used_at, &one.key).cmp(&(two.used_at, &two.key)));
        // A sum that stops at the largest number would be too small after the first subtraction.
        let (mut count, mut bytes) =
            (mirrors.len(), mirrors.iter().map(|mirror| u128::from(mirror.bytes)).sum::<u128>());
        let mut gone = Vec::new();
        for mirror in mirrors {
            let is_old = now.duration_since(mirror.used_at).is_ok_and(|age| age > self.max_age);
            if is_old || count > self.max_count || bytes > u128::from(self.max_bytes) {
                count -= 1;
                bytes -= u128::from(mirror.bytes);
                gone.push(mirror.key);
            }
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);
    const BOUNDS: MirrorBounds = MirrorBounds { max_count: 3, max_bytes: 100, max_age: DAY };

    fn used(key: &str, bytes: u64, seconds_ago: u64, now: SystemTime) -> Use {
        Use { key: key.to_owned(), bytes, used_at: now - Duration::from_secs(seconds_ago) }
    }

    #[test]
    fn the_least_recently_used_mirrors_go_until_the_others_fit() {
        let now = SystemTime::UNIX_EPOCH + 10 * DAY;
        let displaced = |mirrors: &[(&str, u64, u64)]| {
            let mirrors = mirrors.iter().map(|(key, bytes, ago)| used(key, *bytes, *ago, now)).collect();
            BOUNDS.displaced(mirrors, now)
        };
        assert!(displaced(&[]).is_empty());
        assert!(displaced(&[("a", 50, 2), ("b", 50, 1)]).is_empty());
        assert_eq!(displaced(&[("a", 50, 2), ("b", 51, 1)]), ["a"]);
        assert_eq!(displaced(&[("a", 1, 2), ("b", 1, 9), ("c", 1, 5), ("d", 1, 7)]), ["b"]);
        assert_eq!(displaced(&[("a", 1, 86_401), ("b", 1, 86_399)]), ["a"]);
        assert_eq!(displaced(&[("a", 101, 1)]), ["a"]);
        assert_eq!(displaced(&[("a", u64::MAX, 2), ("b", u64::MAX, 1)]), ["a", "b"]);
        assert!(BOUNDS.displaced(vec![Use { used_at: now + DAY, ..used("a", 1, 0, now) }], now).is_empty());
    }

    #[test]
    fn a_refresh_takes_no_space_that_the_daemon_needs() {
        const GIB: u64 = 1 << 30;
        let bounds = MirrorBounds { max_bytes: 8 * GIB, ..BOUNDS };
        let most =
            |free, total, warn| bounds.most(Space { free, total }, warn).map_err(|refusal| refusal.reason);
        assert_eq!(most(100 * GIB, 200 * GIB, GIB), Ok(4 * GIB));
        assert_eq!(most(5 * GIB, 200 * GIB, GIB), Ok(GIB));
        assert_eq!(most(5 * GIB, 10 * GIB, 4 * GIB), Ok(GIB), "a tenth of a small disk at most");
        assert_eq!(most(GIB, 200 * GIB, GIB), Err(Reason::WriteLimit));
        assert_eq!(most(GIB + GIB / 1_024, 200 * GIB, GIB), Err(Reason::WriteLimit));
    }
}
