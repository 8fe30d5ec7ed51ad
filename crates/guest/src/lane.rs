//! The state that all calls of the guest share.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use jail::{GitReads, Jail, Mount, Protection, RUN_LOG, Root};
use operations::{Bounds, Environment};
use tokio::sync::{Mutex, Semaphore};

use crate::args::Mounts;
use crate::call::Calls;
use crate::children::{Children, Preforks};
use crate::threads::Threads;

/// State that all calls share.
pub(crate) struct Lane {
    pub(crate) mounts: Mounts,
    /// Variables of the run, from the daemon's hello or the frame that follows it. Unset while the guest waits for its run.
    pub(crate) environment: OnceLock<Environment>,
    pub(crate) calls: Calls,
    pub(crate) children: Arc<Children>,
    /// Processes that wait to become commands.
    pub(crate) preforks: Preforks,
    /// Threads for work that may block.
    pub(crate) threads: Threads,
    /// Limits downloads.
    pub(crate) transfers: Semaphore,
    /// The turn of a write outside the mounts, in order of arrival. Links may lead two paths to one file there.
    pub(crate) outside: Mutex<()>,
}

impl Lane {
    /// Returns the variables that each command has unless it sets them itself.
    pub(crate) fn environment(&self) -> Environment {
        self.environment.get().cloned().unwrap_or_default()
    }

    /// Opens the run's mounts as they are now.
    ///
    /// This happens for each call, because a workspace may be mounted after the guest has started. A mount whose directory does not exist
    /// is not part of the run.
    pub(crate) fn jail<'m>(mounts: impl Iterator<Item = (Mount, &'m PathBuf)>, bounds: &Bounds) -> Jail {
        let git_reads = if bounds.hide_git_config { GitReads::Guarded } else { GitReads::Open };
        let roots = mounts.filter_map(|(mount, at)| {
            let root = Root::open(mount, at).ok()?;
            Some(if mount == Mount::State { root.with_inner(at, RUN_LOG) } else { root })
        });
        let jail = Jail::new(roots, Protection { git_reads });
        bounds.path_rules.guard(jail)
    }
}
