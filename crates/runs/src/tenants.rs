//! The use of runs by principal, and its check against the bounds of tenants.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ::tenants::{Amounts, Exceeded, Membership, Resource};
use disk_quotas::Found;
use identity::RunId;
use operations::Reason;
use refusal::Refusal;

use crate::record::{Record, Workspace, left_by_principal};
use crate::registry::Runs;
use crate::run::Run;

/// Bytes of a MiB.
const MIB: u64 = 1 << 20;

/// Use by principal.
type Used = BTreeMap<String, Amounts>;
/// Principal and disk space, MiB, of runs that have ended, and of workspaces whose runs are deleted.
pub(crate) type Left = BTreeMap<RunId, (String, u64)>;

impl Runs {
    /// Returns what runs use now, by principal.
    pub fn used_by_principal(&self) -> BTreeMap<String, Amounts> {
        let left = self.left();
        with_living(left, &self.living())
    }

    /// Returns the tenant of a run that has ended, or of its workspace if the run is deleted. `None`: nothing of it is left.
    pub fn tenant_left(&self, id: RunId) -> Option<String> {
        let ended = self.ended().get(&id).map(|record| record.spec.principal.clone());
        let principal = ended.or_else(|| Some(self.kept().get(&id)?.principal.clone()))?;
        Some(self.launcher.tenancy().tenant_of(&principal))
    }

    /// Returns the disk space of runs that have ended, and of workspaces whose runs are deleted.
    ///
    /// It also has the quotas of living runs, for the case that they end before the caller counts the living ones. Not to be called under a
    /// lock of the runs.
    pub(crate) fn left(&self) -> Left {
        let quota = |run: &Arc<Run>| {
            let spec = run.spec();
            (spec.principal.clone(), spec.limits.disk().bytes.div_ceil(MIB))
        };
        let mut left: Left = self.living().iter().map(|(id, run)| (*id, quota(run))).collect();
        for (id, found) in self.launcher.projects.left.all() {
            let ended = self.ended().get(&id).map(|record| {
                (record.spec.principal.clone(), left_mib(&found, record.spec.limits.disk().bytes))
            });
            let kept = || {
                let kept = self.kept().get(&id).cloned()?;
                Some((kept.principal, left_mib(&found, kept.disk_bytes)))
            };
            if let Some(counted) = ended.or_else(kept) {
                left.insert(id, counted);
            }
        }
        left
    }

    /// Refuses a run while too many ended ones and workspaces of deleted ones are left, of which its tenant has an even share.
    ///
    /// None of them is deleted but on request.
    pub(crate) fn check_ended(&self, membership: &Membership) -> Result<(), Refusal> {
        // In the order of the locks. A run is among the living ones before its workspace is kept, so no workspace of one counts.
        let kept = self.kept();
        if self.ended().len() + kept.len() < self.max_ended {
            return Ok(());
        }
        let living: BTreeSet<RunId> = self.living().keys().copied().collect();
        let by_principal = left_by_principal(&self.ended(), &kept, &living);
        drop(kept);
        if by_principal.values().sum::<usize>() < self.max_ended {
            return Ok(());
        }
        let mut by_tenant = BTreeMap::<_, usize>::new();
        for (principal, count) in by_principal {
            *by_tenant.entry(self.launcher.tenancy().tenant_of(&principal)).or_default() += count;
        }
        let (own, max) = (by_tenant.get(membership.tenant()).copied().unwrap_or_default(), self.max_ended);
        if has_share(own, by_tenant.len(), max) {
            return Ok(());
        }
        let message = format!(
            "{max} ended runs, and workspaces of deleted ones, are kept, which is the daemon's limit, and {own} of them are of the \
             tenant of this request: delete some first, and the workspaces that were made for them (`coffer run delete`, then \
             `coffer workspace delete`)"
        );
        let refused = Refusal::new(Reason::Overloaded, message).with("limit", "limits.ended_runs");
        Err(refused.with("used", own.to_string()).with("max", max.to_string()))
    }

    /// Checks that the tenant of a new run has room for it. The lock of `living` is held until the run is in the table.
    ///
    /// `left` is the disk space of runs that do not live.
    pub(crate) fn check_tenant(
        &self,
        membership: &Membership,
        living: &BTreeMap<RunId, Arc<Run>>,
        mut left: Left,
        record: &Record,
    ) -> Result<(), Refusal> {
        let wanted = amounts(record);
        share(&mut left, kept_by(&record.spec.workspace), wanted.disk_mib);
        let used = || with_living(left, living);
        let checked = self.launcher.tenancy().check(membership, wanted, used);
        checked.map_err(|exceeded| refused(&exceeded))
    }
}

/// Returns true if a tenant with so many of the ended runs has less than an even share of the most that are kept.
fn has_share(own: usize, tenants: usize, max: usize) -> bool {
    own < max / tenants.max(1)
}

/// Returns the disk space of a run that has ended. A measure that found a part of it says less than is there, so the quota counts.
///
/// An agent chooses how deep its directories are, and so how much of them is found. Its trash and its output count as well, because they stay
/// until the run is deleted.
fn left_mib(found: &Found, quota: u64) -> u64 {
    let is_part = found.is_more || found.is_too_deep;
    let bytes = if is_part { found.amount.bytes.max(quota) } else { found.amount.bytes };
    bytes.saturating_add(found.beside).div_ceil(MIB)
}

/// Returns the kept workspace that a run uses.
fn kept_by(workspace: &Workspace) -> Option<RunId> {
    if let Workspace::Kept { workspace } = workspace { Some(*workspace) } else { None }
}

/// Leaves out of a kept workspace the space that the quota of the run in it counts already.
fn share(left: &mut Left, kept: Option<RunId>, quota_mib: u64) {
    if let Some((_, disk_mib)) = kept.and_then(|kept| left.get_mut(&kept)) {
        *disk_mib = disk_mib.saturating_sub(quota_mib);
    }
}

fn with_living(left: Left, living: &BTreeMap<RunId, Arc<Run>>) -> Used {
    let living = living.iter().map(|(id, run)| {
        let spec = run.spec();
        (*id, spec.principal.clone(), kept_by(&spec.workspace), amounts(&run.record.borrow()))
    });
    sum(left, living)
}

/// Adds up the living runs, and what else is left.
fn sum(mut left: Left, living: impl Iterator<Item = (RunId, String, Option<RunId>, Amounts)>) -> Used {
    let mut used = Used::new();
    for (id, principal, kept, amounts) in living {
        left.remove(&id);
        share(&mut left, kept, amounts.disk_mib);
        add(&mut used, &principal, amounts);
    }
    for (principal, disk_mib) in left.into_values().filter(|(_, disk_mib)| *disk_mib > 0) {
        add(&mut used, &principal, Amounts { disk_mib, ..Amounts::default() });
    }
    used
}

/// Returns what all runs use together.
pub(crate) fn used_by_all(left: &Left, living: &BTreeMap<RunId, Arc<Run>>) -> Amounts {
    with_living(left.clone(), living).into_values().fold(Amounts::default(), |sum, one| sum + one)
}

fn add(used: &mut Used, principal: &str, amounts: Amounts) {
    match used.get_mut(principal) {
        Some(sum) => *sum = *sum + amounts,
        None => drop(used.insert(principal.to_owned(), amounts)),
    }
}

/// Returns what a run may use. It counts as one run, and so does each of its companions, which has the run's share of the processors.
pub(crate) fn amounts(record: &Record) -> Amounts {
    let (limits, companions) = (&record.spec.limits, &record.companions);
    let containers = 1 + companions.len() as u64;
    let memory_mib = companions.iter().map(|companion| companion.memory_mib);
    Amounts {
        runs: containers,
        memory_mib: memory_mib.fold(limits.memory_bytes.div_ceil(MIB), u64::saturating_add),
        cpu_millis: u64::from(limits.cpu_millis).saturating_mul(containers),
        disk_mib: limits.disk().bytes.div_ceil(MIB),
    }
}

/// Returns true for a refusal because of the disk space of a tenant.
pub(crate) fn is_of_disk(refusal: &Refusal) -> bool {
    let is_disk = |(name, value): &(&str, &str)| *name == "limit" && value.ends_with(Resource::Disk.key());
    let mut facts = refusal.metadata.iter().map(|(name, value)| (&**name, value.as_str()));
    refusal.reason == Reason::TenantLimit && facts.any(|fact| is_disk(&fact))
}

fn refused(exceeded: &Exceeded) -> Refusal {
    let facts = [
        ("used", exceeded.used),
        ("wanted", exceeded.wanted),
        ("max", exceeded.limit),
        ("over", exceeded.over()),
    ];
    let refusal = Refusal::new(Reason::TenantLimit, exceeded.to_string())
        .with("tenant", exceeded.tenant.as_str())
        .with("limit", exceeded.key());
    facts.into_iter().fold(refusal, |refusal, (name, value)| refusal.with(name, value.to_string()))
}

#[cfg(test)]
mod tests {
    use containers::Amount;

    use super::*;
    use crate::record::{Companion, CompanionState, Kept};

    #[test]
    fn a_tenant_that_fills_the_ended_runs_leaves_an_even_share_to_others() {
        for (own, tenants, has) in [
            (19_999, 1, true),
            (20_000, 1, false),
            (19_999, 2, false),
            (9_999, 2, true),
            (0, 2, true),
            (0, 0, true),
            (0, 20_001, false),
        ] {
            assert_eq!(has_share(own, tenants, 20_000), has, "{own} of {tenants}");
        }
    }

    #[test]
    fn only_a_lack_of_disk_space_is_measured_again() {
        let exceeded = |resource| Exceeded {
            tenant: "ml".to_owned(),
            section: "ml".to_owned(),
            resource,
            used: 1,
            wanted: 1,
            limit: 1,
        };
        for resource in Resource::ALL {
            assert_eq!(is_of_disk(&refused(&exceeded(resource))), resource == Resource::Disk);
        }
        assert!(!is_of_disk(&Refusal::new(Reason::Overloaded, "x").with("limit", "disk_mib")));
    }

    #[test]
    fn files_that_were_not_found_whole_count_as_the_quota() {
        let found = |bytes| Found { amount: Amount { bytes, files: 1 }, ..Found::default() };
        let (whole, quota) = (found(3 << 20), 9 << 20);
        assert_eq!(left_mib(&whole, quota), 3);
        for part in [Found { is_more: true, ..whole }, Found { is_too_deep: true, ..whole }] {
            assert_eq!(left_mib(&part, quota), 9);
        }
        assert_eq!(left_mib(&Found { is_more: true, ..found((9 << 20) + 1) }, quota), 10);
    }

    #[test]
    fn trash_and_output_of_an_ended_run_count_beside_its_files() {
        let files = Found { amount: Amount { bytes: 3 << 20, files: 1 }, ..Found::default() };
        assert_eq!(left_mib(&Found { beside: (1 << 30) + 1, ..files }, 9 << 20), 1_028);
        assert_eq!(left_mib(&Found { beside: 5 << 20, is_more: true, ..files }, 9 << 20), 14);
        assert_eq!(left_mib(&Found { beside: u64::MAX, ..files }, 0), u64::MAX.div_ceil(MIB));
    }

    #[test]
    fn a_run_and_its_workspace_are_one_and_a_living_run_is_none() {
        let of = |principal: &str| {
            let mut record = crate::testing::record();
            record.spec.principal = principal.to_owned();
            record
        };
        let [both, ends, lives, deleted, bound] = ["uid:1", "uid:1", "uid:1", "uid:2", "uid:2"].map(of);
        let kept = [&both, &lives, &deleted].map(|record| (record.id, Kept::of(record).unwrap()));
        let living = BTreeSet::from([ends.id, lives.id]);
        let ended = [both, ends, bound].map(|record| (record.id, record));
        let left = left_by_principal(&BTreeMap::from(ended), &BTreeMap::from(kept), &living);
        assert_eq!(left, BTreeMap::from([("uid:1".to_owned(), 1), ("uid:2".to_owned(), 2)]));
    }

    #[test]
    fn a_run_counts_once_while_it_ends_and_a_kept_workspace_once_while_a_run_is_in_it() {
        let [ended, kept, lives] = [(); 3].map(|()| RunId::new());
        let left: Left =
            [(ended, 5), (kept, 30), (lives, 8)].map(|(id, mib)| (id, ("uid:7".to_owned(), mib))).into();
        let on = kept_by(&Workspace::Kept { workspace: kept });
        let amounts = |disk_mib| Amounts { runs: 1, disk_mib, ..Amounts::default() };
        let disk = |used: &Used| used.get("uid:7").map(|amounts| amounts.disk_mib);
        // The run in the workspace may have less than is there.
        for (quota, expected) in [(8, 5 + 8 + 22), (64, 5 + 64)] {
            let living = [(lives, "uid:7".to_owned(), on, amounts(quota))];
            assert_eq!(disk(&sum(left.clone(), living.into_iter())), Some(expected));
        }
        // A run that was counted as living, and has ended before the table of living runs was read.
        assert_eq!(disk(&sum(left.clone(), std::iter::empty())), Some(43));
        let mut wanted = left;
        share(&mut wanted, on, 20);
        assert_eq!(wanted[&kept].1, 10);
        assert_eq!(sum(Left::new(), std::iter::empty()), Used::new());
    }

    #[test]
    fn a_run_counts_with_its_companions() {
        let mut record = crate::testing::record();
        record.spec.limits.memory_bytes = (100 << 20) + 1;
        record.spec.limits.cpu_millis = 500;
        (record.spec.limits.disk_bytes, record.spec.limits.disk_files) = (7 << 20, 9);
        let companion = |memory_mib| Companion {
            name: "db".to_owned(),
            image: String::new(),
            ports: BTreeSet::new(),
            memory_mib,
            state: CompanionState::Starting,
            narrowed: None,
            launched: None,
        };
        record.companions = vec![companion(20), companion(30)];
        let expected = Amounts { runs: 3, memory_mib: 151, cpu_millis: 1_500, disk_mib: 7 };
        assert_eq!(amounts(&record), expected);
    }
}
