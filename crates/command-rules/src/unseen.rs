//! Parts of a command that cannot be seen through: its words do not show what it then does.

use std::fmt;

use super::code::{Code, code};
use super::effects::may_do_more;
use super::script::not_plain;
use text::excerpt;

/// One part that cannot be seen through, as reviewers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unseen {
    what: What,
    /// Number of words of its command that a rule must name to cover this part. `None` if no rule can.
    named_by: Option<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    /// This word of a script means more than itself.
    Script(String),
    /// This program runs commands that it reads or that its arguments make up.
    Runs(String),
    /// This word of the program's arguments is code, or makes the next word code.
    Code { program: String, word: String },
    /// This program's arguments are code.
    Takes(String),
    /// This program reads code.
    Reads(String),
}

impl Unseen {
    /// Returns true if a rule that names the first `words` words of the command also names this part.
    pub(super) fn is_named_by(&self, words: usize) -> bool {
        self.named_by.is_some_and(|needed| needed <= words)
    }
}

impl fmt::Display for Unseen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            What::Script(word) => write!(f, "a script with `{}` in it", excerpt(word)),
            What::Runs(program) => {
                write!(f, "`{}` runs commands that it reads or makes from its arguments", excerpt(program))
            }
            What::Code { program, word } => {
                write!(f, "`{}` takes code with `{}`", excerpt(program), excerpt(word))
            }
            What::Takes(program) => write!(f, "`{}` takes code", excerpt(program)),
            What::Reads(program) => write!(f, "`{}` reads code from its input", excerpt(program)),
        }
    }
}

pub(super) fn in_script(text: &str) -> Option<Unseen> {
    not_plain(text).map(|word| Unseen { what: What::Script(word), named_by: None })
}

/// Finds the unseen part of a command. `opaque` says that it runs others in ways that its words do not show.
pub(super) fn in_command(command: &[String], opaque: bool) -> Option<Unseen> {
    let (program, args) = command.split_first()?;
    let runs = || Some(Unseen { what: What::Runs(program.clone()), named_by: None });
    if opaque {
        return runs();
    }
    let (what, named_by) = match code(program, args)? {
        Code::Word(at) => {
            let word = args.get(at).unwrap_or(program).clone();
            (What::Code { program: program.clone(), word }, Some(at + 2))
        }
        // A script on the list of plain ones is seen through.
        Code::Sed if !may_do_more(program, args) => return None,
        Code::Sed => (What::Takes(program.clone()), None),
        Code::Always if may_do_more(program, args) => return runs(),
        Code::Always => (What::Takes(program.clone()), Some(1)),
        Code::Input => (What::Reads(program.clone()), None),
    };
    Some(Unseen { what, named_by })
}
