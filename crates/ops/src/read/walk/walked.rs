//! What a walk has to say about itself when it is over.

use super::{MAX_DEPTH, MAX_ENTRIES};
use crate::cancel::Stopped;

/// How far a walk came.
#[derive(Debug, Default)]
pub(in crate::read) struct Walked {
    pub(in crate::read) entries: u64,
    /// It was told to stop.
    pub(in crate::read) stopped: Option<Stopped>,
    /// There was more, deeper or beyond the bound.
    pub(in crate::read) bounded: bool,
    /// Directories that could not be read.
    pub(in crate::read) unread: u64,
    /// Ignore files were too large to count in full.
    pub(in crate::read) rules_cut: bool,
}

impl Walked {
    /// What a result has to say about what was not visited.
    pub(in crate::read) fn hints(&self) -> Vec<String> {
        let mut hints = Vec::new();
        if self.bounded {
            hints.push(format!(
                "the tree is larger than one call looks at ({MAX_ENTRIES} entries, {MAX_DEPTH} levels): look further down"
            ));
        }
        if self.unread > 0 {
            hints.push(format!("{} directories could not be read in full", self.unread));
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
