//! The use of runs by principal, and its check against the bounds of tenants.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::tenants::{Amounts, Exceeded};
use disk_quotas::Found;
use identity::RunId;
use operations::Reason;
use refusal::Refusal;

use crate::record::Record;
use crate::registry::Runs;
use crate::run::Run;

/// Bytes of a MiB.
const MIB: u64 = 1 << 20;

/// Use by principal.
pub(crate) type Used = BTreeMap<String, Amounts>;

impl Runs {
    /// Returns what runs use now, by principal.
    pub fn used_by_principal(&self) -> BTreeMap<String, Amounts> {
        let left = self.left_by_principal();
        with_living(left, &self.living())
    }

    /// Returns the disk space of runs that have ended, and of workspaces whose runs are deleted, as far as it was measured.
    ///
    /// Not to be called under a lock of the runs.
    pub(crate) fn left_by_principal(&self) -> Used {
        let one =
            |(id, found): (&RunId, &Found)| (*id, found.amount.bytes, found.is_more || found.is_too_deep);
        // The lock ends with this line.
        let left: Vec<_> = self.launcher.projects.left().iter().map(one).collect();
        let mut used = Used::new();
        for (id, bytes, is_part) in left {
            let ended = self.ended().get(&id).map(|record| {
                (record.spec.principal.clone(), left_mib(bytes, is_part, record.spec.limits.disk().bytes))
            });
            let kept =
                || self.kept().get(&id).map(|kept| (kept.principal.clone(), left_mib(bytes, is_part, 0)));
            if let Some((principal, disk_mib)) = ended.or_else(kept) {
                add(&mut used, &principal, Amounts { disk_mib, ..Amounts::default() });
            }
        }
        used
    }

    /// Checks that the tenant of a new run has room for it. The lock of `living` is held until the run is in the table.
    ///
    /// `left` is the disk space of runs that do not live.
    pub(crate) fn check_tenant(
        &self,
        living: &BTreeMap<RunId, Arc<Run>>,
        left: Used,
        record: &Record,
    ) -> Result<(), Refusal> {
        let used = || with_living(left, living);
        let checked = self.launcher.tenancy().check(&record.spec.principal, amounts(record), used);
        checked.map_err(|exceeded| refused(&exceeded))
    }
}

/// Returns the disk space of a run that has ended. A measure that found a part of it says less than is there, so the quota counts.
///
/// An agent chooses how deep its directories are, and so how much of them is found.
fn left_mib(bytes: u64, is_part: bool, quota: u64) -> u64 {
    let bytes = if is_part { bytes.max(quota) } else { bytes };
    bytes.div_ceil(MIB)
}

fn with_living(mut used: Used, living: &BTreeMap<RunId, Arc<Run>>) -> Used {
    for run in living.values() {
        add(&mut used, &run.spec().principal, amounts(&run.record.borrow()));
    }
    used
}

/// Returns what all runs use together.
pub(crate) fn used_by_all(left: &Used, living: &BTreeMap<RunId, Arc<Run>>) -> Amounts {
    let living = living.values().map(|run| amounts(&run.record.borrow()));
    left.values().copied().chain(living).fold(Amounts::default(), |sum, one| sum + one)
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
    use super::*;
    use crate::record::{Companion, CompanionState};

    #[test]
    fn files_that_were_not_found_whole_count_as_the_quota() {
        assert_eq!(left_mib(3 << 20, false, 9 << 20), 3);
        assert_eq!(left_mib(3 << 20, true, 9 << 20), 9);
        assert_eq!(left_mib((9 << 20) + 1, true, 9 << 20), 10);
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
            ports: std::collections::BTreeSet::new(),
            memory_mib,
            state: CompanionState::Starting,
            launched: None,
        };
        record.companions = vec![companion(20), companion(30)];
        let expected = Amounts { runs: 3, memory_mib: 151, cpu_millis: 1_500, disk_mib: 7 };
        assert_eq!(amounts(&record), expected);
    }
}
