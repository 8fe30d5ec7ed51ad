//! Keeps checkpoints within the limits of the configuration.

use std::collections::BTreeMap;
use std::time::Duration;

use disk_quotas::Free;
use host_launch::TreeBounds;
use identity::{CheckpointId, RunId};
use operations::{Fault, Reason};
use refusal::Refusal;
use timestamp::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::record::Checkpoint;
use crate::{Cause, Checkpoints, make};

/// Time between two sweeps.
const SWEEP: Duration = Duration::from_secs(3_600);
/// Most files, directories, links and deleted names of a checkpoint.
const MOST_FILES: u64 = 1_000_000;
/// Space that each of them may take on the disk beside its content, bytes.
const BLOCK: u64 = 4_096;

/// Limits for the checkpoints of a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointBounds {
    pub max_count: usize,
    pub max_per_run: usize,
    /// Length of all files of all checkpoints, bytes.
    pub max_bytes: u64,
    /// Length of all files of the checkpoints of one principal's runs, bytes.
    pub max_bytes_per_principal: u64,
    /// Time after which a checkpoint is deleted.
    pub max_age: Duration,
}

/// Returns the length of all files that one more checkpoint of the run of `owner` may have, or refuses it with less than `least`.
///
/// The number of automatic ones of a run is bounded by its own setting.
pub(crate) fn left(
    all: &BTreeMap<CheckpointId, Checkpoint>,
    (run, owner): (RunId, &str),
    automatic: bool,
    least: u64,
    bounds: &CheckpointBounds,
) -> Result<u64, Refusal> {
    let of_run = all.values().filter(|checkpoint| checkpoint.run == run && !checkpoint.automatic).count();
    if !automatic && of_run >= bounds.max_per_run {
        let message = format!(
            "the run has {of_run} checkpoints, which is the limit (checkpoints.max_per_run of the daemon's configuration): \
             delete some of them"
        );
        return Err(Refusal::new(Reason::WriteLimit, message).with("limit", "checkpoints"));
    }
    let own = bytes(all.values().filter(|checkpoint| checkpoint.principal == owner));
    let left_of_own = bounds.max_bytes_per_principal.saturating_sub(own);
    let left_of_all = bounds.max_bytes.saturating_sub(bytes(all.values()));
    if left_of_own < least.max(1) {
        return Err(no_room_of_principal());
    }
    if all.len() >= bounds.max_count || left_of_all < least.max(1) {
        return Err(no_room());
    }
    Ok(left_of_own.min(left_of_all))
}

fn bytes<'c>(checkpoints: impl Iterator<Item = &'c Checkpoint>) -> u64 {
    checkpoints.fold(0, |sum, checkpoint| sum.saturating_add(checkpoint.bytes()))
}

/// Returns true if the checkpoints of the principal or of all are too many or too large, and not those of one run alone.
pub(crate) fn is_no_room(refused: &Refusal) -> bool {
    *refused == no_room() || *refused == no_room_of_principal()
}

fn no_room() -> Refusal {
    let message = "there is no room for another checkpoint (checkpoints.max_count, checkpoints.max_bytes of the daemon's \
                   configuration): delete some that are no longer needed";
    Refusal::new(Reason::WriteLimit, message).with("limit", "checkpoints")
}

fn no_room_of_principal() -> Refusal {
    let message = "the checkpoints of your runs are as large as those of one principal may be \
                   (checkpoints.max_bytes_per_principal of the daemon's configuration): delete some that are no longer needed";
    Refusal::new(Reason::WriteLimit, message).with("limit", "checkpoints")
}

pub(crate) fn no_space() -> Refusal {
    let message = "the daemon's disk has no space for a checkpoint (disk.warn_free of the daemon's configuration): \
                   delete checkpoints, workspaces or ended runs that are no longer needed";
    Refusal::new(Reason::WriteLimit, message).with("limit", "state-disk").by(Fault::Infrastructure)
}

/// Returns the bounds of a checkpoint of at most `bytes` on a disk with this space. It leaves the space of which the daemon warns.
pub(crate) fn most(bytes: u64, free: Free, warn_free: u64) -> TreeBounds {
    let room = free.spare(warn_free);
    let files = free.files.map_or(MOST_FILES, |files| files.saturating_sub(free.total_files / 20));
    // Many empty files and directories fill a disk as well.
    TreeBounds { bytes: bytes.min(room), files: MOST_FILES.min(files).min(room / BLOCK) }
}

impl Checkpoints {
    /// Returns true if the tree of the checkpoint, complete or not, is needed.
    ///
    /// A checkpoint that becomes complete or is deleted meanwhile is in one of the two places at each look.
    fn has_tree(&self, id: CheckpointId) -> bool {
        let is_there = || self.table.lock().contains_key(&id);
        let is_busy = || self.busy.lock().contains(&id);
        is_there() || is_busy() || is_there()
    }

    /// Sweeps every hour until the daemon stops.
    pub async fn keep(&self, stop: CancellationToken) {
        loop {
            self.sweep().await;
            if stop.run_until_cancelled(tokio::time::sleep(SWEEP)).await.is_none() {
                return;
            }
        }
    }

    /// Deletes checkpoints that are too old or whose run was deleted, and the leftovers of checkpoints that were not made completely.
    async fn sweep(&self) {
        self.forget_ended();
        let now = Timestamp::now();
        // Newest first: a checkpoint of a fork needs an older one.
        let all: Vec<Checkpoint> = self.table.lock().values().rev().cloned().collect();
        for checkpoint in all {
            let cause = if self.runs.get(checkpoint.run).is_err() {
                Cause::Run
            } else if checkpoint.created_at.until(now) > self.bounds.max_age {
                Cause::Age
            } else {
                continue;
            };
            match self.remove(checkpoint.id, cause).await {
                // A fork may need it.
                Err(refusal) if !matches!(refusal.reason, Reason::NotFound | Reason::PreconditionFailed) => {
                    tracing::warn!(checkpoint = %checkpoint.id, why = refusal.message, "a checkpoint was not deleted");
                }
                _ => {}
            }
        }
        let is_known = |name: &str| make::id_of(name).is_some_and(|id| self.has_tree(id));
        runs::remove_unknown(&self.runs.launcher.directories.checkpoints(), is_known).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::checkpoint;

    const BOUNDS: CheckpointBounds = CheckpointBounds {
        max_count: 4,
        max_per_run: 2,
        max_bytes: 1_000,
        max_bytes_per_principal: 1_000,
        max_age: Duration::from_secs(60),
    };

    fn all(of: &[(RunId, u64)]) -> BTreeMap<CheckpointId, Checkpoint> {
        let made = of.iter().map(|(run, bytes)| checkpoint(*run, Timestamp::now(), *bytes));
        made.map(|checkpoint| (checkpoint.id, checkpoint)).collect()
    }

    #[test]
    fn a_run_has_a_limit_and_all_runs_have_one() {
        let (one, two, three) = (RunId::new(), RunId::new(), RunId::new());
        let most = |of: &[(RunId, u64)], run| left(&all(of), (run, "uid:1000"), false, 1, &BOUNDS);
        assert_eq!(most(&[], one).unwrap(), 1_000);
        assert_eq!(most(&[(one, 300), (two, 300)], one).unwrap(), 400);
        let refused = most(&[(one, 1), (one, 1)], one).unwrap_err();
        assert!(refused.message.contains("max_per_run"), "{}", refused.message);
        assert!(most(&[(one, 1), (one, 1)], two).is_ok());
        let refused = most(&[(one, 1), (one, 1), (two, 1), (two, 1)], three).unwrap_err();
        assert!(refused.message.contains("max_count"), "{}", refused.message);
        assert!(most(&[(one, 1_000)], two).is_err());
        assert!(
            most(&[(one, u64::MAX), (two, u64::MAX)], three).is_err(),
            "a sum that is too large for its type"
        );
    }

    #[test]
    fn a_principal_has_a_limit_which_others_do_not_use_up() {
        let bounds = CheckpointBounds { max_count: 10, max_bytes_per_principal: 400, ..BOUNDS };
        let (run, other) = (RunId::new(), RunId::new());
        let all = all(&[(run, 150), (run, 150), (other, 0)]);
        let most = |owner, least| left(&all, (other, owner), false, least, &bounds);
        assert_eq!((most("uid:1000", 1).unwrap(), most("uid:1001", 1).unwrap()), (100, 400));
        assert!(most("uid:1000", 100).is_ok());
        let refused = most("uid:1000", 101).unwrap_err();
        assert!(refused.message.contains("max_bytes_per_principal"), "{}", refused.message);
        assert!(is_no_room(&refused), "automatic ones of the principal give place");
        // What is left of the limit of all bounds a principal, too.
        let bounds = CheckpointBounds { max_bytes: 500, ..bounds };
        assert_eq!(left(&all, (other, "uid:1001"), false, 1, &bounds).unwrap(), 200);
        let refused = left(&all, (other, "uid:1001"), false, 201, &bounds).unwrap_err();
        assert!(refused.message.contains("checkpoints.max_bytes of"), "{}", refused.message);
    }

    #[test]
    fn a_checkpoint_leaves_the_space_that_the_disk_warns_about() {
        const MIB: u64 = 1 << 20;
        let free = Free { bytes: 500 * MIB, total_bytes: 10_000 * MIB, files: Some(100), total_files: 1_000 };
        assert_eq!(most(1_000 * MIB, free, 200 * MIB), TreeBounds { bytes: 300 * MIB, files: 50 });
        assert_eq!(most(7, free, 200 * MIB), TreeBounds { bytes: 7, files: 50 });
        let none = most(1_000 * MIB, Free { bytes: 900 * MIB, ..free }, 5_000 * MIB);
        assert_eq!(none, TreeBounds { bytes: 0, files: 0 }, "a tenth of a small disk");
        let wide = Free { files: None, total_files: 0, ..free };
        assert_eq!(most(1_000, wide, 200 * MIB).files, 300 * MIB / 4_096, "each may take a block");
        let large = Free { bytes: 100_000 * MIB, total_bytes: 200_000 * MIB, ..wide };
        assert_eq!(most(1_000, large, 200 * MIB).files, MOST_FILES);
    }
}
