//! Keeps bases within the limits of the configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use disk_quotas::Free;
use host_launch::TreeBounds;
use identity::{BaseId, Principal};
use operations::{Fault, Reason};
use refusal::Refusal;
use timestamp::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::record::Base;
use crate::{AT_ONCE, Bases, Busy, Cause, make};

/// Time between two sweeps.
const SWEEP: Duration = Duration::from_secs(3_600);
/// Most files, directories and links of a base.
const MOST_FILES: u64 = 1_000_000;
/// Bytes that each file, directory or link counts in addition to its length: about what it takes on a disk.
const NAME: u64 = 4_096;

/// Limits for all bases of a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BaseBounds {
    pub max_count: usize,
    /// Bases of one principal.
    pub max_per_principal: usize,
    /// Length of all files of all bases, and 4 KiB for each file, directory and link, bytes.
    pub max_bytes: u64,
    /// Time after which an unused base is deleted, from its last use.
    pub max_age: Duration,
}

/// Returns the bytes that a base counts in the limit for all.
pub(crate) fn takes(base: &Base) -> u64 {
    base.bytes.saturating_add(base.files.saturating_mul(NAME))
}

/// Refuses a base that alone exceeds the limit for all.
pub(crate) fn check_size(bounds: &BaseBounds, takes: u64) -> Result<(), Refusal> {
    if takes <= bounds.max_bytes {
        return Ok(());
    }
    let message = format!(
        "the base takes {} MiB, each file, directory and link with 4 KiB more than its length, and all bases may take {} MiB \
         (bases.max_bytes of the daemon's configuration)",
        takes.div_ceil(1 << 20),
        bounds.max_bytes >> 20
    );
    Err(Refusal::new(Reason::WriteLimit, message).with("limit", "bases"))
}

/// Returns the bounds of the next base on a disk with this space. It leaves the space of which the daemon warns (`warn_free`).
///
/// Bases that are made at the same time share the rest. So do the lengths of a base's files and the space for their names. Refuses a
/// base if there is none.
pub(crate) fn most(bounds: &BaseBounds, free: Free, warn_free: u64) -> Result<TreeBounds, Refusal> {
    let space = free.spare(warn_free) / AT_ONCE as u64;
    let files =
        free.files.map_or(MOST_FILES, |files| files.saturating_sub(free.total_files / 20) / AT_ONCE as u64);
    let files = MOST_FILES.min(files).min(space / 2 / NAME).min(bounds.max_bytes / NAME);
    let bytes = bounds.max_bytes.min(space - files * NAME);
    if bytes == 0 || files == 0 {
        let message = "the daemon's disk has no space for another base: delete bases, runs and workspaces that are no longer \
                       needed, or ask the operator";
        let refused = Refusal::new(Reason::WriteLimit, message).with("limit", "state-disk");
        return Err(refused.by(Fault::Infrastructure));
    }
    Ok(TreeBounds { bytes, files })
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
        if has_room(&bases, bounds, principal, bytes) {
            break;
        }
        if may_displace(&bases, bounds, principal, bytes, &base.principal) {
            bases.remove(&base.id);
            gone.push(base.id);
        }
    }
    has_room(&bases, bounds, principal, bytes).then_some(gone)
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
        own.fold((0_usize, 0_u64), |(count, sum), base| (count + 1, sum.saturating_add(takes(base))))
    };
    let (new, old) = (of(principal), of(owner));
    let has_count = bases.len() < bounds.max_count || new.0 < old.0;
    let has_bytes = fits(bases, bounds, bytes) || new.1.saturating_add(bytes) <= old.1;
    principal == owner || (has_count && has_bytes)
}

/// Returns true if one more base of `principal`, of `bytes`, is within the limits.
fn has_room(bases: &BTreeMap<BaseId, Base>, bounds: &BaseBounds, principal: &str, bytes: u64) -> bool {
    let own = bases.values().filter(|base| base.principal == principal).count();
    bases.len() < bounds.max_count && own < bounds.max_per_principal && fits(bases, bounds, bytes)
}

fn fits(bases: &BTreeMap<BaseId, Base>, bounds: &BaseBounds, bytes: u64) -> bool {
    bases.values().fold(bytes, |sum, base| sum.saturating_add(takes(base))) <= bounds.max_bytes
}

/// Returns the bases on which no run has begun for `max_age`.
fn unused_since(bases: &BTreeMap<BaseId, Base>, bounds: &BaseBounds, now: Timestamp) -> Vec<BaseId> {
    let is_old = |base: &&Base| base.used_at.until(now) > bounds.max_age;
    bases.values().filter(is_old).map(|base| base.id).collect()
}

impl Bases {
    /// Takes out unused bases until there is room for one more of `bytes`, and none if that would make no room.
    ///
    /// `gone` gets them, and the caller deletes their trees.
    pub(crate) async fn make_room<'b>(
        &'b self,
        principal: &Principal,
        bytes: u64,
        gone: &mut Vec<Busy<'b>>,
    ) -> Result<(), Refusal> {
        let mut needed: BTreeSet<BaseId> = self.runs.users_of_bases().into_keys().collect();
        loop {
            let order = {
                let bases = self.table.lock();
                displaced(bases.clone(), &needed, &self.bounds, &principal.name, bytes)
            };
            let Some(order) = order else { return Err(self.no_room(principal, &needed)) };
            let Some(first) = order.first() else { return Ok(()) };
            match self.take_out(*first, Cause::Limit).await {
                Ok(taken) => gone.push(taken),
                // A run began on it meanwhile.
                Err(refusal) if refusal.reason == Reason::PreconditionFailed => {
                    needed.insert(*first);
                }
                Err(refusal) if refusal.reason == Reason::NotFound => {}
                Err(refusal) => return Err(refusal),
            }
        }
    }

    fn no_room(&self, principal: &Principal, needed: &BTreeSet<BaseId>) -> Refusal {
        let bases = self.table.lock();
        let own = bases.values().filter(|base| base.principal == principal.name && needed.contains(&base.id));
        no_room(own.count() >= self.bounds.max_per_principal)
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
        runs::remove_unknown(&self.runs.launcher.directories.bases(), is_known).await;
    }
}

/// `is_own` is true if the principal's own limit leaves no room.
fn no_room(is_own: bool) -> Refusal {
    let message = if is_own {
        "there is no room for another base of yours: runs need as many as one principal may have (bases.max_per_principal of the \
         daemon's configuration); delete runs that are no longer needed"
    } else {
        "there is no room for the base: runs need the others, or principals with fewer have them (bases.max_count, \
         bases.max_bytes of the daemon's configuration); delete runs or bases that are no longer needed"
    };
    Refusal::new(Reason::WriteLimit, message).with("limit", "bases")
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: BaseBounds =
        BaseBounds { max_count: 3, max_per_principal: 3, max_bytes: 1_000, max_age: Duration::from_secs(60) };

    /// Returns a base without names, so that it counts its bytes alone.
    fn base(principal: &str, used_at: Timestamp, bytes: u64) -> Base {
        Base { files: 0, ..crate::table::tests::base(principal, used_at, bytes) }
    }

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
        let has_room = |bases: &[&Base], bytes| has_room(&all(bases), &BOUNDS, "b", bytes);
        assert!(has_room(&[], 1_000) && !has_room(&[], 1_001));
        assert!(has_room(&[&one, &two], 200) && !has_room(&[&one, &two], 201));
        assert!(!has_room(&[&one, &two, &three], 0), "three are the most");
        assert!(!has_room(&[&one], u64::MAX), "a sum that is too large for its type");
    }

    #[test]
    fn each_name_counts_as_4_kib_in_the_bytes_of_all() {
        let empty = |files| Base { files, ..base("a", Timestamp::now(), 0) };
        let bounds = BaseBounds { max_bytes: 1 << 20, ..BOUNDS };
        let (some, most) = (empty(200), empty(256));
        assert_eq!((takes(&some), takes(&most)), (200 << 12, 1 << 20));
        assert!(has_room(&all(&[&some]), &bounds, "a", 56 << 12));
        assert!(!has_room(&all(&[&some]), &bounds, "a", 57 << 12));
        assert!(check_size(&bounds, takes(&most)).is_ok());
        let refused = check_size(&bounds, takes(&empty(257))).unwrap_err();
        assert!(refused.message.contains("takes 2 MiB"), "{}", refused.message);
        assert_eq!(takes(&empty(u64::MAX)), u64::MAX);
        let (names, lengths) =
            (empty(100), Base { principal: "b".to_owned(), ..base("b", Timestamp::now(), 1) });
        let bases = all(&[&names, &lengths]);
        let gone = displaced(bases, &BTreeSet::new(), &bounds, "c", (1 << 20) - 10);
        assert_eq!(gone, None, "it would have more than either");
    }

    #[test]
    fn a_principal_has_as_many_as_its_own_limit_and_displaces_its_own_for_more() {
        let at = |seconds| Timestamp::now().after(Duration::from_secs(seconds));
        let bounds = BaseBounds { max_count: 10, max_per_principal: 2, ..BOUNDS };
        let (old, new, other) = (base("a", at(1), 1), base("a", at(2), 1), base("b", at(0), 1));
        let bases = all(&[&old, &new, &other]);
        let displaced = |principal: &str, needed: &[&Base]| {
            let needed = needed.iter().map(|base| base.id).collect();
            displaced(bases.clone(), &needed, &bounds, principal, 1)
        };
        assert_eq!(displaced("a", &[]), Some(vec![old.id]));
        assert_eq!(displaced("a", &[&old]), Some(vec![new.id]));
        assert_eq!(displaced("a", &[&old, &new]), None, "those of others make no room for it");
        assert_eq!(displaced("b", &[]), Some(vec![]));
        assert!(no_room(true).message.contains("max_per_principal"));
        assert!(no_room(false).message.contains("max_count"));
    }

    #[test]
    fn bases_that_are_made_at_once_leave_the_space_that_the_disk_warns_about() {
        const MIB: u64 = 1 << 20;
        let bounds = BaseBounds { max_bytes: 1_000 * MIB, ..BOUNDS };
        let most = |free, warn_free| most(&bounds, free, warn_free);
        let free = Free { bytes: 500 * MIB, total_bytes: 10_000 * MIB, files: Some(100), total_files: 1_000 };
        let found = most(free, 200 * MIB).unwrap();
        assert_eq!(found, TreeBounds { bytes: 150 * MIB - 25 * NAME, files: 25 });
        let refused = most(free, 5_000 * MIB).unwrap_err();
        assert_eq!(refused.reason, Reason::WriteLimit, "a tenth of a small disk is more than is free");
        let no_inodes = Free { bytes: 9_000 * MIB, files: Some(50), ..free };
        assert_eq!(most(no_inodes, 0).unwrap_err().reason, Reason::WriteLimit);
        let wide = Free { bytes: 1 << 40, total_bytes: 1 << 41, files: None, total_files: 0 };
        let found = most(wide, 200 * MIB).unwrap();
        assert_eq!(found, TreeBounds { bytes: 1_000 * MIB, files: 1_000 * MIB / NAME });
        let narrow = Free { bytes: 300 * MIB, ..wide };
        let found = most(Free { total_bytes: 0, ..narrow }, 0).unwrap();
        assert_eq!(
            found,
            TreeBounds { bytes: 75 * MIB, files: 75 * MIB / NAME },
            "names and lengths share it"
        );
    }
}
