//! The view that permissions have of a command: its first words, and the commands in it.

use std::cell::OnceCell;

use operations::{Effect, Operation};

use super::environment::redirects;
use super::see_through::{Seen, TooIntricate};
use crate::policy::Words;

/// An operation whose command is seen through at most once, when a permission first asks.
#[derive(Debug)]
pub(crate) struct Sight<'o> {
    operation: &'o Operation,
    seen: OnceCell<Result<Seen, TooIntricate>>,
}

impl<'o> Sight<'o> {
    pub(crate) fn of(operation: &'o Operation) -> Self {
        Self { operation, seen: OnceCell::new() }
    }

    pub(crate) fn operation(&self) -> &'o Operation {
        self.operation
    }

    /// Returns true if it is a command that begins with `words` in the way that an `allow` rule requires.
    ///
    /// It may have no wrapper, and no variable that turns its program into another one.
    pub(crate) fn begins_plainly(&self, words: Words<'_>) -> bool {
        let Some(exec) = self.operation.command() else { return false };
        words.begin_exactly(&exec.program(), &exec.args)
            && !exec.env.keys().any(|name| redirects(name))
            && self.seen().is_ok_and(|seen| seen.is_plain_to(words.len()))
    }

    /// Returns true if any command that can be seen in it begins with `words`, in any spelling, or if it is too intricate to
    /// see through.
    pub(crate) fn contains(&self, words: Words<'_>) -> bool {
        self.operation.effect() == Effect::Runs
            && self.seen().map_or(true, |seen| {
                let mut commands = seen.commands().filter_map(<[String]>::split_first);
                commands.any(|(program, args)| words.begin_loosely(program, args))
            })
    }

    fn seen(&self) -> Result<&Seen, &TooIntricate> {
        self.seen.get_or_init(|| Seen::of(self.operation)).as_ref()
    }
}
