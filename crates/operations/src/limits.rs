//! Reports why a command ended early and which limits it hit: as stable names, and as a sentence that a model can act on. Unknown causes
//! stay empty.

use wire::v1::ExecResult;

use crate::Reason;

/// Numbers of signals that show which limit ended a program.
const KILL: i32 = 9;
const XFSZ: i32 = 25;

/// Cause of a command's early end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndedBy {
    /// Its timeout, or the call's.
    Timeout,
    /// The caller, or the end of the run.
    Cancelled,
    /// It wrote more than a command may.
    OutputLimit,
    /// The kernel killed it because the run had no memory left.
    MemoryLimit,
    /// The kernel ended it because it wrote a larger file than allowed.
    FileSizeLimit,
    /// Its run had used up its quota of the disk.
    DiskQuota,
}

/// A limit of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// Memory: the kernel killed one of the run's processes.
    Memory,
    /// Processes and threads: the kernel refused to make one more.
    Processes,
    /// Bytes that a command may write to its two streams.
    Output,
    /// Size of a file.
    FileSize,
    /// `/tmp` is full.
    TmpSpace,
    /// `/dev/shm` is full.
    ShmSpace,
    /// The file system of `@project` is full.
    ProjectSpace,
    /// The file system of `@state` is full.
    StateSpace,
    /// Space of the run on the daemon's disk.
    DiskQuota,
}

impl EndedBy {
    /// Returns the name in the API, the record, and renderings.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::OutputLimit => "output-limit",
            Self::MemoryLimit => "memory-limit",
            Self::FileSizeLimit => "file-size-limit",
            Self::DiskQuota => "disk-quota",
        }
    }

    /// Returns the limit that ended a program.
    ///
    /// It follows from the program's exit and two observations of the daemon. The daemon may have killed commands of the run for its disk
    /// quota, and the kernel may have killed a process for lack of memory. A shell that outlives the program reports the signal as 128 plus
    /// its number.
    pub fn of_limits(
        exit_code: Option<i32>,
        signal: Option<i32>,
        over_quota: bool,
        out_of_memory: bool,
    ) -> Option<Self> {
        match signal.or(exit_code.map(|code| code - 128)) {
            Some(KILL) if over_quota => Some(Self::DiskQuota),
            Some(KILL) if out_of_memory => Some(Self::MemoryLimit),
            Some(XFSZ) => Some(Self::FileSizeLimit),
            _ => None,
        }
    }

    /// Returns what happened, as a sentence without its full stop.
    pub const fn happened(self) -> &'static str {
        self.failure().1
    }

    /// Returns the reason for which the call failed, and what happened.
    pub(crate) const fn failure(self) -> (Reason, &'static str) {
        match self {
            Self::Timeout => (Reason::TimedOut, "the command was ended when its time was over"),
            Self::Cancelled => (Reason::Cancelled, "the call was cancelled and its command ended"),
            Self::OutputLimit => {
                (Reason::WriteLimit, "the command wrote more output than it may and was ended")
            }
            Self::MemoryLimit => {
                (Reason::MemoryLimit, "the run was out of memory and the kernel ended the command")
            }
            Self::FileSizeLimit => {
                (Reason::WriteLimit, "the command was ended because a file became larger than files may")
            }
            Self::DiskQuota => {
                (Reason::WriteLimit, "the run's disk quota was used up, and its commands were ended")
            }
        }
    }

    /// Returns the cause with this name.
    pub fn parse(name: &str) -> Option<Self> {
        let all = [
            Self::Timeout,
            Self::Cancelled,
            Self::OutputLimit,
            Self::MemoryLimit,
            Self::FileSizeLimit,
            Self::DiskQuota,
        ];
        all.into_iter().find(|end| end.as_str() == name)
    }
}

impl Limit {
    const ALL: [Self; 9] = [
        Self::Memory,
        Self::Processes,
        Self::Output,
        Self::FileSize,
        Self::TmpSpace,
        Self::ShmSpace,
        Self::ProjectSpace,
        Self::StateSpace,
        Self::DiskQuota,
    ];

    /// Returns the name in the API, the record, and renderings.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Processes => "processes",
            Self::Output => "output",
            Self::FileSize => "file-size",
            Self::TmpSpace => "tmp-space",
            Self::ShmSpace => "shm-space",
            Self::ProjectSpace => "project-space",
            Self::StateSpace => "state-space",
            Self::DiskQuota => "disk-quota",
        }
    }

    /// Returns the limit with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|limit| limit.as_str() == name)
    }

    /// Returns true for a full file system, which only processes in the container can see.
    pub const fn is_space(self) -> bool {
        matches!(self, Self::TmpSpace | Self::ShmSpace | Self::ProjectSpace | Self::StateSpace)
    }

    /// Returns a sentence that says what happened and what to do.
    const fn advice(self) -> &'static str {
        match self {
            Self::Memory => {
                "the run was out of memory and the kernel killed a process of it: work on less at a time, with fewer processes at once, and keep large files out of /tmp and /dev/shm, which count as memory"
            }
            Self::Processes => {
                "the run's limit of processes and threads was reached: start fewer at once (such as make -j2)"
            }
            Self::Output => {
                "it wrote more output than a command may and was ended: send the output to a file and look at parts of it, or make the command say less"
            }
            Self::FileSize => {
                "a file would have become larger than files may in this run: write smaller ones"
            }
            Self::TmpSpace => "/tmp is full: delete what is not needed there, or use @project or @state",
            Self::ShmSpace => {
                "/dev/shm is full: delete what earlier commands left there, or tell the program to use less shared memory or a directory in @project"
            }
            Self::ProjectSpace => "the disk of @project is full: delete what is not needed",
            Self::StateSpace => "the disk of @state is full: delete what is not needed",
            Self::DiskQuota => {
                "the run's disk quota (of @state and of a workspace of its own) is used up: delete what is not needed there"
            }
        }
    }
}

/// Adds to a command's result the limits that it hit, as names and as sentences.
pub fn explain(result: &mut ExecResult, mut limits: Vec<Limit>) {
    limits.sort_unstable();
    limits.dedup();
    result.limits_hit = limits.iter().map(|limit| limit.as_str().to_owned()).collect();
    result.hint = limits.iter().map(|limit| limit.advice()).collect::<Vec<_>>().join("; ");
}

/// Records the disk quota as the cause of a command's end if the result shows only that it was killed.
pub fn ended_by_quota(result: &mut ExecResult) {
    let by = EndedBy::of_limits(result.exit_code, result.signal, true, false);
    let is_open = matches!(EndedBy::parse(&result.ended_by), None | Some(EndedBy::MemoryLimit));
    if by == Some(EndedBy::DiskQuota) && is_open && !result.timed_out {
        EndedBy::DiskQuota.as_str().clone_into(&mut result.ended_by);
        let mut limits = limits_hit(result);
        limits.push(Limit::DiskQuota);
        explain(result, limits);
    }
}

/// Advice to use a process that stays instead of a background process, where the profile allows processes.
const STAYS: &str =
    "processes that it left running were ended with it: start what should stay with the operation `process`";

/// Adds to the hint of a command that left processes running how to start a process that stays.
pub fn name_processes(result: &mut ExecResult) {
    let left = result.kill.as_ref().is_some_and(|kill| kill.ended > 0);
    if left && result.ended_by.is_empty() && !result.timed_out {
        let separator = if result.hint.is_empty() { "" } else { "; " };
        result.hint = format!("{}{separator}{STAYS}", result.hint);
    }
}

/// Returns the limits that a result names.
pub fn limits_hit(result: &ExecResult) -> Vec<Limit> {
    result.limits_hit.iter().filter_map(|limit| Limit::parse(limit)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_left_something_running_is_told_of_processes() {
        let of = |ended, limits: Vec<Limit>, ended_by: &str| {
            let kill = Some(crate::KillEvidence { ended, ..Default::default() });
            let mut result = ExecResult { kill, ended_by: ended_by.to_owned(), ..Default::default() };
            explain(&mut result, limits);
            name_processes(&mut result);
            result.hint
        };
        assert!(of(1, vec![], "").starts_with("processes that it left running"));
        assert!(of(1, vec![Limit::TmpSpace], "").contains("; processes that it left running"));
        assert_eq!(of(0, vec![], ""), "");
        assert_eq!(of(1, vec![], EndedBy::Timeout.as_str()), "");
    }

    #[test]
    fn a_limit_is_known_by_the_end_and_by_what_was_seen() {
        let of = EndedBy::of_limits;
        for (code, signal) in [(None, Some(9)), (Some(137), None), (Some(137), Some(9))] {
            assert_eq!(of(code, signal, true, true), Some(EndedBy::DiskQuota));
            assert_eq!(of(code, signal, false, true), Some(EndedBy::MemoryLimit));
            assert_eq!(of(code, signal, false, false), None, "somebody may have sent it");
        }
        assert_eq!(of(None, Some(25), false, false), Some(EndedBy::FileSizeLimit));
        assert_eq!(of(Some(153), None, true, true), Some(EndedBy::FileSizeLimit));
        for code in [0, 1, 9, 25, 143] {
            assert_eq!(of(Some(code), None, true, true), None, "{code}");
        }
    }

    #[test]
    fn the_quota_explains_a_kill_and_no_other_end() {
        let of = |ended_by: &str, signal| {
            let mut result = ExecResult { ended_by: ended_by.to_owned(), signal, ..Default::default() };
            ended_by_quota(&mut result);
            (result.ended_by, result.limits_hit)
        };
        let quota = ("disk-quota".to_owned(), vec!["disk-quota".to_owned()]);
        assert_eq!(of("", Some(9)), quota);
        assert_eq!(of("memory-limit", Some(9)), quota);
        assert_eq!(of("cancelled", Some(9)), ("cancelled".to_owned(), vec![]));
        assert_eq!(of("", Some(15)), (String::new(), vec![]));
    }

    #[test]
    fn names_are_distinct_and_parse_back() {
        for limit in Limit::ALL {
            assert_eq!(Limit::parse(limit.as_str()), Some(limit));
        }
        assert_eq!(Limit::parse("timeout"), None);
    }

    #[test]
    fn every_limit_is_explained_once() {
        let mut result = ExecResult::default();
        explain(&mut result, vec![Limit::TmpSpace, Limit::Memory, Limit::TmpSpace]);
        assert_eq!(limits_hit(&result), [Limit::Memory, Limit::TmpSpace]);
        assert!(result.hint.starts_with("the run was out of memory"), "{}", result.hint);
        assert!(result.hint.contains("; /tmp is full: "), "{}", result.hint);
        let mut result = ExecResult::default();
        explain(&mut result, Vec::new());
        assert_eq!(result, ExecResult::default());
    }
}
