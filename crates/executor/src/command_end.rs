//! Determines how a command ended, from its worker's report and from what the daemon knows of it.
//!
//! The worker only knows an exit, and runs beside the command.

use std::collections::BTreeSet;
use std::pin::Pin;

use containers::LimitEvents;
use operations::{CommandEnd, CommandReport, EndedBy, Evidence, Exit, KillEvidence, Limit, Stop};

use crate::left::Left;

/// Knowledge of a command's run that its lane lacks.
pub trait CommandContext: Send + Sync {
    /// Enters the processes that the command left running. If that fails, ends them and returns the evidence.
    fn keep(&self, left: Left) -> Pin<Box<dyn Future<Output = Result<(), KillEvidence>> + Send + '_>>;
    /// Returns true if the run's commands were ended for its disk quota since the command began.
    fn over_quota(&self) -> bool;
    /// Returns true if they were ended for a full disk, although the run was within its quota.
    fn is_disk_of_host(&self) -> bool;
    /// Returns the run's limit of memory, in bytes.
    fn memory_limit(&self) -> u64;
    /// Returns true if the run has ended, and its commands with it.
    fn run_ended(&self) -> bool;
    /// Returns true if the run's profile allows processes that stay.
    fn offers_processes(&self) -> bool;
    /// Returns the connections that were refused to the run since the command began, each with the reason.
    fn refused(&self) -> Vec<String>;
}

/// The daemon's knowledge of a command that has ended.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::struct_excessive_bools)] // independent facts
pub(crate) struct Known {
    /// Limit events that the kernel counted for the container while the command ran.
    pub(crate) events: LimitEvents,
    /// Limit on its output in bytes.
    pub(crate) output_limit: u64,
    /// True if a client asked to end it.
    pub(crate) cancelled: bool,
    /// True if the run's commands were ended for its disk quota since it began.
    pub(crate) over_quota: bool,
    /// True if they were ended for a full disk, although the run was within its quota.
    pub(crate) is_disk_of_host: bool,
    /// The run's limit of memory in bytes.
    pub(crate) memory_limit: u64,
    /// True if the run has ended.
    pub(crate) run_ended: bool,
    /// True if the profile allows processes that stay.
    pub(crate) offers_processes: bool,
}

/// Returns the end of a command.
pub(crate) fn command_end(report: CommandReport, known: Known) -> CommandEnd {
    let CommandReport { exit, stop, stdout, stderr, usage, full, kill } = report;
    let out_of_memory = known.events.oom_kills > 0;
    let too_much = stdout.bytes.saturating_add(stderr.bytes) > known.output_limit;
    // The order determines which signals came from the daemon.
    let ended_by = match stop {
        Stop::Deadline => EndedBy::Timeout,
        _ if too_much => EndedBy::OutputLimit,
        Stop::Stopped => EndedBy::Cancelled,
        Stop::Itself if known.cancelled && !matches!(exit, Exit::Code(_)) => EndedBy::Cancelled,
        Stop::Itself => match exit.limit(known.over_quota, out_of_memory) {
            Some(EndedBy::MemoryLimit) if known.events.is_memory_of_host() => EndedBy::HostMemory,
            Some(EndedBy::DiskQuota) if known.is_disk_of_host => EndedBy::HostDisk,
            Some(limit) => limit,
            None if known.run_ended && exit.is_kill() => EndedBy::RunEnded,
            None => EndedBy::Unspecified,
        },
    };
    let mut limits: BTreeSet<Limit> = full.into_iter().collect();
    let is_own = out_of_memory && !known.events.is_memory_of_host();
    limits.extend(is_own.then_some(Limit::Memory));
    limits.extend((known.events.forks_refused > 0).then_some(Limit::Processes));
    limits.extend(too_much.then_some(Limit::Output));
    limits.extend((exit.limit(false, false) == Some(EndedBy::FileSizeLimit)).then_some(Limit::FileSize));
    limits.extend((ended_by == EndedBy::DiskQuota).then_some(Limit::Disk));
    let offers_processes = known.offers_processes;
    let evidence = evidence(ended_by, known);
    let refused = Vec::new();
    CommandEnd { exit, ended_by, limits, kill, usage, stdout, stderr, offers_processes, refused, evidence }
}

/// Returns the facts that show for which limit a command was ended.
fn evidence(ended_by: EndedBy, known: Known) -> Vec<Evidence> {
    match ended_by {
        EndedBy::MemoryLimit | EndedBy::HostMemory => {
            let kills = Evidence::new("cgroup.oom_kills", known.events.oom_kills);
            let hits = known.events.limit_hits.map(|hits| Evidence::new("cgroup.limit_hits", hits));
            let most = Evidence::new("limit.memory_bytes", known.memory_limit);
            [Some(kills), hits, Some(most)].into_iter().flatten().collect()
        }
        EndedBy::OutputLimit => vec![Evidence::new("limit.output_bytes", known.output_limit)],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use operations::Written;

    use super::*;

    const NOTHING: Known = Known {
        events: LimitEvents { oom_kills: 0, forks_refused: 0, limit_hits: Some(0) },
        output_limit: 100,
        memory_limit: 1 << 20,
        is_disk_of_host: false,
        cancelled: false,
        over_quota: false,
        run_ended: false,
        offers_processes: false,
    };
    const OUT_OF_MEMORY: Known =
        Known { events: LimitEvents { oom_kills: 1, forks_refused: 0, limit_hits: Some(3) }, ..NOTHING };

    fn end(report: CommandReport, known: Known) -> (EndedBy, Vec<Limit>) {
        let end = command_end(report, known);
        (end.ended_by, end.limits.into_iter().collect())
    }

    fn died(signal: i32) -> CommandReport {
        CommandReport { exit: Exit::Signal(signal), ..CommandReport::default() }
    }

    fn exited(code: i32) -> CommandReport {
        CommandReport { exit: Exit::Code(code), ..CommandReport::default() }
    }

    fn wrote(bytes: u64) -> Written {
        Written { bytes, ..Written::default() }
    }

    #[test]
    fn an_end_without_a_known_cause_has_none() {
        for report in [exited(0), exited(137), died(9), died(15), CommandReport::default()] {
            assert_eq!(end(report, NOTHING), (EndedBy::Unspecified, vec![]));
        }
    }

    #[test]
    fn every_early_end_has_its_evidence() {
        use EndedBy::{
            Cancelled, DiskQuota, FileSizeLimit, MemoryLimit, OutputLimit, RunEnded, Timeout, Unspecified,
        };
        assert_eq!(end(died(9), OUT_OF_MEMORY), (MemoryLimit, vec![Limit::Memory]));
        // A shell lives on when the kernel kills what it has started, and passes it on or goes on.
        assert_eq!(end(exited(137), OUT_OF_MEMORY), (MemoryLimit, vec![Limit::Memory]));
        assert_eq!(end(exited(0), OUT_OF_MEMORY), (Unspecified, vec![Limit::Memory]));
        assert_eq!(end(died(25), NOTHING), (FileSizeLimit, vec![Limit::FileSize]));
        let over_quota = Known { over_quota: true, ..OUT_OF_MEMORY };
        assert_eq!(end(died(9), over_quota), (DiskQuota, vec![Limit::Memory, Limit::Disk]));
        assert_eq!(end(exited(1), over_quota), (Unspecified, vec![Limit::Memory]));
        let run_ended = Known { run_ended: true, ..NOTHING };
        assert_eq!(end(died(9), run_ended), (RunEnded, vec![]));
        assert_eq!(end(exited(0), run_ended), (Unspecified, vec![]), "it was over before");
        let bomb =
            Known { events: LimitEvents { oom_kills: 0, forks_refused: 7, limit_hits: Some(0) }, ..NOTHING };
        let late = CommandReport { stop: Stop::Deadline, ..died(9) };
        assert_eq!(end(late, bomb), (Timeout, vec![Limit::Processes]));
        let cancelled = Known { cancelled: true, ..NOTHING };
        assert_eq!(end(died(15), cancelled), (Cancelled, vec![]));
        assert_eq!(end(exited(0), cancelled), (Unspecified, vec![]), "it was over before it was told");
        let heard = CommandReport { stop: Stop::Stopped, ..exited(0) };
        assert_eq!(end(heard, NOTHING), (Cancelled, vec![]), "it ended because it was told");
        let flood = CommandReport { stdout: wrote(60), stderr: wrote(41), stop: Stop::Stopped, ..died(9) };
        assert_eq!(end(flood, OUT_OF_MEMORY), (OutputLimit, vec![Limit::Memory, Limit::Output]));
        let full = CommandReport { stdout: wrote(60), stderr: wrote(40), ..exited(0) };
        assert_eq!(end(full, NOTHING), (Unspecified, vec![]));
    }

    #[test]
    fn a_command_that_the_host_ended_is_told_apart_with_its_evidence() {
        let events = LimitEvents { limit_hits: Some(0), ..OUT_OF_MEMORY.events };
        let host = Known { events, ..OUT_OF_MEMORY };
        assert_eq!(end(died(9), host), (EndedBy::HostMemory, vec![]));
        let unknown = LimitEvents { limit_hits: None, ..events };
        let unknown = Known { events: unknown, ..NOTHING };
        assert_eq!(end(died(9), unknown), (EndedBy::MemoryLimit, vec![Limit::Memory]));
        assert_eq!(end(died(9), NOTHING), (EndedBy::Unspecified, vec![]), "a program may have sent it");
        let disk = Known { over_quota: true, is_disk_of_host: true, ..NOTHING };
        assert_eq!(end(died(9), disk), (EndedBy::HostDisk, vec![]));
        let shown = command_end(died(9), OUT_OF_MEMORY).evidence;
        let shown: Vec<_> = shown.iter().map(|fact| (fact.what.as_ref(), fact.value.as_str())).collect();
        assert_eq!(
            shown,
            [("cgroup.oom_kills", "1"), ("cgroup.limit_hits", "3"), ("limit.memory_bytes", "1048576")]
        );
        assert_eq!(command_end(exited(0), OUT_OF_MEMORY).evidence, []);
    }

    #[test]
    fn the_full_file_systems_of_the_worker_are_among_the_limits() {
        let full = CommandReport { full: vec![Limit::TmpSpace], ..exited(1) };
        assert_eq!(end(full, OUT_OF_MEMORY), (EndedBy::Unspecified, vec![Limit::Memory, Limit::TmpSpace]));
    }
}
