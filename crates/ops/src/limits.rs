//! Reports why a command ended early and which limits it hit: as stable names, and as a sentence that a model can act on. Unknown causes
//! stay empty.

use wire::v1::ExecResult;
use wire::v1::exec_result::{EndedBy, Limit};

use crate::Reason;

/// Numbers of signals that show which limit ended a program.
const KILL: i32 = 9;
const XFSZ: i32 = 25;

/// Returns the limit that ended a program.
///
/// It follows from the program's exit and two observations of the daemon. The daemon may have killed commands of the run for its disk
/// quota, and the kernel may have killed a process for lack of memory. A shell that outlives the program reports the signal as 128 plus
/// its number.
pub fn limit_that_ended(
    exit_code: Option<i32>,
    signal: Option<i32>,
    over_quota: bool,
    out_of_memory: bool,
) -> Option<EndedBy> {
    match signal.or(exit_code.map(|code| code - 128)) {
        Some(KILL) if over_quota => Some(EndedBy::DiskQuota),
        Some(KILL) if out_of_memory => Some(EndedBy::MemoryLimit),
        Some(XFSZ) => Some(EndedBy::FileSizeLimit),
        _ => None,
    }
}

/// Returns the reason for which a call failed whose command was cut short, and what happened, as a sentence without its full stop.
///
/// `None` if the command ended by itself.
pub const fn cause(by: EndedBy) -> Option<(Reason, &'static str)> {
    Some(match by {
        EndedBy::Unspecified => return None,
        EndedBy::Timeout => (Reason::TimedOut, "the command was ended when its time was over"),
        EndedBy::Cancelled => (Reason::Cancelled, "the call was cancelled and its command ended"),
        EndedBy::OutputLimit => {
            (Reason::WriteLimit, "the command wrote more output than it may and was ended")
        }
        EndedBy::MemoryLimit => {
            (Reason::MemoryLimit, "the run was out of memory and the kernel ended the command")
        }
        EndedBy::FileSizeLimit => {
            (Reason::WriteLimit, "the command was ended because a file became larger than files may")
        }
        EndedBy::DiskQuota => (
            Reason::WriteLimit,
            "the run has used up what it may have on the disk, and its commands were ended",
        ),
        EndedBy::RunEnded => (Reason::Cancelled, "the run was ended while the command ran"),
        EndedBy::Killed => (Reason::Cancelled, "a client ended it while the command ran"),
        EndedBy::Interrupted => (Reason::Cancelled, "it was lost while the command ran"),
    })
}

/// Returns a sentence that says what happened at a limit and what to do.
const fn advice(limit: Limit) -> &'static str {
    match limit {
        Limit::Unspecified => "a limit of the run was reached",
        Limit::Memory => {
            "the run was out of memory and the kernel killed a process of it: work on less at a time, with fewer processes at once, and keep large files out of /tmp and /dev/shm, which count as memory"
        }
        Limit::Processes => {
            "the run's limit of processes and threads was reached: start fewer at once (such as make -j2)"
        }
        Limit::Output => {
            "it wrote more output than a command may and was ended: send the output to a file and look at parts of it, or make the command say less"
        }
        Limit::FileSize => "a file would have become larger than files may in this run: write smaller ones",
        Limit::TmpSpace => "/tmp is full: delete what is not needed there, or use @project or @state",
        Limit::ShmSpace => {
            "/dev/shm is full: delete what earlier commands left there, or tell the program to use less shared memory or a directory in @project"
        }
        Limit::ProjectSpace => "the disk of @project is full: delete what is not needed",
        Limit::StateSpace => "the disk of @state is full: delete what is not needed",
        Limit::Disk => {
            "the run has used up what it may have on the disk, in @state and in a workspace of its own: delete what is not needed there"
        }
    }
}

/// Returns true for a full file system, which only processes in the container can see.
pub const fn is_space(limit: Limit) -> bool {
    matches!(limit, Limit::TmpSpace | Limit::ShmSpace | Limit::ProjectSpace | Limit::StateSpace)
}

/// Adds to a command's result the limits that it hit, as names and as sentences.
pub fn explain(result: &mut ExecResult, mut limits: Vec<Limit>) {
    limits.sort_unstable();
    limits.dedup();
    result.limits_hit = limits.iter().map(|limit| (*limit).into()).collect();
    result.hint = limits.iter().map(|limit| advice(*limit)).collect::<Vec<_>>().join("; ");
}

/// Records the disk quota as the cause of a command's end if the result shows only that it was killed.
pub fn ended_by_quota(result: &mut ExecResult) {
    let by = limit_that_ended(result.exit_code, result.signal, true, false);
    let is_open = matches!(result.ended_by(), EndedBy::Unspecified | EndedBy::MemoryLimit);
    if by == Some(EndedBy::DiskQuota) && is_open && !result.timed_out {
        result.set_ended_by(EndedBy::DiskQuota);
        let limits = result.limits_hit().chain([Limit::Disk]).collect();
        explain(result, limits);
    }
}

/// Advice to use a process that stays instead of a background process, where the profile allows processes.
const STAYS: &str =
    "processes that it left running were ended with it: start what should stay with the operation `process`";

/// Adds to the hint of a command that left processes running how to start a process that stays.
pub fn name_processes(result: &mut ExecResult) {
    let left = result.kill.as_ref().is_some_and(|kill| kill.ended > 0);
    if left && result.ended_by() == EndedBy::Unspecified && !result.timed_out {
        let separator = if result.hint.is_empty() { "" } else { "; " };
        result.hint = format!("{}{separator}{STAYS}", result.hint);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_left_something_running_is_told_of_processes() {
        let of = |ended, limits: Vec<Limit>, ended_by: EndedBy| {
            let kill = Some(crate::KillEvidence { ended, ..Default::default() });
            let mut result = ExecResult { kill, ended_by: ended_by.into(), ..Default::default() };
            explain(&mut result, limits);
            name_processes(&mut result);
            result.hint
        };
        assert!(of(1, vec![], EndedBy::Unspecified).starts_with("processes that it left running"));
        assert!(
            of(1, vec![Limit::TmpSpace], EndedBy::Unspecified).contains("; processes that it left running")
        );
        assert_eq!(of(0, vec![], EndedBy::Unspecified), "");
        assert_eq!(of(1, vec![], EndedBy::Timeout), "");
    }

    #[test]
    fn a_limit_is_known_by_the_end_and_by_what_was_seen() {
        let of = limit_that_ended;
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
        let of = |ended_by: EndedBy, signal| {
            let mut result = ExecResult { ended_by: ended_by.into(), signal, ..Default::default() };
            ended_by_quota(&mut result);
            (result.ended_by(), result.limits_hit().collect::<Vec<_>>())
        };
        let quota = (EndedBy::DiskQuota, vec![Limit::Disk]);
        assert_eq!(of(EndedBy::Unspecified, Some(9)), quota);
        assert_eq!(of(EndedBy::MemoryLimit, Some(9)), quota);
        assert_eq!(of(EndedBy::Cancelled, Some(9)), (EndedBy::Cancelled, vec![]));
        assert_eq!(of(EndedBy::Unspecified, Some(15)), (EndedBy::Unspecified, vec![]));
    }

    #[test]
    fn every_limit_is_explained_once() {
        let mut result = ExecResult::default();
        explain(&mut result, vec![Limit::TmpSpace, Limit::Memory, Limit::TmpSpace]);
        assert_eq!(result.limits_hit().collect::<Vec<_>>(), [Limit::Memory, Limit::TmpSpace]);
        assert!(result.hint.starts_with("the run was out of memory"), "{}", result.hint);
        assert!(result.hint.contains("; /tmp is full: "), "{}", result.hint);
        let mut result = ExecResult::default();
        explain(&mut result, Vec::new());
        assert_eq!(result, ExecResult::default());
    }
}
