//! `native`: six tools with plain text results, for models that work best with text.
//!
//! Errors begin with `Error: `. The text of files and commands is passed on unchanged. Lines that the dialect adds are in square or round
//! brackets.

mod exchange;
mod git;
mod matches;
mod render;

use std::num::NonZeroU64;
use std::sync::LazyLock;

use jail::SandboxPath;
use operations::{Grep, Operation, Outcome, Reason};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use text::excerpt;
use wire::v1::{self, edit_request::Change};

use crate::dialect::Dialect;
use crate::failure::ParseFailure;
use crate::limits::{Limits, saturated};
use crate::made::Made;
use crate::tool::{Effect, NoOperation, Tool, ToolArguments};

pub(crate) use git::GitOperation;
pub(crate) use matches::render as render_matches;
pub(crate) use render::render as render_outcome;

pub(crate) struct Native;

impl Dialect for Native {
    fn name(&self) -> &'static str {
        "native"
    }

    fn tools(&self) -> &'static [Tool] {
        &*TOOLS
    }

    fn framed(&self, made: &Made<'_>, outcome: &Outcome) -> String {
        render::render(made.operation, outcome)
    }

    fn limits(&self, of_run: &Limits) -> Limits {
        of_run.in_thirty_seconds()
    }
}

/// Programs of `bash_command`. The gateway refuses arguments with which a program does more than read.
const PROGRAMS: [&str; 5] = ["cat", "head", "tail", "find", "wc"];

static TOOLS: LazyLock<[Tool; 6]> = LazyLock::new(|| {
    [
        Tool::of::<ReadLines>("read_file", &["read"], Effect::Reads),
        Tool::of::<EditFile>("edit_file", &["edit"], Effect::Changes),
        Tool::of::<GitOperation>("git_operation", GitOperation::OPERATIONS, Effect::Changes),
        Tool::of::<GrepFiles>("grep", &["grep"], Effect::Reads),
        Tool::of::<BashCommand>("bash_command", &["exec", "exec.read_only"], Effect::Reads),
        Tool::of::<ListFiles>("list_files", &["list"], Effect::Reads),
    ]
});

/// Read a text file. Paths are relative to the workspace. Over {max_read_bytes} bytes only the beginning comes back, and
/// a last line in brackets says how to go on. Example: {"path": "src/main.rs"}
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadLines {
    /// File, such as src/main.rs.
    path: String,
    /// First line, counted from 1. Default: the first.
    start_line: Option<NonZeroU64>,
    /// Last line, inclusive. Default: the last.
    end_line: Option<NonZeroU64>,
}

impl ToolArguments for ReadLines {
    fn operation(self, _limits: &Limits) -> Result<Operation, NoOperation> {
        Ok(Operation::try_from(v1::ReadRequest {
            path: self.path,
            start_line: self.start_line.map(NonZeroU64::get),
            end_line: self.end_line.map(NonZeroU64::get),
            ..Default::default()
        })?)
    }
}

/// Change or create one file. With command str_replace, old_str must occur exactly once in the file, white space
/// included; it is replaced by new_str. With command create, the file must not exist yet; content is its text, of at
/// most {max_write_bytes} bytes. A file that is changed may have at most {max_edit_bytes} bytes.
/// Example: {"command": "str_replace", "path": "src/main.rs", "old_str": "let x = 1;", "new_str": "let x = 2;"}
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EditFile {
    /// What to do.
    command: EditCommand,
    /// File, such as src/main.rs.
    path: String,
    /// With str_replace: the text to replace, exactly as in the file.
    old_str: Option<String>,
    /// With str_replace: the new text. Empty to remove old_str.
    new_str: Option<String>,
    /// With create: the whole content of the file.
    content: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum EditCommand {
    StrReplace,
    Create,
}

impl ToolArguments for EditFile {
    fn operation(self, _limits: &Limits) -> Result<Operation, NoOperation> {
        let Self { command, path, old_str, new_str, content } = self;
        let command_name = match command {
            EditCommand::StrReplace => "str_replace",
            EditCommand::Create => "create",
        };
        let foreign =
            |name| ParseFailure::argument(name, format!("does not go with the command {command_name}"));
        let missing =
            |name| ParseFailure::argument(name, format!("is missing: the command {command_name} needs it"));
        let change = match (command, old_str, new_str, content) {
            (EditCommand::StrReplace, _, _, Some(_)) => return Err(foreign("content").into()),
            (EditCommand::Create, Some(_), _, _) => return Err(foreign("old_str").into()),
            (EditCommand::Create, _, Some(_), _) => return Err(foreign("new_str").into()),
            (EditCommand::StrReplace, None, _, _) => return Err(missing("old_str").into()),
            (EditCommand::StrReplace, _, None, _) => return Err(missing("new_str").into()),
            (EditCommand::Create, _, _, None) => return Err(missing("content").into()),
            (EditCommand::StrReplace, Some(old_str), Some(new_str), None) => {
                Change::StrReplace(v1::StrReplace { old_str, new_str, replace_all: false })
            }
            (EditCommand::Create, None, None, Some(content)) => Change::Create(v1::CreateFile { content }),
        };
        let request = v1::EditRequest { path, change: Some(change), ..Default::default() };
        Ok(Operation::try_from(request)?)
    }
}

/// Search the files below a directory for a regular expression (Rust syntax: no look-around). Results are lines of the
/// form path:line:text. Skips .git, node_modules, hidden directories and binary files. At most 50 matches.
/// Example: {"pattern": "fn \\w+_test", "path": "src"}
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GrepFiles {
    /// Regular expression.
    pattern: String,
    /// Directory or file. Default: the whole workspace.
    path: Option<String>,
    /// Ignore case. Default false.
    case_insensitive: Option<bool>,
    /// Lines shown around each match, at most 20. Default 0.
    context_lines: Option<u64>,
}

impl ToolArguments for GrepFiles {
    fn operation(self, _limits: &Limits) -> Result<Operation, NoOperation> {
        let context = Some(self.context_lines.map_or(0, saturated));
        Ok(Operation::try_from(v1::GrepRequest {
            path: self.path.unwrap_or_default(),
            regex: !Grep::is_slashed(&self.pattern),
            pattern: self.pattern,
            case_insensitive: self.case_insensitive.unwrap_or_default(),
            before: context,
            after: context,
            ..Default::default()
        })?)
    }
}

/// Run one of cat, head, tail, find, wc in the workspace. No shell: no pipes, no quotes, no wildcards except those of
/// find. Paths stay in the workspace, and nothing may be written, run or deleted. Ended after {default_timeout_s}
/// seconds. Example: {"command": "find", "args": ["src", "-name", "*.rs"]}
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BashCommand {
    /// The program.
    #[schemars(extend("enum" = PROGRAMS))]
    command: String,
    /// Its arguments, one string each. Default: none.
    args: Option<Vec<String>>,
}

impl ToolArguments for BashCommand {
    fn operation(self, limits: &Limits) -> Result<Operation, NoOperation> {
        Ok(Operation::try_from(v1::ExecRequest {
            command: self.command,
            args: self.args.into_iter().flatten().map(in_container).collect::<Result<_, _>>()?,
            timeout_ms: Some(limits.timeout_ms(None)),
            only_reads: true,
            ..Default::default()
        })?)
    }

    fn refusal(failure: ParseFailure, given: &Map<String, Value>) -> ParseFailure {
        match (failure.field.as_deref(), given.get("command")) {
            (Some("command"), Some(Value::String(program))) => ParseFailure {
                reason: Reason::CommandNotAllowed,
                message: format!(
                    "Command not allowed: {}; use one of {}",
                    excerpt(program),
                    PROGRAMS.join(", ")
                ),
                ..failure
            },
            _ => failure,
        }
    }
}

/// Converts an alias in an argument to a path that programs know: `@pkg/a` becomes `/pkg/a`. Models see aliases in other tools' results.
fn in_container(arg: String) -> Result<String, ParseFailure> {
    let Some(path) = SandboxPath::from_alias(&arg) else { return Ok(arg) };
    match SandboxPath::parse(path) {
        Ok(path) => Ok(path.container_path()),
        Err(refusal) => Err(ParseFailure::path("args", &refusal)),
    }
}

/// List the direct children of a directory, one name a line; directories end in /. Hidden entries and symbolic links are
/// left out. At most 200 entries. Example: {"path": "src"}
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListFiles {
    /// Directory. Default: the workspace.
    path: Option<String>,
}

impl ToolArguments for ListFiles {
    fn operation(self, _limits: &Limits) -> Result<Operation, NoOperation> {
        let path = self.path.unwrap_or_default();
        Ok(Operation::try_from(v1::ListRequest { path, ..Default::default() })?)
    }
}

#[cfg(test)]
mod tests;
