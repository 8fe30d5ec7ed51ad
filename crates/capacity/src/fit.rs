//! Computes the number of runs that fit on a host. It is pure arithmetic, and measures nothing.

use serde::Serialize;

use crate::amounts::{Amounts, CORE, Resource};

/// Resources of a host for runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Host {
    pub memory_bytes: u64,
    pub cores: u64,
    /// `None` if there is no limit.
    pub pids: Option<u64>,
    /// `None` if it is not counted.
    pub disk_bytes: Option<u64>,
}

impl Host {
    /// Returns the amount of a resource, or `None` if it has no limit.
    pub fn of(&self, resource: Resource) -> Option<u64> {
        match resource {
            Resource::Memory => Some(self.memory_bytes),
            Resource::Cpu => Some(self.cores.saturating_mul(CORE)),
            Resource::Pids => self.pids,
            Resource::Disk => self.disk_bytes,
        }
    }

    /// Limits the processor time of a run to that of the host. A run with a higher limit uses all cores, because there are no others.
    pub fn bounded(&self, run: Amounts) -> Amounts {
        Amounts { cpu_micros: run.cpu_micros.min(self.cores.saturating_mul(CORE)), ..run }
    }
}

/// Number of runs that fit on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Fit {
    /// Resources that one run uses.
    pub run: Amounts,
    /// Number of such runs. `None` if there is no limit.
    pub runs: Option<u64>,
    /// Resource that is used up first. If there are several, the first of them.
    pub binds: Option<Resource>,
}

impl Fit {
    /// Computes the number of runs that use `run` each, in addition to `base`, which is used even without runs.
    pub fn of(host: &Host, base: &Amounts, run: Amounts) -> Self {
        let bounds = Resource::ALL
            .into_iter()
            .filter_map(|resource| Some((within(host, base, &run, resource)?, resource)));
        let least = bounds.min_by_key(|&(runs, _)| runs);
        Self { run, runs: least.map(|(runs, _)| runs), binds: least.map(|(_, resource)| resource) }
    }

    /// Returns the number of hosts of this size for `asked` runs, or `None` if not even one run fits on such a host.
    pub fn hosts(&self, asked: u64) -> Option<u64> {
        match self.runs {
            Some(0) => None,
            Some(runs) => Some(asked.div_ceil(runs)),
            None => Some(1),
        }
    }
}

/// Returns the number of runs for which one resource suffices, or `None` if it is no limit.
pub fn within(host: &Host, base: &Amounts, run: &Amounts, resource: Resource) -> Option<u64> {
    host.of(resource)?.saturating_sub(base.of(resource)).checked_div(run.of(resource))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Amounts = Amounts { memory_bytes: 100, cpu_micros: 0, pids: 50, disk_bytes: 0 };
    const RUN: Amounts = Amounts { memory_bytes: 10, cpu_micros: 1_000, pids: 5, disk_bytes: 1 };

    fn host(memory_bytes: u64, cores: u64, pids: Option<u64>, disk_bytes: Option<u64>) -> Host {
        Host { memory_bytes, cores, pids, disk_bytes }
    }

    fn fit(host: Host, run: Amounts) -> (Option<u64>, Option<Resource>) {
        let fit = Fit::of(&host, &BASE, run);
        (fit.runs, fit.binds)
    }

    #[test]
    fn the_scarcest_resource_binds() {
        let roomy = host(1_000_000, 1_000, Some(1_000_000), None);
        assert_eq!(fit(Host { memory_bytes: 1_099, ..roomy }, RUN), (Some(99), Some(Resource::Memory)));
        assert_eq!(fit(Host { memory_bytes: 1_100, ..roomy }, RUN), (Some(100), Some(Resource::Memory)));
        assert_eq!(fit(Host { cores: 1, ..roomy }, RUN), (Some(1_000), Some(Resource::Cpu)));
        assert_eq!(fit(Host { pids: Some(75), ..roomy }, RUN), (Some(5), Some(Resource::Pids)));
        assert_eq!(fit(Host { disk_bytes: Some(3), ..roomy }, RUN), (Some(3), Some(Resource::Disk)));
    }

    #[test]
    fn a_host_with_less_memory_than_the_daemon_holds_no_run() {
        for memory in [0, 99, 100, 109] {
            assert_eq!(fit(host(memory, 1, None, None), RUN), (Some(0), Some(Resource::Memory)), "{memory}");
        }
        assert_eq!(fit(host(1_000, 0, None, None), RUN), (Some(0), Some(Resource::Cpu)));
        assert_eq!(Fit::of(&host(0, 1, None, None), &BASE, RUN).hosts(1), None);
    }

    #[test]
    fn unused_and_unbounded_resources_do_not_limit() {
        let free = Amounts { pids: 5, ..Amounts::default() };
        assert_eq!(fit(host(0, 0, None, Some(0)), free), (None, None));
        assert_eq!(Fit::of(&host(0, 0, None, None), &BASE, free).hosts(u64::MAX), Some(1));
    }

    #[test]
    fn numbers_without_bounds_do_not_overflow() {
        let all =
            Amounts { memory_bytes: u64::MAX, cpu_micros: u64::MAX, pids: u64::MAX, disk_bytes: u64::MAX };
        assert_eq!(all.and(all), all);
        let vast = host(u64::MAX, u64::MAX, Some(u64::MAX), Some(u64::MAX));
        assert_eq!(fit(vast, all).0, Some(0), "the daemon itself takes some of it");
        assert_eq!(Fit::of(&vast, &Amounts::default(), all).runs, Some(1));
        let one = Amounts { memory_bytes: 1, cpu_micros: 1, pids: 1, disk_bytes: 1 };
        assert_eq!(Fit::of(&vast, &Amounts::default(), one).hosts(u64::MAX), Some(1));
    }

    #[test]
    fn a_limit_above_the_number_of_cores_counts_as_all_cores() {
        let small = host(1_000, 2, None, None);
        let busy = small.bounded(Amounts { cpu_micros: 4 * CORE, ..RUN });
        assert_eq!(busy.cpu_micros, 2 * CORE);
        assert_eq!(fit(small, busy), (Some(1), Some(Resource::Cpu)));
        let less = Amounts { cpu_micros: CORE, ..RUN };
        assert_eq!(small.bounded(less), less);
    }

    #[test]
    fn the_last_host_need_not_be_full() {
        let fit = Fit::of(&host(1_100, 1_000, None, None), &BASE, RUN);
        assert_eq!([1, 100, 101, 1_000].map(|asked| fit.hosts(asked)), [1, 1, 2, 10].map(Some));
    }
}
