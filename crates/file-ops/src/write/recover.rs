//! Recovery from operations that were killed: by their deadline, by a cancellation, or with the whole host worker.

use std::io;

use jail::{Jail, PatchRecovery, Recovery, Whose};

use super::trash;

/// Result of a recovery.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Number of temporary files that were removed.
    pub temporaries: usize,
    /// Number of problems that remain; the next recovery tries again.
    pub left: usize,
    /// Remarks for the callers of the operations, a sentence each, on one line and with the paths that agents use.
    pub remarks: Vec<String>,
}

/// Completes or undoes each operation of `whose`, and removes leftover files. Idempotent: a recovery that is killed itself is repeated.
pub fn recover(jail: &Jail, whose: Whose) -> io::Result<Recovered> {
    // Patches come first: a sweep would remove the files that a patch has put aside.
    let patches = jail.recover_patches(whose)?;
    trash::sweep(jail, whose)?;
    let swept = jail.sweep(whose)?;
    let unfinished = patches.iter().filter(|patch| !patch.finished).count();
    Ok(Recovered {
        temporaries: swept.removed,
        left: swept.left + unfinished,
        remarks: patches.iter().flat_map(remarks).collect(),
    })
}

fn remarks(patch: &PatchRecovery) -> Vec<String> {
    let end = match (patch.recovery, patch.left.is_empty()) {
        (Recovery::RolledBack, true) => "no file of the patch was changed",
        (Recovery::RolledBack, false) => "the files of the patch are as they were, but for those that follow",
        (Recovery::Completed, _) => "all files of the patch were changed",
    };
    std::iter::once(end.to_owned()).chain(patch.left.iter().map(ToString::to_string)).collect()
}
