//! The expressions of `find`.

use super::{Tally, Weight};

/// Reads the words of a `find` command.
///
/// `-L`, `-H` and `-follow` are not known to be harmless: they follow links out of the mounts.
pub(super) fn read<'a>(args: &'a [String], tally: &mut Tally<'a>) {
    let mut args = args.iter().map(String::as_str).skip_while(|arg| *arg == "-P").peekable();
    while let Some(path) = args.next_if(|arg| !arg.starts_with('-') && !matches!(*arg, "!" | "(" | ")" | ","))
    {
        tally.paths.push(path);
    }
    while let Some(word) = args.next() {
        match word {
            // Tests, actions and operators without an operand.
            "-empty"
            | "-print"
            | "-print0"
            | "-ls"
            | "-prune"
            | "-quit"
            | "-depth"
            | "-d"
            | "-xdev"
            | "-mount"
            | "-daystart"
            | "-readable"
            | "-writable"
            | "-executable"
            | "-true"
            | "-false"
            | "-nouser"
            | "-nogroup"
            | "-noleaf"
            | "-warn"
            | "-nowarn"
            | "-ignore_readdir_race"
            | "-noignore_readdir_race"
            | "-not"
            | "!"
            | "-a"
            | "-and"
            | "-o"
            | "-or"
            | ","
            | "("
            | ")"
            | "--help"
            | "--version"
            | "-help"
            | "-version" => {}
            // Tests and actions with a text or a number.
            "-name" | "-iname" | "-path" | "-ipath" | "-wholename" | "-iwholename" | "-regex" | "-iregex"
            | "-regextype" | "-type" | "-xtype" | "-maxdepth" | "-mindepth" | "-size" | "-mtime"
            | "-mmin" | "-atime" | "-amin" | "-ctime" | "-cmin" | "-used" | "-perm" | "-user" | "-group"
            | "-uid" | "-gid" | "-links" | "-inum" | "-fstype" | "-lname" | "-ilname" | "-printf" => {
                operand(&mut args, word, tally);
            }
            "-newer" | "-anewer" | "-cnewer" | "-samefile" => {
                let path = operand(&mut args, word, tally);
                tally.paths.extend(path);
            }
            "-delete" | "-rm" => tally.note(Weight::Deletes, word),
            // The output file comes first; `-fprintf` then takes a format.
            "-fprint" | "-fprint0" | "-fls" | "-fprintf" => {
                tally.note(Weight::Writes, word);
                args.by_ref().take(if word == "-fprintf" { 2 } else { 1 }).for_each(drop);
            }
            // No effect is worse, and the following words belong to another program.
            "-exec" | "-execdir" | "-ok" | "-okdir" => return tally.note(Weight::Runs, word),
            _ => match reference(word) {
                Some(is_file) => {
                    let operand = operand(&mut args, word, tally);
                    tally.paths.extend(operand.filter(|_| is_file));
                }
                // If it has operands, they are read as words of the expression.
                None => tally.note(Weight::Unknown, word),
            },
        }
    }
}

/// Takes the operand of a word. `find` fails if it is missing.
fn operand<'a>(
    args: &mut impl Iterator<Item = &'a str>,
    word: &'a str,
    tally: &mut Tally<'a>,
) -> Option<&'a str> {
    let operand = args.next();
    if operand.is_none() {
        tally.note(Weight::Unknown, word);
    }
    operand
}

/// Returns true if the operand of `-newerXY` is a file, and false if it is a time.
fn reference(word: &str) -> Option<bool> {
    match word.strip_prefix("-newer")?.as_bytes() {
        [b'a' | b'B' | b'c' | b'm', of] if b"aBcmt".contains(of) => Some(*of != b't'),
        _ => None,
    }
}
