//! Words that a command line begins with: a prefix with one word at each position, as permissions and remembered
//! consent have it.

use super::prefix::{begins, is_exactly, is_loosely};

/// At least one word.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Words<'w>(&'w [String]);

impl<'w> Words<'w> {
    /// `None` when there is none.
    pub(crate) fn of(words: &'w [String]) -> Option<Self> {
        (!words.is_empty()).then_some(Self(words))
    }

    /// How many there are.
    pub(crate) fn len(self) -> usize {
        self.0.len()
    }

    /// Like [`super::Prefix::matches_exactly`].
    pub(crate) fn begin_exactly(self, program: &str, args: &[String]) -> bool {
        begins(self.0.iter().map(std::slice::from_ref), program, args, is_exactly)
    }

    /// Like [`super::Prefix::matches_loosely`].
    pub(crate) fn begin_loosely(self, program: &str, args: &[String]) -> bool {
        begins(self.0.iter().map(std::slice::from_ref), program, args, is_loosely)
    }
}
