//! The expressions of `find`.

use super::shapes::is_among;

/// Tests, actions and operators without an operand.
const WORDS: &str = "-empty -print -print0 -ls -prune -quit -depth -xdev -mount -readable -writable -executable -not \
    ! -a -and -o -or ( )";

/// Tests and actions with a text or a number.
const VALUED: &str = "-name -iname -path -ipath -wholename -regex -iregex -regextype -type -maxdepth -mindepth -size \
    -mtime -mmin -perm -user -group -links -inum -newermt -printf";

/// Tests with a file that is read.
const FILES: &str = "-newer -samefile";

/// Returns the files and directories that `find` reads, or the word that is not known to be harmless.
///
/// `-L`, `-H` and `-follow` are not: they follow links out of the mounts.
pub(super) fn reads(args: &[String]) -> Result<Vec<&str>, &str> {
    let is_path = |word: &&str| !word.starts_with('-') && !matches!(*word, "!" | "(" | ")" | ",");
    let mut rest = args.iter().map(String::as_str).peekable();
    let mut paths: Vec<&str> = std::iter::from_fn(|| rest.next_if(is_path)).collect();
    while let Some(word) = rest.next() {
        if is_among(WORDS, word) {
            continue;
        }
        if !is_among(VALUED, word) && !is_among(FILES, word) {
            return Err(word);
        }
        let operand = rest.next().ok_or(word)?;
        paths.extend(is_among(FILES, word).then_some(operand));
    }
    Ok(paths)
}
