//! The report on a finished walk.

use jail::{SandboxPath, excerpt};
use operations::LeftOut;

use super::{MAX_DEPTH, MAX_ENTRIES};
use crate::cancel::Stopped;

/// Extent of a finished walk.
#[derive(Debug, Default)]
pub(in crate::read) struct Walked {
    pub(in crate::read) entries: u64,
    /// Reason for which it was stopped early.
    pub(in crate::read) stopped: Option<Stopped>,
    /// True if there was more, deeper or beyond the limit.
    pub(in crate::read) bounded: bool,
    /// Files and directories that were not visited.
    pub(in crate::read) left_out: LeftOut,
    /// True if ignore files were too large to count in full.
    pub(in crate::read) rules_cut: bool,
    /// Directories with the name of a wanted file: their number, and the first one.
    pub(in crate::read) directories: (u64, String),
}

impl Walked {
    pub(super) fn meet(&mut self, directory: &str) {
        if self.directories.0 == 0 {
            directory.clone_into(&mut self.directories.1);
        }
        self.directories.0 += 1;
    }

    /// Returns the hint for a pattern that found no file but directories with that name, in the walk from `start`.
    pub(in crate::read) fn directory_hint(&self, start: &SandboxPath) -> Option<String> {
        let (count, first) = &self.directories;
        (*count > 0).then(|| {
            let first = excerpt(&start.shown(first));
            format!("{count} directories have that name, such as {first}: end the pattern in /** for the files below")
        })
    }

    /// Returns the hints for a walk that did not visit everything.
    pub(in crate::read) fn hints(&self) -> Vec<String> {
        let mut hints = Vec::new();
        if self.bounded {
            hints.push(format!(
                "the tree is larger than one call searches ({MAX_ENTRIES} entries, {MAX_DEPTH} levels): \
                 search in a subdirectory"
            ));
        }
        if self.rules_cut {
            hints.push(
                "ignore files are too large to be read whole: some of the files that they exclude may be \
                 included"
                    .to_owned(),
            );
        }
        hints
    }
}
