//! The sum of what runs may take together, and the check that one more fits.
//!
//! A run counts with its limits, and with what Cofferdam and the engine need for each of its containers (`capacity`, as `coffer plan`).

use std::path::Path;

use capacity::{Amounts as Costly, Costs, this_host};
use refusal::Refusal;
use tenants::Amounts;

use crate::settings::CapacitySettings;

/// Bytes of a MiB.
const MIB: u64 = 1 << 20;

/// Bounds of a node, and the costs of a container beside its limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Most that all runs may take.
    pub(crate) most: Amounts,
    /// Only the number of runs is a bound otherwise.
    pub(crate) are_enforced: bool,
    /// Memory outside of a container, MiB.
    outside_mib: u64,
}

/// Amounts that the host has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Host {
    /// `None`: it is not known.
    memory_mib: Option<u64>,
    cores: Option<u64>,
    disk_mib: Option<u64>,
}

impl Host {
    /// Reads the amounts of this host, and those of the file system of `state_dir`.
    pub(crate) fn read(state_dir: &Path) -> Self {
        let disk = rustix::fs::statvfs(state_dir).ok();
        Self {
            memory_mib: this_host::memory().map(|bytes| bytes / MIB),
            cores: this_host::cores(),
            disk_mib: disk.map(|disk| disk.f_blocks.saturating_mul(disk.f_frsize) / MIB),
        }
    }
}

/// A bound that leaves no room for a run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full {
    /// Key of the bound in the configuration.
    key: &'static str,
    unit: &'static str,
    used: u64,
    wanted: u64,
    most: u64,
}

impl Bounds {
    /// Returns the bounds of a configuration on a host. `runs` is `limits.runs`.
    pub(crate) fn new(settings: Option<&CapacitySettings>, runs: usize, host: Host, costs: &Costs) -> Self {
        let given = settings.cloned().unwrap_or_default();
        let base = costs.base.memory_bytes.div_ceil(MIB);
        let of_host = host.memory_mib.map(|memory| memory.saturating_sub(base));
        let most = |given: Option<u64>, of_host: Option<u64>| given.or(of_host).unwrap_or(u64::MAX);
        let cores = most(given.cores, host.cores);
        Self {
            most: Amounts {
                runs: given.runs.unwrap_or(u64::MAX).min(runs as u64),
                memory_mib: most(given.memory_mib, of_host),
                cpu_millis: cores.saturating_mul(1_000).saturating_mul(given.core_overcommit),
                disk_mib: most(given.disk_mib, host.disk_mib),
            },
            are_enforced: settings.is_some(),
            outside_mib: costs.run.busy(Costly::default()).memory_bytes.div_ceil(MIB),
        }
    }

    /// Returns what runs take with these limits, and with the costs of their containers.
    pub(crate) fn taken(&self, limits: Amounts) -> Amounts {
        let outside = self.outside_mib.saturating_mul(limits.runs);
        Amounts { memory_mib: limits.memory_mib.saturating_add(outside), ..limits }
    }

    /// Checks that a run with limits `wanted` fits beside those that have `used`.
    pub(crate) fn check(&self, wanted: Amounts, used: Amounts) -> Result<(), Full> {
        let (wanted, used) = (self.taken(wanted), self.taken(used));
        let bounds = [
            ("node.capacity.runs", "runs and companions", used.runs, wanted.runs, self.most.runs),
            (
                "node.capacity.memory_mib",
                "MiB of memory",
                used.memory_mib,
                wanted.memory_mib,
                self.most.memory_mib,
            ),
            (
                "node.capacity.cores",
                "thousandths of a core",
                used.cpu_millis,
                wanted.cpu_millis,
                self.most.cpu_millis,
            ),
            ("node.capacity.disk_mib", "MiB of disk", used.disk_mib, wanted.disk_mib, self.most.disk_mib),
        ];
        for (key, unit, used, wanted, most) in bounds {
            // A request for nothing exceeds nothing, whatever is in use.
            if wanted > 0 && used.saturating_add(wanted) > most {
                return Err(Full { key, unit, used, wanted, most });
            }
        }
        Ok(())
    }
}

impl Full {
    /// Returns true if the run does not even fit on the empty node.
    pub(crate) fn never_fits(&self) -> bool {
        self.wanted > self.most
    }

    /// Returns the sentence for the client.
    pub(crate) fn told(&self) -> String {
        let Self { key, unit, used, wanted, most } = self;
        if self.never_fits() {
            return format!(
                "this node has {most} {unit} for all runs ({key}), and this run needs {wanted}: ask for less, or create it on a larger \
                 node"
            );
        }
        let over = used.saturating_add(*wanted).saturating_sub(*most);
        format!(
            "the runs of this node take {used} of at most {most} {unit} ({key}), and this one needs {wanted}, which is {over} too many: \
             create it on another node, or try again when a run has ended"
        )
    }

    /// Adds the figures to a refusal.
    pub(crate) fn describe(&self, refusal: Refusal) -> Refusal {
        let over = self.used.saturating_add(self.wanted).saturating_sub(self.most);
        let facts = [("used", self.used), ("wanted", self.wanted), ("max", self.most), ("over", over)];
        let refusal = refusal.with("limit", self.key);
        facts.into_iter().fold(refusal, |refusal, (name, value)| refusal.with(name, value.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: Host = Host { memory_mib: Some(10_000), cores: Some(4), disk_mib: Some(50_000) };
    const RUN: Amounts = Amounts { runs: 1, memory_mib: 1_000, cpu_millis: 2_000, disk_mib: 5_000 };

    fn bounds(settings: &CapacitySettings) -> Bounds {
        Bounds::new(Some(settings), 256, HOST, &Costs::built_in().unwrap())
    }

    fn times(run: Amounts, number: u64) -> Amounts {
        (0..number).fold(Amounts::default(), |sum, _| sum + run)
    }

    #[test]
    fn the_host_is_the_default_of_each_bound() {
        let bounds = bounds(&CapacitySettings::default());
        let base = Costs::built_in().unwrap().base.memory_bytes.div_ceil(MIB);
        let most = Amounts { runs: 256, memory_mib: 10_000 - base, cpu_millis: 16_000, disk_mib: 50_000 };
        assert_eq!((bounds.most, bounds.are_enforced), (most, true));
        let without = Bounds::new(None, 7, HOST, &Costs::built_in().unwrap());
        assert_eq!((without.most.runs, without.are_enforced), (7, false));
        let unknown = Host { memory_mib: None, cores: None, disk_mib: None };
        let unknown = Bounds::new(None, 7, unknown, &Costs::built_in().unwrap());
        assert_eq!((unknown.most.memory_mib, unknown.most.cpu_millis), (u64::MAX, u64::MAX));
    }

    #[test]
    fn each_bound_refuses_the_first_run_that_does_not_fit_with_its_figures() {
        let outside = Costs::built_in().unwrap().run.busy(Costly::default()).memory_bytes.div_ceil(MIB);
        assert!(outside > 0);
        for (settings, key, unit, each, most) in [
            (
                CapacitySettings { runs: Some(2), ..Default::default() },
                "node.capacity.runs",
                "runs and companions",
                1,
                2,
            ),
            (
                CapacitySettings { memory_mib: Some(2_500), ..Default::default() },
                "node.capacity.memory_mib",
                "MiB of memory",
                1_000 + outside,
                2_500,
            ),
            (
                CapacitySettings { cores: Some(1), ..Default::default() },
                "node.capacity.cores",
                "thousandths of a core",
                2_000,
                4_000,
            ),
            (
                CapacitySettings { disk_mib: Some(14_999), ..Default::default() },
                "node.capacity.disk_mib",
                "MiB of disk",
                5_000,
                14_999,
            ),
        ] {
            let bounds = bounds(&settings);
            assert_eq!(bounds.check(RUN, times(RUN, 1)), Ok(()), "{key}");
            let full = Full { key, unit, used: 2 * each, wanted: each, most };
            assert_eq!(bounds.check(RUN, times(RUN, 2)), Err(full));
        }
    }

    #[test]
    fn a_run_that_never_fits_is_told_from_one_that_has_to_wait() {
        let bounds = bounds(&CapacitySettings { disk_mib: Some(5_500), ..Default::default() });
        let waits = bounds.check(RUN, times(RUN, 1)).unwrap_err();
        assert!(!waits.never_fits() && waits.told().contains("take 5000 of at most 5500 MiB of disk"));
        assert!(waits.told().contains("needs 5000, which is 4500 too many"), "{}", waits.told());
        let never = bounds.check(times(RUN, 2), Amounts::default()).unwrap_err();
        assert!(never.never_fits() && never.told().contains("larger node"), "{}", never.told());
    }

    #[test]
    fn sums_do_not_overflow() {
        let all = Amounts { runs: u64::MAX, memory_mib: u64::MAX, cpu_millis: u64::MAX, disk_mib: u64::MAX };
        let full = bounds(&CapacitySettings::default()).check(RUN, all).unwrap_err();
        assert_eq!(full.key, "node.capacity.runs");
        let nothing = Amounts { runs: 1, memory_mib: 0, cpu_millis: 0, disk_mib: 0 };
        assert!(bounds(&CapacitySettings::default()).check(nothing, Amounts::default()).is_ok());
    }
}
