//! A push of git, as reviewers are asked about it.

use std::fmt::Write as _;

use git_wire::{Change, Ruling};

use crate::git::Push;

/// Most refs of a push that a reviewer can be asked about.
const REFS: usize = 64;
/// Longest statement of a push that a reviewer can be asked about, bytes.
const LONGEST: usize = 16 * 1024;

/// A push that a reviewer is asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushQuestion {
    /// Path of the repository.
    pub repository: String,
    /// Its updates, in their order.
    pub updates: Vec<PushUpdate>,
    /// Either all refs change or none.
    pub is_atomic: bool,
    /// Options for the hooks of the server.
    pub options: Vec<String>,
    /// Everything that consent is bound to, one fact a line.
    pub statement: String,
}

/// An update of one ref.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushUpdate {
    pub name: String,
    /// The id that the ref has before; zeros if there is none.
    pub old: String,
    /// The id that it gets; zeros if it is deleted.
    pub new: String,
    pub change: Change,
    /// The old object is no ancestor of the new one, as far as is known.
    pub is_forced: bool,
}

impl PushQuestion {
    /// Returns the question about a push, or the reason for which no reviewer can answer it.
    pub(crate) fn of(push: &Push, ruling: &Ruling) -> Result<Self, String> {
        let Push { repository, list, .. } = push;
        let count = list.commands.len();
        if count > REFS {
            return Err(format!(
                "it has {count} refs, and a reviewer is asked about {REFS} at most; push fewer at once"
            ));
        }
        let mut statement = list.statement(repository);
        let mut updates = Vec::with_capacity(count);
        for (command, ruled) in list.commands.iter().zip(&ruling.commands) {
            let name = command.name().to_string();
            if ruled.is_forced {
                let _ = writeln!(statement, "forced {name}");
            }
            updates.push(PushUpdate {
                name,
                old: command.old().to_string(),
                new: command.new_id().to_string(),
                change: command.change(),
                is_forced: ruled.is_forced,
            });
        }
        if statement.len() > LONGEST {
            return Err("its refs and options are too long for a reviewer; push fewer at once".to_owned());
        }
        Ok(Self {
            repository: repository.to_string(),
            updates,
            is_atomic: list.capabilities.is_atomic,
            options: list.options.clone(),
            statement,
        })
    }
}
