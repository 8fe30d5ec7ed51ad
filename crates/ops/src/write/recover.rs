//! What is done about operations that were killed: by their deadline, by a cancellation, or with the whole hand.

use std::io;

use jail::{Jail, Whose};

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
    trash::sweep(jail, whose)?;
    let swept = jail.sweep(whose)?;
    Ok(Recovered { temporaries: swept.removed, left: swept.left, remarks: Vec::new() })
}
