//! The commands that one command runs, found by the way in which its program takes them from its arguments.

use operations::deny::{base_name, is_magic_link};

use super::env::{env, renamed};
use super::inner::{Inner, value_of, wraps};
use super::shell::{is_stream, shell};
use crate::wrapper::options::{self, Options};
use crate::wrapper::{self, Kind};

/// Returns what a command runs. An empty command runs nothing.
pub(super) fn inner(command: &[String]) -> Inner {
    let Some((program, args)) = command.split_first() else { return Inner::default() };
    if is_magic_link(program) {
        return multi_call(args);
    }
    match wrapper::kind(&base_name(program)) {
        None => Inner::default(),
        Some(Kind::Options(options)) => wraps(options::offsets(options, args, |_| false)),
        Some(Kind::Xargs) => {
            Inner { opaque: true, ..wraps(options::offsets(&options::XARGS, args, |_| false)) }
        }
        Some(Kind::Builtin(options)) => builtin(options, command),
        Some(Kind::MultiCall) => multi_call(args),
        Some(Kind::Env) => env(command),
        Some(Kind::Shell) => shell(args),
        Some(Kind::Eval) => {
            Inner { wraps: true, texts: vec![args.join(" ")], reads: true, opaque: true, ..Inner::default() }
        }
        Some(Kind::Source) => {
            Inner { reads: args.first().is_some_and(|file| is_stream(file)), ..Inner::default() }
        }
        Some(Kind::Trap) => Inner { texts: args.iter().take(2).cloned().collect(), ..Inner::default() },
        Some(Kind::Alias) => Inner {
            texts: args.iter().filter_map(|arg| value_of(arg)).map(str::to_owned).collect(),
            ..Inner::default()
        },
        Some(Kind::Print) => {
            let text = args.join(" ").replace("\\n", "\n");
            Inner { inputs: vec![text], ..Inner::default() }
        }
        Some(Kind::Follows(flags)) => follows(flags, args),
        Some(Kind::Anywhere { reads }) => anywhere(args, reads),
        Some(Kind::Reads) => Inner { wraps: true, reads: true, opaque: true, ..Inner::default() },
    }
}

/// Reads `busybox rm`, `coreutils --coreutils-prog=rm`.
fn multi_call(args: &[String]) -> Inner {
    let line = args.first().and_then(|first| {
        let applet =
            first.strip_prefix("--coreutils-prog")?.strip_prefix("-shebang=").or_else(|| value_of(first))?;
        Some(std::iter::once(applet.to_owned()).chain(args[1..].iter().cloned()).collect())
    });
    let offsets = options::offsets(&options::NONE, args, |_| false);
    Inner { lines: line.into_iter().collect(), ..wraps(offsets) }
}

/// Reads a builtin. `command -v rm` runs nothing: it only looks up the name.
fn builtin(options: &Options, command: &[String]) -> Inner {
    let args = &command[1..];
    let asks = |arg: &String| arg.starts_with('-') && !arg.starts_with("--") && arg.contains(['v', 'V']);
    if base_name(&command[0]) == "command" && args.first().is_some_and(asks) {
        return Inner::default();
    }
    let offsets = options::offsets(options, args, |_| false);
    let lines = renamed(args, &offsets);
    Inner { lines, ..wraps(offsets) }
}

/// Reads `find -exec rm`, `sort --compress-program=rm`: a flag is followed by a command line, or by the text of one.
fn follows(flags: &[&str], args: &[String]) -> Inner {
    let mut inner = Inner::default();
    for (index, arg) in args.iter().enumerate() {
        let (name, attached) = match arg.split_once('=') {
            Some((name, text)) if arg.starts_with("--") => (name, Some(text)),
            _ => (arg.as_str(), None),
        };
        // Long options may be shortened.
        let is =
            |flag: &&str| *flag == name || name.len() > 4 && name.starts_with("--") && flag.starts_with(name);
        if flags.iter().any(is) {
            inner.wraps = true;
            let next = || args.get(index + 1).map(String::as_str);
            if attached.is_none() {
                inner.offsets.push(index + 2);
            }
            if let Some(text) = attached.or_else(next) {
                // `--checkpoint-action=exec=rm`
                inner.texts.extend([Some(text), value_of(text)].into_iter().flatten().map(str::to_owned));
            }
        } else if let Some(text) = flags.iter().find_map(|flag| short(flag, arg)) {
            inner.wraps = true;
            inner.texts.push(text.to_owned());
        }
    }
    inner.opaque = inner.wraps;
    inner
}

/// Returns the text attached to a short option.
fn short<'a>(flag: &str, arg: &'a str) -> Option<&'a str> {
    (flag.len() == 2).then(|| arg.strip_prefix(flag)).flatten().filter(|text| !text.is_empty())
}

/// Reads a command that may be any of the arguments, inside one, or attached to an option.
fn anywhere(args: &[String], reads: bool) -> Inner {
    // Characters that make an argument more than a plain word: `flock lock -c "'rm'"`.
    const SYNTAX: [char; 11] = ['|', ';', '&', '`', '$', '(', '<', '\'', '"', '\\', '{'];
    let mut texts = Vec::new();
    for arg in args {
        if arg.contains(|c: char| c.is_whitespace() || SYNTAX.contains(&c)) {
            texts.push(arg.clone());
        }
        match arg.strip_prefix("--") {
            Some(_) => texts.extend(value_of(arg).map(str::to_owned)),
            // Options that take a command are usually called `-c` or `-e`.
            None if arg.starts_with('-') => {
                let attached = arg.char_indices().take(8).filter(|(_, c)| matches!(c, 'c' | 'e'));
                texts.extend(attached.map(|(at, _)| arg[at + 1..].to_owned()));
            }
            None => {}
        }
    }
    let offsets = (1..=args.len()).collect();
    Inner { wraps: true, offsets, texts, reads, opaque: true, ..Inner::default() }
}
