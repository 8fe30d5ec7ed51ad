//! Keeps bases within the limits of the configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use disk_quotas::Free;
use host_launch::TreeBounds;
use identity::{BaseId, Principal};
use operations::Reason;
use refusal::Refusal;
use timestamp::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::record::Base;
use crate::turns::AT_ONCE;
use crate::{Bases, Cause, make};

/// Time between two sweeps.
const SWEEP: Duration = Duration::from_secs(3_600);
/// Most files, directories and links of a base.
const MOST_FILES: u64 = 1_000_000;

/// Limits for all bases of a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BaseBounds {
    pub max_count: usize,
    /// Length of all files of all bases, bytes.
    pub max_bytes: u64,
    /// Time after which an unused base is deleted, from its last use.
    pub max_age: Duration,
}

/// Returns the bounds of the next base on a disk with this space. It leaves the space of which the daemon warns (`warn_free`).
///
/// Bases that are made at the same time share the rest. Refuses a base if there is none.
pub(crate) fn most(bounds: &BaseBounds, free: Free, warn_free: u64) -> Result<TreeBounds, Refusal> {
    let left = warn_free.min(free.total_bytes / 10);
    let bytes = free.bytes.saturating_sub(left) / AT_ONCE as u64;
    let files =
        free.files.map_or(MOST_FILES, |files| files.saturating_sub(free.total_files / 20) / AT_ONCE as u64);
    if bytes == 0 || files == 0 {
        let message = "the daemon's disk has no space for another base: delete bases, runs and workspaces that are no longer \
                       needed, or ask the operator";
        return Err(Refusal::new(Reason::WriteLimit, message).with("limit", "state-disk"));
    }
    Ok(TreeBounds { bytes: bounds.max_bytes.min(bytes), files: MOST_FILES.min(files) })
}

/// Returns the bases that a new one of `principal` displaces, in this order. `None` if that makes no room for it.
fn displaced(
    mut bases: BTreeMap<BaseId, Base>,
    needed: &BTreeSet<BaseId>,
    bounds: &BaseBounds,
    principal: &str,
    bytes: u64,
) -> Option<Vec<BaseId>> {
    let mut order: Vec<Base> = bases.values().filter(|base| !needed.contains(&base.id)).cloned().collect();
    order.sort_by_key(|base| (base.principal != principal, base.used_at, base.id));
    let mut gone = Vec::new();
    for base in order {
        if has_room(&bases, bounds, bytes) {
            break;
        }
        if may_displace(&bases, bounds, principal, bytes, &base.principal) {
            bases.remove(&base.id);
            gone.push(base.id);
        }
    }
    has_room(&bases, bounds, bytes).then_some(gone)
}

/// Returns true if a new base of `principal` may displace one of `owner`.
///
/// The owner is the principal itself, or has no less than the principal would have, in count or in bytes, of what is short.
fn may_displace(
    bases: &BTreeMap<BaseId, Base>,
    bounds: &BaseBounds,
    principal: &str,
    bytes: u64,
    owner: &str,
) -> bool {
    let of = |name: &str| {
        let own = bases.values().filter(|base| base.principal == name);
        own.fold((0_usize, 0_u64), |(count, sum), base| (count + 1, sum.saturating_add(base.bytes)))
    };
    let (new, old) = (of(principal), of(owner));
    let has_count = bases.len() < bounds.max_count || new.0 < old.0;
    let has_bytes = fits(bases, bounds, bytes) || new.1.saturating_add(bytes) <= old.1;
    principal == owner || (has_count && has_bytes)
}

/// Returns true if a base of `bytes` more is within the limits.
fn has_room(bases: &BTreeMap<BaseId, Base>, bounds: &BaseBounds, bytes: u64) -> bool {
    bases.len() < bounds.max_count && fits(bases, bounds, bytes)
}

fn fits(bases: &BTreeMap<BaseId, Base>, bounds: &BaseBounds, bytes: u64) -> bool {
    bases.values().fold(bytes, |sum, base| sum.saturating_add(base.bytes)) <= bounds.max_bytes
}

/// Returns the bases on which no run has begun for `max_age`.
fn unused_since(bases: &BTreeMap<BaseId, Base>, bounds: &BaseBounds, now: Timestamp) -> Vec<BaseId> {
    let is_old = |base: &&Base| base.used_at.until(now) > bounds.max_age;
    bases.values().filter(is_old).map(|base| base.id).collect()
}

impl Bases {
    /// Deletes unused bases until there is room for one more of `bytes`. Deletes none if that would make no room.
    pub(crate) async fn make_room(&self, principal: &Principal, bytes: u64) -> Result<(), Refusal> {
        let mut needed: BTreeSet<BaseId> = self.runs.users_of_bases().into_keys().collect();
        loop {
            let order = {
                let bases = self.table.lock();
                displaced(bases.clone(), &needed, &self.bounds, &principal.name, bytes)
            };
            let Some(order) = order else { return Err(no_room()) };
            let Some(first) = order.first() else { return Ok(()) };
            match self.remove(*first, Cause::Limit).await {
                // A run began on it meanwhile.
                Err(refusal) if refusal.reason == Reason::PreconditionFailed => {
                    needed.insert(*first);
                }
                Err(refusal) if refusal.reason != Reason::NotFound => return Err(refusal),
                _ => {}
            }
        }
    }

    /// Returns true if the tree of the base, complete or not, is needed.
    ///
    /// A base that becomes complete or is deleted meanwhile is in one of the two places at each look.
    fn has_tree(&self, id: BaseId) -> bool {
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

    /// Deletes unused bases that are too old, and the leftovers of bases that were not made completely.
    async fn sweep(&self) {
        let unused = unused_since(&self.table.lock(), &self.bounds, Timestamp::now());
        for id in unused {
            match self.remove(id, Cause::Age).await {
                Err(refusal) if refusal.reason != Reason::PreconditionFailed => {
                    tracing::warn!(base = %id, why = refusal.message, "an old base was not deleted");
                }
                _ => {}
            }
        }
        let is_known = |name: &str| make::id_of(name).is_some_and(|id| self.has_tree(id));
        make::remove_others(&self.runs.launcher.directories.bases(), is_known).await;
    }
}

fn no_room() -> Refusal {
    let message = "there is no room for the base: runs need the others, or principals with fewer have them (bases.max_count, \
                   bases.max_bytes of the daemon's configuration); delete runs or bases that are no longer needed";
    Refusal::new(Reason::WriteLimit, message).with("limit", "bases")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::base;

    const BOUNDS: BaseBounds =
        BaseBounds { max_count: 3, max_bytes: 1_000, max_age: Duration::from_secs(60) };

    fn all(bases: &[&Base]) -> BTreeMap<BaseId, Base> {
        bases.iter().map(|base| (base.id, (*base).clone())).collect()
    }

    #[test]
    fn the_least_recently_used_of_its_own_principal_goes_first() {
        let at = |seconds| Timestamp::now().after(Duration::from_secs(seconds));
        let (old, new) = (base("a", at(10), 1), base("a", at(30), 1));
        let (oldest, other) = (base("b", at(0), 1), base("c", at(20), 1));
        let bases = all(&[&new, &other, &old, &oldest]);
        let displaced = |principal: &str, max_count, needed: &[&Base]| {
            let needed = needed.iter().map(|base| base.id).collect();
            displaced(bases.clone(), &needed, &BaseBounds { max_count, ..BOUNDS }, principal, 1)
        };
        assert_eq!(displaced("a", 5, &[]), Some(vec![]), "there is room");
        assert_eq!(displaced("a", 4, &[]), Some(vec![old.id]));
        assert_eq!(displaced("a", 4, &[&old]), Some(vec![new.id]));
        assert_eq!(displaced("d", 4, &[]), Some(vec![oldest.id]));
        assert_eq!(displaced("d", 2, &[]), Some(vec![oldest.id, old.id, other.id]));
    }

    #[test]
    fn no_principal_displaces_bases_of_one_that_has_less() {
        let at = |seconds| Timestamp::now().after(Duration::from_secs(seconds));
        let (one, two, other) = (base("a", at(0), 1), base("a", at(1), 1), base("b", at(2), 1));
        let bases = all(&[&one, &two, &other]);
        let needed = BTreeSet::from([one.id, two.id]);
        assert_eq!(displaced(bases.clone(), &needed, &BOUNDS, "a", 1), None, "two in use, and a third");
        assert_eq!(displaced(bases.clone(), &BTreeSet::new(), &BOUNDS, "b", 1), Some(vec![other.id]));
        assert_eq!(displaced(bases, &BTreeSet::from([other.id]), &BOUNDS, "b", 1), Some(vec![one.id]));

        let (small, large) = (base("a", at(0), 300), base("b", at(1), 600));
        let bases = all(&[&small, &large]);
        let none = BTreeSet::new();
        assert_eq!(displaced(bases.clone(), &none, &BOUNDS, "c", 400), Some(vec![large.id]));
        assert_eq!(
            displaced(bases.clone(), &none, &BOUNDS, "c", 601),
            None,
            "it would have more than either"
        );
        assert_eq!(displaced(bases, &none, &BOUNDS, "b", 700), Some(vec![large.id]), "its own");
    }

    #[test]
    fn a_base_is_old_when_no_run_has_begun_on_it_for_a_while() {
        let now = Timestamp::now();
        let after = |seconds| now.after(Duration::from_secs(seconds));
        let (old, used) = (base("a", now, 1), base("a", after(30), 1));
        let bases = all(&[&old, &used]);
        assert!(unused_since(&bases, &BOUNDS, after(60)).is_empty());
        assert_eq!(unused_since(&bases, &BOUNDS, after(61)), [old.id]);
        assert_eq!(unused_since(&bases, &BOUNDS, after(91)).len(), 2);
    }

    #[test]
    fn count_and_bytes_bound_all_bases_together() {
        let made = |bytes| base("a", Timestamp::now(), bytes);
        let (one, two, three) = (made(400), made(400), made(0));
        let has_room = |bases: &[&Base], bytes| has_room(&all(bases), &BOUNDS, bytes);
        assert!(has_room(&[], 1_000) && !has_room(&[], 1_001));
        assert!(has_room(&[&one, &two], 200) && !has_room(&[&one, &two], 201));
        assert!(!has_room(&[&one, &two, &three], 0), "three are the most");
        assert!(!has_room(&[&one], u64::MAX), "a sum that is too large for its type");
    }

    #[test]
    fn bases_that_are_made_at_once_leave_the_space_that_the_disk_warns_about() {
        let free = Free { bytes: 500, total_bytes: 10_000, files: Some(100), total_files: 1_000 };
        assert_eq!(most(&BOUNDS, free, 200).unwrap(), TreeBounds { bytes: 150, files: 25 });
        let refused = most(&BOUNDS, free, 5_000).unwrap_err();
        assert_eq!(refused.reason, Reason::WriteLimit, "a tenth of a small disk is more than is free");
        let no_inodes = Free { bytes: 9_000, files: Some(50), ..free };
        assert_eq!(most(&BOUNDS, no_inodes, 0).unwrap_err().reason, Reason::WriteLimit);
        let wide = Free { bytes: 1 << 40, total_bytes: 1 << 41, files: None, total_files: 0 };
        assert_eq!(most(&BOUNDS, wide, 200).unwrap(), TreeBounds { bytes: 1_000, files: MOST_FILES });
    }
}
