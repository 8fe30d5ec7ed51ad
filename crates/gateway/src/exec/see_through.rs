//! Every command that can be seen in a command line: itself, and what it wraps.

use std::collections::HashSet;

use ops::deny::base_name;

use super::shell;
use super::wrapper::{self, ENV, Kind, Options};

/// Commands that one command line may contain. More is no honest use.
const MAX_COMMANDS: usize = 1_024;
/// Words, over all texts that had to be taken apart.
const MAX_WORDS: usize = 65_536;

/// The commands in a command line.
#[derive(Debug)]
pub(super) struct Seen {
    sources: Vec<Vec<String>>,
    commands: Vec<(usize, usize)>,
    /// The outermost program runs others.
    pub(super) wrapped: bool,
}

/// So deeply or widely wrapped that it cannot be judged.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooIntricate;

impl Seen {
    /// Every command, the outermost first. None is empty.
    pub(super) fn commands(&self) -> impl Iterator<Item = &[String]> {
        self.commands.iter().map(|&(source, start)| &self.sources[source][start..])
    }
}

/// Looks through all wrappers in `argv`.
pub(super) fn see_through(argv: Vec<String>) -> Result<Seen, TooIntricate> {
    let mut seen = Seen { sources: Vec::new(), commands: Vec::new(), wrapped: false };
    let mut looked_at = HashSet::new();
    let mut words = 0;
    let mut fresh = vec![argv];
    let mut open: Vec<(usize, usize)> = Vec::new();
    loop {
        for source in fresh.drain(..) {
            words += source.len();
            if words > MAX_WORDS {
                return Err(TooIntricate);
            }
            open.push((seen.sources.len(), 0));
            seen.sources.push(source);
        }
        let Some((source, start)) = open.pop() else { return Ok(seen) };
        let Some(command) = seen.sources[source].get(start..).filter(|command| !command.is_empty()) else {
            continue;
        };
        if !looked_at.insert((source, start)) {
            continue;
        }
        if seen.commands.len() == MAX_COMMANDS {
            return Err(TooIntricate);
        }
        let inner = inner(command);
        seen.wrapped |= seen.commands.is_empty() && inner.wraps;
        seen.commands.push((source, start));
        open.extend(inner.offsets.into_iter().map(|offset| (source, start + offset)));
        fresh = inner.parsed;
    }
}

/// What one command runs.
#[derive(Debug, Default)]
struct Inner {
    wraps: bool,
    /// Command lines that begin at these places of its own.
    offsets: Vec<usize>,
    /// Command lines that had to be taken out of a text.
    parsed: Vec<Vec<String>>,
}

fn inner(command: &[String]) -> Inner {
    let Some((program, args)) = command.split_first() else { return Inner::default() };
    match wrapper::kind(&base_name(program)) {
        None => Inner::default(),
        Some(Kind::Options(options)) => after_options(options, args, |_| false),
        Some(Kind::Env) => env(args),
        Some(Kind::Shell) => script(args),
        Some(Kind::Eval) => {
            Inner { wraps: true, parsed: shell::commands(&args.join(" ")), ..Inner::default() }
        }
        Some(Kind::Find) => find(args),
        Some(Kind::Anywhere) => {
            let texts = args.iter().filter(|arg| arg.contains(char::is_whitespace));
            Inner {
                wraps: true,
                offsets: (1..command.len()).collect(),
                parsed: texts.flat_map(|text| shell::commands(text)).collect(),
            }
        }
    }
}

/// Offsets count from the program, so that the first argument is at 1.
fn after_options(options: &Options, args: &[String], skip: impl Fn(&str) -> bool) -> Inner {
    let at = |index: usize| Inner { wraps: true, offsets: vec![index + 1], parsed: Vec::new() };
    let anywhere =
        |from: usize| Inner { wraps: true, offsets: (from + 1..=args.len()).collect(), parsed: Vec::new() };
    let mut operands = options.operands;
    let mut index = 0;
    while let Some(arg) = args.get(index) {
        let step = if arg == "--" {
            return at(index + 1 + operands);
        } else if let Some(long) = arg.strip_prefix("--") {
            if long.contains('=') || options.long_flags.contains(&long) {
                1
            } else if options.long_valued.contains(&long) {
                2
            } else {
                return anywhere(index + 1);
            }
        } else if let Some(short) = arg.strip_prefix('-') {
            match short_step(options, short) {
                Some(step) => step,
                None => return anywhere(index + 1),
            }
        } else if skip(arg) {
            1
        } else if operands > 0 {
            operands -= 1;
            1
        } else {
            return at(index);
        };
        index += step;
    }
    Inner { wraps: true, ..Inner::default() }
}

/// How many arguments a cluster of short options takes; `None` if there is an unknown one in it.
fn short_step(options: &Options, cluster: &str) -> Option<usize> {
    for (position, option) in cluster.char_indices() {
        if options.attached.contains(option) {
            return Some(1);
        }
        if options.valued.contains(option) {
            let attached = position + option.len_utf8() < cluster.len();
            return Some(if attached { 1 } else { 2 });
        }
        if !options.flags.contains(option) {
            return None;
        }
    }
    Some(1)
}

/// `env`'s `-S` holds a part of the command line as text, which may again begin with options and assignments.
fn env(args: &[String]) -> Inner {
    let mut inner = after_options(&ENV, args, |arg| arg.contains('='));
    // Options come first, each with at most one value behind it.
    let options = |index: &usize| {
        args[*index].starts_with('-')
            || index.checked_sub(1).is_some_and(|before| args[before].starts_with('-'))
    };
    for index in (0..args.len()).take_while(options) {
        let arg = &args[index];
        let attached = if let Some(long) = arg.strip_prefix("--split-string") {
            Some(long.strip_prefix('=').unwrap_or(long))
        } else if let Some(short) = arg.strip_prefix('-').filter(|short| !short.starts_with('-')) {
            short.split_once('S').map(|(_, text)| text)
        } else {
            None
        };
        let Some(attached) = attached else { continue };
        let (text, rest) = if attached.is_empty() {
            let Some(next) = args.get(index + 1) else { continue };
            (next.as_str(), &args[index + 2..])
        } else {
            (attached, &args[index + 1..])
        };
        let words = shell::commands(text).into_iter().flatten();
        // Variables before a command are dropped by the shell's rules, and mean nothing here.
        inner.parsed.push(["env".to_owned()].into_iter().chain(words).chain(rest.iter().cloned()).collect());
        // Inner texts are taken apart when that command line is looked at.
        break;
    }
    inner
}

/// A shell's `-c` text. Everything after `-c` is looked at: which of it is the text depends on the other options.
fn script(args: &[String]) -> Inner {
    let is_c = |arg: &String| arg.starts_with(['-', '+']) && !arg.starts_with("--") && arg.contains('c');
    let Some(c) = args.iter().position(is_c) else { return Inner::default() };
    let texts = args[c + 1..].iter();
    Inner { wraps: true, parsed: texts.flat_map(|text| shell::commands(text)).collect(), ..Inner::default() }
}

fn find(args: &[String]) -> Inner {
    let runs = |arg: &String| matches!(arg.as_str(), "-exec" | "-execdir" | "-ok" | "-okdir");
    let offsets: Vec<usize> =
        args.iter().enumerate().filter(|(_, arg)| runs(arg)).map(|(index, _)| index + 2).collect();
    Inner { wraps: !offsets.is_empty(), offsets, parsed: Vec::new() }
}
