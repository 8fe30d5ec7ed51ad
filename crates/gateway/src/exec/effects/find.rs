//! The expressions of `find`.

use super::{Tally, Weight};

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
            // With a text or a number.
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
            // After what they write to comes the format of `-fprintf`.
            "-fprint" | "-fprint0" | "-fls" | "-fprintf" => {
                tally.note(Weight::Writes, word);
                args.by_ref().take(if word == "-fprintf" { 2 } else { 1 }).for_each(drop);
            }
            // Nothing weighs more, and the words after it are another program's.
            "-exec" | "-execdir" | "-ok" | "-okdir" => return tally.note(Weight::Runs, word),
            _ => match reference(word) {
                Some(is_file) => {
                    let operand = operand(&mut args, word, tally);
                    tally.paths.extend(operand.filter(|_| is_file));
                }
                // Its operands, if it has any, are looked at as if they were words of their own.
                None => tally.note(Weight::Unknown, word),
            },
        }
    }
}

/// Without it `find` fails.
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

/// Of `-newerXY`: whether the operand is a file, and no time.
fn reference(word: &str) -> Option<bool> {
    match word.strip_prefix("-newer")?.as_bytes() {
        [b'a' | b'B' | b'c' | b'm', of] if b"aBcmt".contains(of) => Some(*of != b't'),
        _ => None,
    }
}
