//! `env`, and other ways to give a program another name or to take its command line out of a text.

use super::inner::{Inner, wraps};
use crate::wrapper::options::{self, ENV};

/// Returns the command lines of programs that are run under another name.
///
/// A multi-call binary acts by the name that it gets: `exec -a rm busybox`. Busybox ignores a dash before the name, which
/// marks a login shell.
pub(super) fn renamed(args: &[String], offsets: &[usize]) -> Vec<Vec<String>> {
    let at = |offset: &usize| (offset - 1).min(args.len());
    let before = &args[..offsets.first().map_or(args.len(), at)];
    let name = before.iter().enumerate().find_map(|(index, arg)| match arg.strip_prefix("--") {
        Some("argv0") => before.get(index + 1).cloned(),
        Some(long) => long.strip_prefix("argv0=").map(str::to_owned),
        None => match arg.strip_prefix('-')?.split_once('a')?.1 {
            "" => before.get(index + 1).cloned(),
            attached => Some(attached.to_owned()),
        },
    });
    let Some(name) = name else { return Vec::new() };
    let name = name.strip_prefix('-').unwrap_or(&name).to_owned();
    let line = |offset| std::iter::once(name.clone()).chain(args.iter().skip(offset).cloned()).collect();
    offsets.iter().copied().map(line).collect()
}

/// Reads `env`, whose `-S` holds a part of the command line as text. That text may again begin with options and
/// assignments.
pub(super) fn env(command: &[String]) -> Inner {
    let args = &command[1..];
    let offsets = options::offsets(&ENV, args, |arg| arg.contains('='));
    let mut inner = Inner { lines: renamed(args, &offsets), ..wraps(offsets) };
    // Options come first, each with at most one value after it.
    let options = |index: &usize| {
        args[*index].starts_with('-')
            || index.checked_sub(1).is_some_and(|before| args[before].starts_with('-'))
    };
    let split =
        (0..args.len()).take_while(options).find_map(|index| Some((index, split_string(&args[index])?)));
    let Some((index, attached)) = split else { return inner };
    let (text, rest) = if attached.is_empty() {
        let Some(next) = args.get(index + 1) else { return inner };
        (next.as_str(), &args[index + 2..])
    } else {
        (attached, &args[index + 1..])
    };
    let env = std::iter::once("env".to_owned());
    inner.opaque = true;
    inner.lines.push(env.chain(words(text)).chain(rest.iter().cloned()).collect());
    inner
}

/// Splits a text into words by the rules of `-S`, which differ from a shell's.
///
/// Operators mean nothing, and `\_` separates words. Values of variables are not known here, so they are read as empty.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let escaped = (c == '\\' && (quote != Some('\'') || matches!(chars.peek(), Some('\'' | '\\'))))
            .then(|| chars.next())
            .flatten();
        match (escaped, quote) {
            (Some('c'), None) => break,
            (Some('_'), None) => words.extend(word.take()),
            (Some('_'), Some(_)) => word.get_or_insert_default().push(' '),
            (Some(escaped), _) => word.get_or_insert_default().push(escaped),
            (None, Some(end)) if c == end => quote = None,
            (None, None) if matches!(c, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, None | Some('"')) if c == '$' && chars.peek() == Some(&'{') => {
                word.get_or_insert_default();
                while chars.next().is_some_and(|c| c != '}') {}
            }
            (None, None) if c == '#' && word.is_none() => break,
            (None, None) if c.is_ascii_whitespace() || c == '\x0b' => words.extend(word.take()),
            (None, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// Returns the text attached to `-S`, `--split-string` or an abbreviation of it.
fn split_string(arg: &str) -> Option<&str> {
    if let Some(long) = arg.strip_prefix("--") {
        let (name, text) = long.split_once('=').unwrap_or((long, ""));
        return (!name.is_empty() && "split-string".starts_with(name)).then_some(text);
    }
    arg.strip_prefix('-')?.split_once('S').map(|(_, text)| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_split_as_env_does() {
        for (text, expected) in [
            ("A=1 rm -rf x", &["A=1", "rm", "-rf", "x"][..]),
            ("A=a;b rm", &["A=a;b", "rm"]),
            ("A=> rm x", &["A=>", "rm", "x"]),
            ("nice\\_rm\\_x", &["nice", "rm", "x"]),
            ("'a b' \"c\\_d\" e\\'f", &["a b", "c d", "e'f"]),
            ("'a\\_b\\''", &["a\\_b'"]),
            ("r'm' \\#x a#b", &["rm", "#x", "a#b"]),
            ("a #b c", &["a"]),
            ("a \\c b", &["a"]),
            ("${X}rm '${Y}' \"${Z}\"", &["rm", "${Y}", ""]),
            ("${X", &[""]),
            ("\t''\n", &[""]),
            ("", &[]),
        ] {
            assert_eq!(words(text), expected, "{text:?}");
        }
    }
}
