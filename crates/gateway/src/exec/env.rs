//! `env`, and what else gives a program another name or takes its command line out of a text.

use super::inner::{Inner, wraps};
use super::options::{self, ENV};
use super::script;

/// A multi-call binary does what the name says that it is given: `exec -a rm busybox`.
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
    let line = |offset| std::iter::once(name.clone()).chain(args.iter().skip(offset).cloned()).collect();
    offsets.iter().copied().map(line).collect()
}

/// `env`'s `-S` holds a part of the command line as text, which may again begin with options and assignments.
pub(super) fn env(command: &[String]) -> Inner {
    let args = &command[1..];
    let offsets = options::offsets(&ENV, args, |arg| arg.contains('='));
    let mut inner = Inner { lines: renamed(args, &offsets), ..wraps(offsets) };
    // Options come first, each with at most one value behind it.
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
    // Variables before a command are dropped by the shell's rules, and mean nothing here. Texts within are taken apart
    // when that command line is looked at.
    inner.lines.extend(script::parse(text).commands.into_iter().map(|words| {
        let env = std::iter::once("env".to_owned());
        env.chain(words).chain(rest.iter().cloned()).collect()
    }));
    inner
}

/// What is attached to `-S`, `--split-string` or a beginning of that.
fn split_string(arg: &str) -> Option<&str> {
    if let Some(long) = arg.strip_prefix("--") {
        let (name, text) = long.split_once('=').unwrap_or((long, ""));
        return (!name.is_empty() && "split-string".starts_with(name)).then_some(text);
    }
    arg.strip_prefix('-')?.split_once('S').map(|(_, text)| text)
}
