//! Sets resource limits and priorities: generous for the host worker, tight for each operation's process.

use std::io;
use std::time::Instant;

use rustix::process::{Resource, nice};

use crate::sys;
use confinement::{SetupError, limit, step};
use host_launch::args::Task;

const MIB: u64 = 1024 * 1024;
const GIB: u64 = 1024 * MIB;
/// Most files that may be open at once.
const OPEN_FILES: u64 = 512;
/// The same for a restore, which has up to four open directories for each level.
const OPEN_FILES_OF_RESTORE: u64 = 1_024;
/// Niceness that a task on a whole tree has more than the daemon: calls of other runs go before it.
const YIELDING: i32 = 5;
/// Largest file that an operation can create, except a transfer.
const FILE_SIZE: u64 = 256 * MIB;
/// Largest file that a clone, a copy, an accept or a transfer can make: a repository may be one pack.
const PACK_SIZE: u64 = 64 * GIB;

/// Limits the process that serves; all others inherit the limits.
///
/// Sets no limit on processes: the kernel counts those per user, and the owner may have many elsewhere.
pub(super) fn restrict_host_worker(task: &Task) -> Result<(), SetupError> {
    let file_size = match task {
        Task::Clone { most, .. } | Task::CloneMirror { most, .. } => PACK_SIZE.min(most.bytes),
        Task::Mirror { most, .. } => PACK_SIZE.min(*most),
        Task::Accept(..)
        | Task::Copy(_)
        | Task::Import(_)
        | Task::Save(..)
        | Task::Fill
        | Task::Restore { .. }
        | Task::Serve { .. } => PACK_SIZE,
        _ => FILE_SIZE,
    };
    let open_files = match task {
        Task::Restore { .. } => OPEN_FILES_OF_RESTORE,
        _ => OPEN_FILES,
    };
    for (resource, most) in [
        (Resource::Core, 0),
        (Resource::Nofile, open_files),
        (Resource::Fsize, file_size),
        (Resource::As, 2 * GIB),
        (Resource::Memlock, 0),
        (Resource::Msgqueue, 0),
    ] {
        limit(resource, most).map_err(step("setting limits"))?;
    }
    sys::ignore_file_size_signal();
    let is_of_a_tree = matches!(
        task,
        Task::Copy(_)
            | Task::Digest(_)
            | Task::Export(_)
            | Task::Import(_)
            | Task::Save(..)
            | Task::Fill
            | Task::Restore { .. }
    );
    if is_of_a_tree {
        nice(YIELDING).map_err(step("lowering the priority"))?;
        sys::yield_disk();
    }
    Ok(())
}

/// Limits the memory of an operation's process.
pub(crate) fn limit_memory() -> io::Result<()> {
    limit(Resource::As, 512 * MIB)
}

/// Limits the size of the files of an operation's process. A transfer has the bound of its profile instead.
pub(crate) fn limit_file_size() -> io::Result<()> {
    limit(Resource::Fsize, FILE_SIZE)
}

/// Keeps an operation's process from starting processes and threads. For root, only the filter does.
pub(crate) fn forbid_tasks() -> io::Result<()> {
    limit(Resource::Nproc, 0)
}

/// Has the process end itself a little after `deadline`, in case the host worker does not.
pub(crate) fn limit_time(deadline: Instant) -> io::Result<()> {
    let seconds = deadline.saturating_duration_since(Instant::now()).as_secs().saturating_add(2);
    limit(Resource::Cpu, seconds)?;
    sys::alarm(u32::try_from(seconds).unwrap_or(u32::MAX));
    Ok(())
}
