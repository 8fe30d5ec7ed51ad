//! The losses of the state disk that are a reason to measure a run, or to freeze its commands.

use containers::Amount;
use disk_quotas::Free;

/// Losses of the disk that are a reason to measure. The free quota of the run decides where between the two.
const LEAST_LOSS: Amount = Amount { bytes: 1 << 20, files: 256 };
const MOST_LOSS: Amount = Amount { bytes: 32 << 20, files: 4_096 };
/// Losses beyond the free quota of a run, after which it is measured, however long that takes.
pub(crate) const SURELY: Amount = Amount { bytes: 64 << 20, files: 8_192 };
/// Losses beyond the free quota of a run, after which its commands are frozen until it is measured.
pub(crate) const STILL: Amount = Amount { bytes: 128 << 20, files: 16_384 };
/// Loss between two looks that makes the next one come sooner.
pub(crate) const A_FALL: u64 = 1 << 20;

/// Returns the space that the disk lost between two looks.
pub(crate) fn lost_between(before: Free, now: Free) -> Amount {
    Amount {
        bytes: before.bytes.saturating_sub(now.bytes),
        files: before.files.unwrap_or(0).saturating_sub(now.files.unwrap_or(0)),
    }
}

/// Returns true if the disk lost so much that a run with this free quota may soon be over its quota.
pub(crate) fn is_worth_a_look(lost: Amount, room: Amount) -> bool {
    let worth = |room: u64, least: u64, most: u64| (room / 4).clamp(least, most);
    lost.bytes >= worth(room.bytes, LEAST_LOSS.bytes, MOST_LOSS.bytes)
        || lost.files >= worth(room.files, LEAST_LOSS.files, MOST_LOSS.files)
}

/// Returns true if the loss exceeds the sum of `may_take` and `more`.
pub(crate) fn is_beyond(lost: Amount, may_take: Amount, more: Amount) -> bool {
    lost.bytes > may_take.bytes.saturating_add(more.bytes)
        || lost.files > may_take.files.saturating_add(more.files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free(mib: u64, files: u64) -> Free {
        Free { bytes: mib << 20, files: Some(files), ..Free::default() }
    }

    #[test]
    fn a_loss_is_compared_with_the_free_quota_of_the_run() {
        let lost = |mib: u64, files: u64, room: u64| {
            let room = Amount { bytes: room << 20, files: 1 << 20 };
            is_worth_a_look(lost_between(free(1_000, 100_000), free(1_000 - mib, 100_000 - files)), room)
        };
        assert!(!lost(0, 0, 0) && !lost(31, 4_095, 1_000));
        assert!(lost(32, 0, 1_000) && lost(0, 4_096, 1_000));
        assert!(lost(2, 0, 8) && !lost(1, 0, 8), "a quarter of what is left");
        assert!(lost(1, 0, 0));
        let gained = lost_between(free(10, 10), free(20, 20));
        assert!(!is_worth_a_look(gained, Amount::default()));
    }

    #[test]
    fn space_that_is_freed_meanwhile_hides_no_loss() {
        let mut lost = Amount::default();
        for (before, now) in [(1_000, 800), (800, 1_000), (1_000, 790)] {
            let fell = lost_between(free(before, 0), free(now, 0));
            lost.bytes += fell.bytes;
        }
        assert_eq!(lost.bytes, 410 << 20);
        let room = |mib: u64| Amount { bytes: mib << 20, files: 100 };
        assert!(is_beyond(lost, room(281), STILL) && !is_beyond(lost, room(282), STILL));
        assert!(is_beyond(Amount { files: 16_485, ..Amount::default() }, room(1), STILL));
    }
}
