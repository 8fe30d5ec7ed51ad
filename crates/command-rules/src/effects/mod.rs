//! The effects of a program's arguments, in any image: GNU's coreutils and findutils, busybox, and others of the same
//! name.
//!
//! This is a table of known options, not of feared ones: an option that is in no table makes the answer
//! [`Effect::Unknown`]. If two programs of one name read a line differently, the answer is true for both.
//!
//! Only words are judged. An image may have a program under another program's name. It can do anything, in its
//! container.

mod find;
mod options;
mod sed;
mod tables;

use operations::deny::base_name;
use operations::is_wrapper;

/// Effect of a command according to its words. If there are several, it is the one with the most weight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect<'a> {
    /// Reads files and directories of these names, and does nothing else.
    Reads(Vec<&'a str>),
    /// The word is not known to be harmless: an option in no table, one that waits for ever, one that takes file names
    /// from a file, or the program itself.
    Unknown(&'a str),
    /// The word makes the command write a file.
    Writes(&'a str),
    /// The word makes the command delete files that it finds.
    Deletes(&'a str),
    /// The word makes the command run a program.
    Runs(&'a str),
}

impl Effect<'_> {
    /// Describes the effect of the word for a person. `None` if the command only reads.
    pub fn described(&self) -> Option<String> {
        let (word, does) = match self {
            Self::Reads(_) => return None,
            Self::Unknown(word) => (word, "is not known to be harmless"),
            Self::Writes(word) => (word, "writes a file"),
            Self::Deletes(word) => (word, "deletes files"),
            Self::Runs(word) => (word, "runs a program"),
        };
        Some(format!("`{}` {does}", text::excerpt(word)))
    }
}

/// Weight of an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Weight {
    Unknown,
    Writes,
    Deletes,
    Runs,
}

/// The effects found so far in the words of a command.
#[derive(Debug, Default)]
struct Tally<'a> {
    paths: Vec<&'a str>,
    worst: Option<(Weight, &'a str)>,
}

impl<'a> Tally<'a> {
    /// Notes an effect of a word. Among equal weights the first word is kept.
    fn note(&mut self, weight: Weight, word: &'a str) {
        if self.worst.is_none_or(|(worst, _)| weight > worst) {
            self.worst = Some((weight, word));
        }
    }

    /// Adds a file or directory that the command reads, unless it is standard input.
    fn reads(&mut self, path: &'a str) {
        if path != "-" {
            self.paths.push(path);
        }
    }

    fn effect(self) -> Effect<'a> {
        match self.worst {
            None => Effect::Reads(self.paths),
            Some((Weight::Unknown, word)) => Effect::Unknown(word),
            Some((Weight::Writes, word)) => Effect::Writes(word),
            Some((Weight::Deletes, word)) => Effect::Deletes(word),
            Some((Weight::Runs, word)) => Effect::Runs(word),
        }
    }
}

/// Returns true if this command only reads, and would with any other arguments.
///
/// Its program has no option and no operand that makes it write or run anything.
pub fn only_reads(program: &str, args: &[String]) -> bool {
    let known = tables::program_named(&base_name(program));
    known.is_some_and(options::Program::is_harmless) && matches!(effect(program, args), Effect::Reads(_))
}

/// Returns the effect of this command. The program is identified by its base name, in any case and directory.
pub fn effect<'a>(program: &'a str, args: &'a [String]) -> Effect<'a> {
    let mut tally = Tally::default();
    match base_name(program).as_str() {
        "find" | "gfind" => find::read(args, &mut tally),
        name => match tables::program_named(name) {
            Some(known) => options::read(known, program, args, &mut tally),
            None if is_wrapper(name) => tally.note(Weight::Runs, program),
            None => tally.note(Weight::Unknown, program),
        },
    }
    tally.effect()
}

#[cfg(test)]
mod tests;
