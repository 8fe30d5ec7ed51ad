//! Causes of a command's early end and the limits of a run, in sentences that a model can act on.

use wire::v1::exec_result::{EndedBy, Limit};

use crate::Reason;

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
pub(crate) const fn advice(limit: Limit) -> &'static str {
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
