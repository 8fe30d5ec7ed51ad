//! What a walk has to say about itself when it is over.

use jail::{SandboxPath, excerpt};

use super::{MAX_DEPTH, MAX_ENTRIES};
use crate::LeftOut;
use crate::cancel::Stopped;

/// How far a walk came.
#[derive(Debug, Default)]
pub(in crate::read) struct Walked {
    pub(in crate::read) entries: u64,
    /// It was told to stop.
    pub(in crate::read) stopped: Option<Stopped>,
    /// There was more, deeper or beyond the bound.
    pub(in crate::read) bounded: bool,
    /// Files and directories that were not visited.
    pub(in crate::read) left_out: LeftOut,
    /// Ignore files were too large to count in full.
    pub(in crate::read) rules_cut: bool,
    /// Directories that have the name of a file that was looked for: how many, and the first.
    pub(in crate::read) directories: (u64, String),
}

impl Walked {
    pub(super) fn meet(&mut self, directory: &str) {
        if self.directories.0 == 0 {
            directory.clone_into(&mut self.directories.1);
        }
        self.directories.0 += 1;
    }

    /// Returns what to say where a pattern found no file but directories of that name, in the walk from `start`.
    pub(in crate::read) fn directory_hint(&self, start: &SandboxPath) -> Option<String> {
        let (count, first) = &self.directories;
        (*count > 0).then(|| {
            let first = excerpt(&start.shown(first));
            format!("{count} directories have that name, such as {first}: end the pattern in /** for the files below")
        })
    }

    /// Returns what a result has to say about a walk that did not see all.
    pub(in crate::read) fn hints(&self) -> Vec<String> {
        let mut hints = Vec::new();
        if self.bounded {
            hints.push(format!(
                "the tree is larger than one call looks at ({MAX_ENTRIES} entries, {MAX_DEPTH} levels): look further down"
            ));
        }
        if self.rules_cut {
            hints.push(
                "ignore files are larger than what counts of them: what they exclude may be here, too"
                    .to_owned(),
            );
        }
        hints
    }
}
