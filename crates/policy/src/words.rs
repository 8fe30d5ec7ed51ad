//! The first words of a command line: a prefix with one word at each position, as in permissions and remembered
//! consent.

use crate::prefix::{begins, is_exactly, is_loosely};

/// One or more words.
#[derive(Debug, Clone, Copy)]
pub struct Words<'w>(&'w [String]);

impl<'w> Words<'w> {
    /// Makes a prefix. `None` if there is no word.
    pub fn of(words: &'w [String]) -> Option<Self> {
        (!words.is_empty()).then_some(Self(words))
    }

    /// Returns the number of words.
    pub fn count(self) -> usize {
        self.0.len()
    }

    /// Compares like [`super::Prefix::matches_exactly`].
    pub fn begin_exactly(self, program: &str, args: &[String]) -> bool {
        begins(self.0.iter().map(std::slice::from_ref), program, args, is_exactly)
    }

    /// Compares like [`super::Prefix::matches_loosely`].
    pub fn begin_loosely(self, program: &str, args: &[String]) -> bool {
        begins(self.0.iter().map(std::slice::from_ref), program, args, is_loosely)
    }
}
