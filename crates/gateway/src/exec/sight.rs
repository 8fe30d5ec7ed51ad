//! The view that permissions have of a command: its first words, and the commands in it.

use std::cell::OnceCell;

use operations::{Effect, Exec, Operation};

use command_rules::{Seen, TooIntricate, argv};
use policy::{Words, environment::redirects};

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
            && self.seen().is_ok_and(|seen| seen.is_plain_to(words.count()))
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

/// Returns the words of a plain command, or `None` for any other.
///
/// A plain command runs no other program that its arguments name, deletes no files that it finds, and sets no variable
/// that turns its program into another one.
pub(crate) fn plain_argv(exec: &Exec) -> Option<Vec<String>> {
    let seen = Seen::of_command(exec).ok()?;
    let argv = argv(exec);
    let plain = seen.is_plain_to(argv.len()) && !exec.env.keys().any(|name| redirects(name));
    plain.then_some(argv)
}
