//! Command lines that are known to be harmless, in any image: GNU's coreutils and findutils, busybox, and others of the
//! same name.
//!
//! This is an exact list of shapes, not a list of feared options. A shape has the options of a program: letters, and
//! whole words. A word that is not on the list, an abbreviation of one that is, or an option after an operand makes the
//! command line one that is not known.
//!
//! There are two lists. A shape of [`shapes::READERS`] only reads. A shape of [`shapes::CHANGERS`] may write, but runs
//! nothing and deletes nothing; with other arguments these programs do. Only words are judged: an image may have a
//! program under another program's name, and it can do anything, in its container.

mod find;
mod sed;
mod shapes;

use operations::deny::{base_name, is_magic_link};
use operations::is_wrapper;

use shapes::{CHANGERS, READERS};

/// Returns the files and directories that a command reads, if it is known to do nothing else.
///
/// The error is the word that is not known to be harmless, or the program itself.
pub(crate) fn reads<'a>(program: &'a str, args: &'a [String]) -> Result<Vec<&'a str>, &'a str> {
    match base_name(program).as_str() {
        "find" | "gfind" => find::reads(args),
        name => match shapes::of(&READERS, name) {
            // Each operand is taken for a file, also one that is a pattern.
            Some(shape) => {
                let operands = shape.read(args)?.operands;
                Ok(operands.into_iter().filter(|operand| *operand != "-").collect())
            }
            None => Err(program),
        },
    }
}

/// Returns true if this command only reads, and its program never does anything else.
pub fn only_reads(program: &str, args: &[String]) -> bool {
    let shape = shapes::of(&READERS, &base_name(program)).filter(|_| !is_magic_link(program));
    shape.is_some_and(|shape| shape.read(args).is_ok())
}

/// Returns true if the arguments may make a program run another one or delete what it finds.
pub(crate) fn may_do_more(program: &str, args: &[String]) -> bool {
    match base_name(program).as_str() {
        "find" | "gfind" => find::reads(args).is_err(),
        "sed" | "gsed" => !sed::is_plain(args),
        // All its arguments are code, or may be.
        "awk" | "gawk" | "mawk" | "nawk" => {
            args.iter().any(|word| word.contains("system") || word.contains('|'))
        }
        name => match shapes::of(&CHANGERS, name) {
            Some(shape) => shape.read(args).is_err(),
            None => is_wrapper(name),
        },
    }
}

/// Returns the word by which a command deletes the files that it finds.
pub fn deletes<'a>(program: &str, args: &'a [String]) -> Option<&'a str> {
    // No other program does, and a script may have very many commands.
    let name = program.len().checked_sub("find".len()).and_then(|at| program.get(at..))?;
    if !name.eq_ignore_ascii_case("find") || find::reads(args).is_ok() {
        return None;
    }
    args.iter().map(String::as_str).find(|word| matches!(*word, "-delete" | "-rm"))
}

#[cfg(test)]
mod tests;
