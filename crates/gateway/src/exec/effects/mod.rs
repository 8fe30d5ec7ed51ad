//! What a program does with its arguments, in any image: GNU's coreutils and findutils, busybox, and others by that name.
//!
//! A table of known options, not of feared ones: an option that is in no table makes the answer [`Effect::Unknown`].
//! If two programs of one name read a line differently, the answer is true for both.
//!
//! This judges words. A program that an image has under another program's name can do anything, in its container.

mod find;
mod options;
mod sed;
mod tables;

use ops::deny::base_name;

use crate::wrapper::is_wrapper;

/// What a command does, as far as its words say. Of several, the one that weighs most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Effect<'a> {
    /// It reads files of these names and directories, and does nothing else.
    Reads(Vec<&'a str>),
    /// The word is not known to be harmless: an option in no table, one that waits for ever, one that takes the names of
    /// files from a file, or the program itself.
    Unknown(&'a str),
    /// The word makes it write a file.
    Writes(&'a str),
    /// The word makes it delete files that it finds.
    Deletes(&'a str),
    /// The word makes it run a program.
    Runs(&'a str),
}

impl Effect<'_> {
    /// What the word does, for a person. Nothing of a command that only reads.
    pub(super) fn described(&self) -> Option<String> {
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

/// How much an effect weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Weight {
    Unknown,
    Writes,
    Deletes,
    Runs,
}

/// What is known of a command while its words are read.
#[derive(Debug, Default)]
struct Tally<'a> {
    paths: Vec<&'a str>,
    worst: Option<(Weight, &'a str)>,
}

impl<'a> Tally<'a> {
    /// Of equal weights, the first word.
    fn note(&mut self, weight: Weight, word: &'a str) {
        if self.worst.is_none_or(|(worst, _)| weight > worst) {
            self.worst = Some((weight, word));
        }
    }

    /// A file or directory that it reads, unless it is standard input.
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

/// Whether this command only reads, and would whatever else it were told: its program has no option and no operand that makes it
/// write or run anything.
pub(crate) fn only_reads(program: &str, args: &[String]) -> bool {
    let known = tables::program_named(&base_name(program));
    known.is_some_and(options::Program::is_harmless) && matches!(effect(program, args), Effect::Reads(_))
}

/// What this command does. Its program counts by its base name, in any case and directory.
pub(super) fn effect<'a>(program: &'a str, args: &'a [String]) -> Effect<'a> {
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
