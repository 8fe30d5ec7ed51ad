//! `forge`: tools that a model calls by a fenced block in its text, for models that know no other way.
//!
//! ````text
//! ```forge:bash
//! {"command": "ls -la"}
//! ```
//! ````
//!
//! [`transcript`] finds the first such block in a text, [`frame`] writes the message that goes back to the model. As
//! ordinary tool calls they work, too.

pub mod frame;
mod prompt;
mod render;
pub mod transcript;

use ops::{Grep, Malformed, Operation, Outcome};
use wire::v1::{self, edit_request::Change};

use crate::arguments::Arguments;
use crate::dialect::Dialect;
use crate::failure::ParseFailure;
use crate::limits::Limits;
use crate::made::Made;
use crate::tool::{Effect, Kind, Parameter, Tool};

/// The dialect.
pub(crate) struct Forge;

/// What stands before a tool's name in the info string of a fence.
const PREFIX: &str = "forge:";
/// Lines that a reading gives unless it says how many, and at most.
const LINES: u64 = 200;
const MOST_LINES: u64 = 2_000;
/// Matches that a search gives.
const HITS: u32 = 200;

impl Dialect for Forge {
    fn name(&self) -> &'static str {
        "forge"
    }

    fn tools(&self) -> &'static [Tool] {
        &TOOLS
    }

    fn framed(&self, made: &Made<'_>, outcome: &Outcome) -> String {
        render::render(made, outcome)
    }

    fn limits(&self, of_run: &Limits) -> Limits {
        of_run.in_thirty_seconds()
    }

    fn render_pending(&self, made: &Made<'_>, approval_id: &str) -> String {
        render::render_pending(made, approval_id)
    }

    fn prompt(&self, tools: &[&'static Tool], limits: &Limits) -> Option<String> {
        Some(prompt::of(tools, limits))
    }

    fn plain_name<'n>(&self, name: &'n str) -> &'n str {
        name.strip_prefix(PREFIX).unwrap_or(name)
    }
}

static TOOLS: [Tool; 6] = [
    Tool {
        name: "bash",
        description: "Run a shell script (bash -lc) in the workspace. Pipes, && and $VAR work. rm, sudo, dd and the \
                      like are refused where they are named. A person may have to approve the script first: always \
                      where commands ask and it is more than plain words joined by && || ; | < >. Ended after \
                      {default_timeout_s} seconds, or after timeoutMs. At most {max_output_bytes} bytes of each stream \
                      are shown. Example: {\"command\": \"ls -la | head\"}",
        parameters: &[
            Parameter::required("command", Kind::Text, "The script."),
            Parameter::optional(
                "timeoutMs",
                Kind::Integer { least: 1 },
                "Milliseconds until it is ended, at most {max_timeout_s} seconds.",
            ),
        ],
        operations: &["shell"],
        effect: Effect::Changes,
        repeatable: false,
        operation: bash,
    },
    Tool {
        name: "write",
        description: "Create a file or replace its whole content; missing directories are made. At most \
                      {max_write_bytes} bytes. Example: {\"path\": \"src/a.txt\", \"content\": \"one\\ntwo\\n\"}",
        parameters: &[
            Parameter::required("path", Kind::Text, "File in the workspace, such as src/a.txt."),
            Parameter::required("content", Kind::Text, "The whole new content."),
        ],
        operations: &["write"],
        effect: Effect::Changes,
        repeatable: true,
        operation: write,
    },
    Tool {
        name: "read",
        description: "Read lines of a text file. At most 16,384 bytes come back; go on with a greater offset. \
                      Example: {\"path\": \"src/main.rs\", \"offset\": 0, \"limit\": 100}",
        parameters: &[
            Parameter::required("path", Kind::Text, "File in the workspace, such as src/main.rs."),
            Parameter::optional("offset", Kind::Integer { least: 0 }, "Lines to pass over first. Default 0."),
            Parameter::optional(
                "limit",
                Kind::Integer { least: 1 },
                "Most lines, at most 2,000. Default 200.",
            ),
        ],
        operations: &["read"],
        effect: Effect::Reads,
        repeatable: true,
        operation: read,
    },
    Tool {
        name: "edit",
        description: "Replace text in a file. oldString must occur exactly once, white space included, unless \
                      replaceAll is true. The file may have at most {max_write_bytes} bytes. \
                      Example: {\"path\": \"src/a.txt\", \"oldString\": \"one\", \"newString\": \"two\"}",
        parameters: &[
            Parameter::required("path", Kind::Text, "File in the workspace, such as src/a.txt."),
            Parameter::required("oldString", Kind::Text, "The text to replace, exactly as in the file."),
            Parameter::required("newString", Kind::Text, "The new text; another one than oldString."),
            Parameter::optional("replaceAll", Kind::Flag, "Replace every occurrence. Default false."),
        ],
        operations: &["edit"],
        effect: Effect::Changes,
        repeatable: false,
        operation: edit,
    },
    Tool {
        name: "grep",
        description: "Search the workspace for a regular expression. At most 200 lines come back, each cut at 400 \
                      characters; binary files are passed over. \
                      Example: {\"pattern\": \"TODO|FIXME\", \"glob\": \"src/**/*.rs\"}",
        parameters: &[
            Parameter::required("pattern", Kind::Text, "Regular expression, without look-around."),
            Parameter::optional(
                "glob",
                Kind::Text,
                "Only files like this, such as src/**/*.rs. Default: all.",
            ),
            Parameter::optional("ignoreCase", Kind::Flag, "Ignore case. Default false."),
        ],
        operations: &["grep"],
        effect: Effect::Reads,
        repeatable: true,
        operation: grep,
    },
    Tool {
        name: "glob",
        description: "Find files by name. *, ** and ? stand for what they do in a shell. At most 200 paths come back. \
                      Example: {\"pattern\": \"src/**/*.rs\"}",
        parameters: &[Parameter::required("pattern", Kind::Text, "Pattern, relative to the workspace.")],
        operations: &["glob"],
        effect: Effect::Reads,
        repeatable: true,
        operation: glob,
    },
];

fn bash(arguments: &mut Arguments) -> Result<Operation, ParseFailure> {
    let request = v1::ShellRequest {
        script: arguments.text("command"),
        timeout_ms: Some(arguments.timeout_ms("timeoutMs")),
        ..Default::default()
    };
    Operation::try_from(request).map_err(|malformed| named(&malformed))
}

fn write(arguments: &mut Arguments) -> Result<Operation, ParseFailure> {
    let request = v1::WriteRequest {
        path: arguments.text("path"),
        content: arguments.text("content"),
        ..Default::default()
    };
    Operation::try_from(request).map_err(|malformed| named(&malformed))
}

fn read(arguments: &mut Arguments) -> Result<Operation, ParseFailure> {
    let limit = arguments.integer("limit").unwrap_or(LINES);
    if limit > MOST_LINES {
        return Err(ParseFailure::argument("limit", format!("must be at most {MOST_LINES}")));
    }
    let first = arguments.integer("offset").unwrap_or(0).saturating_add(1);
    let request = v1::ReadRequest {
        path: arguments.text("path"),
        start_line: Some(first),
        end_line: Some(first.saturating_add(limit - 1)),
        ..Default::default()
    };
    Operation::try_from(request).map_err(|malformed| named(&malformed))
}

fn edit(arguments: &mut Arguments) -> Result<Operation, ParseFailure> {
    let change = Change::StrReplace(v1::StrReplace {
        old_str: arguments.text("oldString"),
        new_str: arguments.text("newString"),
        replace_all: arguments.flag("replaceAll"),
    });
    let request =
        v1::EditRequest { path: arguments.text("path"), change: Some(change), ..Default::default() };
    Operation::try_from(request).map_err(|malformed| named(&malformed))
}

fn grep(arguments: &mut Arguments) -> Result<Operation, ParseFailure> {
    let pattern = arguments.text("pattern");
    let request = v1::GrepRequest {
        regex: !Grep::is_slashed(&pattern),
        pattern,
        glob: arguments.text("glob"),
        case_insensitive: arguments.flag("ignoreCase"),
        before: Some(0),
        after: Some(0),
        max_matches: Some(HITS),
        ..Default::default()
    };
    Operation::try_from(request).map_err(|malformed| named(&malformed))
}

fn glob(arguments: &mut Arguments) -> Result<Operation, ParseFailure> {
    let request = v1::GlobRequest { pattern: arguments.text("pattern"), ..Default::default() };
    Operation::try_from(request).map_err(|malformed| named(&malformed))
}

fn named(malformed: &Malformed) -> ParseFailure {
    let field = match malformed.field.as_str() {
        "shell.script" => "command",
        "shell.timeout_ms" => "timeoutMs",
        "edit.str_replace.old_str" => "oldString",
        "edit.str_replace" | "edit.str_replace.new_str" => "newString",
        "read.end_line" => "limit",
        field => field.rsplit('.').next().unwrap_or_default(),
    };
    ParseFailure::malformed(field, malformed)
}

#[cfg(test)]
mod property;
#[cfg(test)]
mod tests;
