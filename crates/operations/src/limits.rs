//! Causes of a command's early end and the limits of a run, in sentences that a model can act on.

use wire::v1::exec_result::{EndedBy, Limit};

use crate::Reason;

/// Returns the reason for which a call failed whose command was cut short, and what happened, as a sentence without its full stop.
///
/// `None` if the command ended by itself.
pub const fn cause(by: EndedBy) -> Option<(Reason, &'static str)> {
    Some(match by {
        EndedBy::Unspecified => return None,
        EndedBy::Timeout => (Reason::TimedOut, "the command timed out and was ended"),
        EndedBy::Cancelled => (Reason::Cancelled, "the call was cancelled and its command ended"),
        EndedBy::OutputLimit => (Reason::WriteLimit, "the command exceeded its output limit and was ended"),
        EndedBy::MemoryLimit => {
            (Reason::MemoryLimit, "the run was out of memory and the kernel ended the command")
        }
        EndedBy::FileSizeLimit => {
            (Reason::WriteLimit, "the command was ended because a file exceeded the size limit")
        }
        EndedBy::DiskQuota => {
            (Reason::WriteLimit, "the run has used up its disk quota, and its commands were ended")
        }
        EndedBy::RunEnded => (Reason::Cancelled, "the run was ended while the command ran"),
        EndedBy::Killed => (Reason::Cancelled, "a client ended the process while the command ran"),
        EndedBy::Interrupted => (Reason::Cancelled, "the process was lost while the command ran"),
        EndedBy::HostMemory => (
            Reason::MemoryLimit,
            "the host had no memory left and the kernel ended the command, although the run was below its own limit",
        ),
        EndedBy::HostDisk => (
            Reason::WriteLimit,
            "the daemon's disk was full and the run's commands were ended, although the run was within its quota",
        ),
    })
}

/// Returns a sentence that says what happened at a limit and what to do.
pub(crate) const fn advice(limit: Limit) -> &'static str {
    match limit {
        Limit::Unspecified => "a limit of the run was reached",
        Limit::Memory => {
            "the run ran out of memory, and the kernel killed one of its processes: work on less data at a time, with fewer processes, and keep large files out of /tmp and /dev/shm, which count as memory"
        }
        Limit::Processes => {
            "the run's limit of processes and threads was reached: start fewer at once (such as make -j2)"
        }
        Limit::Output => {
            "the command exceeded its output limit and was ended: send the output to a file and read parts of it, or make the command print less"
        }
        Limit::FileSize => {
            "a file would have exceeded the size limit for files of this run: write smaller files"
        }
        Limit::TmpSpace => "/tmp is full: delete files there that are not needed, or use @project or @state",
        Limit::ShmSpace => {
            "/dev/shm is full: delete files that earlier commands left there, or tell the program to use less shared memory or a directory in @project"
        }
        Limit::ProjectSpace => "the disk of @project is full: delete files that are not needed",
        Limit::StateSpace => "the disk of @state is full: delete files that are not needed",
        Limit::Disk => {
            "the run has used up its disk quota, which covers @state and a managed workspace: delete files there that are not needed"
        }
    }
}

/// Returns true for a full file system, which only processes in the container can see.
pub const fn is_space(limit: Limit) -> bool {
    matches!(limit, Limit::TmpSpace | Limit::ShmSpace | Limit::ProjectSpace | Limit::StateSpace)
}
