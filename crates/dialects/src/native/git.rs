//! `git_operation`: a git command line, of which only what is known is understood.

use ops::{Operation, raw};

use super::named;
use crate::arguments::Arguments;
use crate::failure::ParseFailure;

/// Flags of `git status` that ask for the form that is given anyway.
const STATUS_FLAGS: [&str; 5] = ["-s", "--short", "--porcelain", "-b", "--branch"];

pub(super) fn operation(arguments: &mut Arguments) -> Result<Operation, ParseFailure> {
    let args = arguments.list("args");
    let request = match arguments.text("operation").as_str() {
        "diff" => diff(args),
        "add" => add(args)?,
        "commit" => commit(args)?,
        _ => status(&args)?,
    };
    request.into_operation().map_err(|malformed| named(&malformed))
}

fn status(args: &[String]) -> Result<raw::Git, ParseFailure> {
    if args.iter().all(|arg| STATUS_FLAGS.contains(&arg.as_str())) {
        Ok(raw::Git::Status)
    } else {
        Err(ParseFailure::argument("args", "status takes no arguments"))
    }
}

/// Which flags there may be is for validation to say.
fn diff(args: Vec<String>) -> raw::Git {
    let (options, paths) = split(args);
    raw::Git::Diff { flags: options, paths }
}

fn add(args: Vec<String>) -> Result<raw::Git, ParseFailure> {
    let (options, paths) = split(args);
    if options.is_empty() {
        Ok(raw::Git::Add { paths })
    } else {
        Err(ParseFailure::argument("args", "add takes paths and no flags; `.` stands for everything"))
    }
}

/// As git does: several messages are paragraphs.
fn commit(args: Vec<String>) -> Result<raw::Git, ParseFailure> {
    let mut paragraphs = Vec::new();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let message = match arg.as_str() {
            "-m" | "--message" => args.next(),
            _ => arg.strip_prefix("--message=").or_else(|| short_message(&arg)).map(str::to_owned),
        };
        paragraphs.push(message.ok_or_else(|| {
            ParseFailure::argument("args", "commit takes -m (or --message) and a message, and nothing else")
        })?);
    }
    if paragraphs.is_empty() {
        return Err(ParseFailure::argument("args", "commit needs a message: [\"-m\", \"what and why\"]"));
    }
    Ok(raw::Git::Commit { message: paragraphs.join("\n\n") })
}

/// `-mmessage`
fn short_message(arg: &str) -> Option<&str> {
    arg.strip_prefix("-m").filter(|message| !message.is_empty())
}

/// Options and paths; after `--` everything is a path.
fn split(args: Vec<String>) -> (Vec<String>, Vec<String>) {
    let (mut options, mut paths) = (Vec::new(), Vec::new());
    let mut only_paths = false;
    for arg in args {
        if only_paths || !arg.starts_with('-') {
            paths.push(arg);
        } else if arg == "--" {
            only_paths = true;
        } else {
            options.push(arg);
        }
    }
    (options, paths)
}
