//! What is done about operations that were killed: by their deadline, by a cancellation, or with the whole host worker.

use std::io;

use jail::{Jail, PatchRecovery, Recovery, Whose};

use super::trash;

/// What was found and put right.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Temporary files that were removed.
    pub temporaries: usize,
    /// Things that could not be put right now; the next recovery tries again.
    pub left: usize,
    /// What whoever made the call has to know, a sentence each, on one line and with the paths that agents use.
    pub remarks: Vec<String>,
}

/// Brings the mounts into a state in which each operation of `whose` either has happened or has not, and removes what
/// they left. Idempotent: a recovery that is killed itself is done again.
pub fn recover(jail: &Jail, whose: Whose) -> io::Result<Recovered> {
    // First: a sweep would take what a patch has put aside for what nobody needs.
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
