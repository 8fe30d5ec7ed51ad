//! `git_operation`: a git command line, of which only a known subset is accepted.

use operations::Operation;
use schemars::JsonSchema;
use serde::Deserialize;
use wire::v1::{self, git_request::Command};

use super::exchange::{fetch, pull, push};
use crate::failure::ParseFailure;
use crate::limits::Limits;
use crate::tool::{NoOperation, ToolArguments};

/// Flags of `git status` that request the format that is used anyway.
const STATUS_FLAGS: [&str; 5] = ["-s", "--short", "--porcelain", "-b", "--branch"];

/// Git in the workspace: status, diff, log, show, add, commit, fetch, pull, push. diff takes paths and the flags
/// --cached --staged --stat --name-only --name-status --shortstat --numstat --no-color. log takes -n and a number
/// (default 100), --oneline, --no-patch, the forms of diff, a revision or A..B, and paths after "--". show takes a
/// revision or REVISION:PATH, with the flags of log. add takes paths, or -A for everything. commit takes -m and a
/// message. fetch takes a remote (default origin, or an https URL), branches, --tags and --depth N. pull takes a
/// remote, a branch and --ff-only (default) or --no-rebase for a merge. push takes a remote and LOCAL:REMOTE (default:
/// the current branch), --delete, and --force-with-lease=BRANCH:ID. No hooks run. Example: {"operation": "commit",
/// "args": ["-m", "Fix the parser"]}
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GitOperation {
    /// The git command.
    operation: GitCommand,
    /// Its arguments, one string each. Default: none.
    args: Option<Vec<String>>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum GitCommand {
    Status,
    Diff,
    Log,
    Show,
    Add,
    Commit,
    Fetch,
    Pull,
    Push,
}

impl GitOperation {
    /// Names in policy and record of what the tool does.
    pub(crate) const OPERATIONS: &[&str] = &[
        "git.status",
        "git.diff",
        "git.log",
        "git.show",
        "git.add",
        "git.commit",
        "git.fetch",
        "git.pull",
        "git.push",
    ];
}

impl ToolArguments for GitOperation {
    fn operation(self, _limits: &Limits) -> Result<Operation, NoOperation> {
        let args = self.args.unwrap_or_default();
        let command = match self.operation {
            GitCommand::Status => status(&args)?,
            GitCommand::Diff => diff(args),
            GitCommand::Log => log(args)?,
            GitCommand::Show => show(args)?,
            GitCommand::Add => add(args)?,
            GitCommand::Commit => commit(args)?,
            GitCommand::Fetch => fetch(args)?,
            GitCommand::Pull => pull(args)?,
            GitCommand::Push => push(args)?,
        };
        Ok(Operation::try_from(v1::GitRequest { command: Some(command) })?)
    }
}

fn status(args: &[String]) -> Result<Command, ParseFailure> {
    if args.iter().all(|arg| STATUS_FLAGS.contains(&arg.as_str())) {
        Ok(Command::Status(v1::GitStatus {}))
    } else {
        Err(ParseFailure::argument("args", "status takes no arguments"))
    }
}

/// Parses `diff`. Validation decides which flags are allowed.
fn diff(args: Vec<String>) -> Command {
    let (options, paths) = split(args);
    Command::Diff(v1::GitDiff { flags: options, paths })
}

/// Parses `log`. Paths come after `--`, where they cannot be mistaken for a revision.
fn log(args: Vec<String>) -> Result<Command, ParseFailure> {
    let (mut flags, mut max_count, mut revision, mut paths) = (Vec::new(), None, None, Vec::new());
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let number = match arg.as_str() {
            "--" => {
                paths = args.collect();
                break;
            }
            "-n" | "--max-count" => args.next(),
            _ => count(&arg).map(str::to_owned),
        };
        if let Some(number) = number {
            let wrong =
                || ParseFailure::argument("args", "-n needs a number of commits, as in [\"-n\", \"5\"]");
            max_count = Some(number.parse().map_err(|_| wrong())?);
        } else if arg.starts_with('-') {
            flags.push(arg);
        } else {
            once(&mut revision, arg)?;
        }
    }
    Ok(Command::Log(v1::GitLog { flags, max_count, revision: revision.unwrap_or_default(), paths }))
}

/// Parses `-5`, `-n5` and `--max-count=5`.
fn count(arg: &str) -> Option<&str> {
    let plain = || arg.strip_prefix('-').filter(|digits| digits.starts_with(|c: char| c.is_ascii_digit()));
    arg.strip_prefix("--max-count=")
        .or_else(|| arg.strip_prefix("-n").filter(|n| !n.is_empty()))
        .or_else(plain)
}

fn show(args: Vec<String>) -> Result<Command, ParseFailure> {
    let mut revision = None;
    let mut args = args.into_iter();
    let mut flags = Vec::new();
    for arg in args.by_ref().take_while(|arg| arg != "--") {
        if arg.starts_with('-') {
            flags.push(arg);
        } else {
            once(&mut revision, arg)?;
        }
    }
    Ok(Command::Show(v1::GitShow { flags, revision: revision.unwrap_or_default(), paths: args.collect() }))
}

fn once(revision: &mut Option<String>, arg: String) -> Result<(), ParseFailure> {
    match revision.replace(arg) {
        None => Ok(()),
        Some(_) => {
            Err(ParseFailure::argument("args", "there is one revision at most; paths come after \"--\""))
        }
    }
}

/// Parses `add`. `-A` alone means everything, and with paths it changes nothing.
fn add(args: Vec<String>) -> Result<Command, ParseFailure> {
    let (options, mut paths) = split(args);
    if options.iter().any(|option| option != "-A" && option != "--all") {
        let message = "add takes paths and no flags but -A; `.` stands for everything as well";
        return Err(ParseFailure::argument("args", message));
    }
    if !options.is_empty() && paths.is_empty() {
        paths.push(".".to_owned());
    }
    Ok(Command::Add(v1::GitAdd { paths }))
}

/// Parses `commit`. As in git, several messages are paragraphs.
fn commit(args: Vec<String>) -> Result<Command, ParseFailure> {
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
    Ok(Command::Commit(v1::GitCommit { message: paragraphs.join("\n\n") }))
}

fn short_message(arg: &str) -> Option<&str> {
    arg.strip_prefix("-m").filter(|message| !message.is_empty())
}

/// Splits options and paths; after `--` everything is a path.
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
