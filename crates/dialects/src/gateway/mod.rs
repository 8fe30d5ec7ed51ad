//! `gateway`: tools of a tool gateway, whose results are `{requestId,status,data,error,metadata,executedAt}`.

mod render;

use ops::{Malformed, Operation, Outcome};
use serde_json::Value;
use wire::v1;

use crate::arguments::Arguments;
use crate::dialect::Dialect;
use crate::failure::ParseFailure;
use crate::limits::Limits;
use crate::made::Made;
use crate::tool::{Effect, Kind, Parameter, Tool};

/// The dialect.
pub(crate) struct Gateway;

impl Dialect for Gateway {
    fn name(&self) -> &'static str {
        "gateway"
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

    fn output_schema(&self, _tool: &Tool) -> Option<Value> {
        Some(render::schema())
    }
}

static TOOLS: [Tool; 6] = [
    Tool {
        name: "read_file",
        description: "Read a text file, whole or a range of lines. Over {max_read_bytes} bytes only the beginning comes \
                      back, with `truncated` and a `hint`. Example: {\"path\": \"config.json\"}",
        parameters: &[
            Parameter::required("path", Kind::Text, "File, such as src/main.rs."),
            Parameter::optional(
                "start_line",
                Kind::Integer { least: 1 },
                "First line, counted from 1. Default: the first.",
            ),
            Parameter::optional(
                "end_line",
                Kind::Integer { least: 1 },
                "Last line, inclusive. Default: the last.",
            ),
        ],
        operations: &["read"],
        effect: Effect::Reads,
        repeatable: true,
        operation: read_file,
    },
    Tool {
        name: "list_directory",
        description: "List the direct children of a directory: name, type, size and time. Hidden entries and symbolic \
                      links are left out. At most 200 entries. Example: {\"path\": \"src\"}",
        parameters: &[Parameter::optional("path", Kind::Text, "Directory. Default: the workspace.")],
        operations: &["list"],
        effect: Effect::Reads,
        repeatable: true,
        operation: list_directory,
    },
    Tool {
        name: "search_code",
        description: "Find text in the files below a directory. The pattern is literal text; written /like this/ or \
                      /like this/i it is a regular expression. Skips .git, node_modules, hidden directories and \
                      binary files. At most 50 matches. Example: {\"pattern\": \"fn main\", \"path\": \"src\"}",
        parameters: &[
            Parameter::required(
                "pattern",
                Kind::Text,
                "Literal text, or a regular expression as /…/ or /…/i.",
            ),
            Parameter::optional("path", Kind::Text, "Directory or file. Default: the workspace."),
            Parameter::optional("glob", Kind::Text, "Only files like this, such as *.rs. Default: all."),
            Parameter::optional("case_insensitive", Kind::Flag, "Ignore case. Default false."),
            Parameter::optional(
                "context_lines",
                Kind::Integer { least: 0 },
                "Lines shown around each match, at most 20. Default 1.",
            ),
        ],
        operations: &["grep"],
        effect: Effect::Reads,
        repeatable: true,
        operation: search_code,
    },
    Tool {
        name: "write_file",
        description: "Create a file or replace its whole content, atomically; missing directories are made. At most \
                      {max_write_bytes} bytes. A person may have to approve it first. \
                      Example: {\"path\": \"notes.md\", \"content\": \"# Notes\\n\"}",
        parameters: &[
            Parameter::required("path", Kind::Text, "File, such as notes.md."),
            Parameter::required("content", Kind::Text, "The whole new content."),
        ],
        operations: &["write"],
        effect: Effect::Changes,
        repeatable: true,
        operation: write_file,
    },
    Tool {
        name: "delete_file",
        description: "Delete one file, or an empty directory. A person has to approve it first. \
                      Example: {\"path\": \"old.txt\"}",
        parameters: &[Parameter::required("path", Kind::Text, "File or empty directory.")],
        operations: &["delete"],
        effect: Effect::Changes,
        repeatable: true,
        operation: delete_file,
    },
    Tool {
        name: "run_command",
        description: "Run one command in the workspace, its arguments as a list: there is no shell. rm, sudo, dd and \
                      the like are refused where they are named. A person may have to approve it first. Ended after {default_timeout_s} seconds, or after timeout_ms. At most \
                      {max_output_bytes} bytes of each stream are shown. \
                      Example: {\"command\": \"cargo\", \"args\": [\"test\"]}",
        parameters: &[
            Parameter::required("command", Kind::Text, "The program, such as cargo."),
            Parameter::optional("args", Kind::TextList, "Its arguments, one string each. Default: none."),
            Parameter::optional("cwd", Kind::Text, "Working directory. Default: the workspace."),
            Parameter::optional(
                "timeout_ms",
                Kind::Integer { least: 1 },
                "Milliseconds until it is ended, at most {max_timeout_s} seconds.",
            ),
        ],
        operations: &["exec", "exec.read_only"],
        effect: Effect::Changes,
        repeatable: false,
        operation: run_command,
    },
];

fn read_file(arguments: &mut Arguments) -> Result<Operation, ParseFailure> {
    let request = v1::ReadRequest {
        path: arguments.text("path"),
        start_line: arguments.integer("start_line"),
        end_line: arguments.integer("end_line"),
        ..Default::default()
    };
    Operation::try_from(request).map_err(|malformed| named(&malformed))
}

fn list_directory(arguments: &mut Arguments) -> Result<Operation, ParseFailure> {
    let request = v1::ListRequest { path: arguments.text("path"), ..Default::default() };
    Operation::try_from(request).map_err(|malformed| named(&malformed))
}

fn search_code(arguments: &mut Arguments) -> Result<Operation, ParseFailure> {
    let context = arguments.small_integer("context_lines");
    let request = v1::GrepRequest {
        path: arguments.text("path"),
        pattern: arguments.text("pattern"),
        glob: arguments.text("glob"),
        case_insensitive: arguments.flag("case_insensitive"),
        before: context,
        after: context,
        ..Default::default()
    };
    Operation::try_from(request).map_err(|malformed| named(&malformed))
}

fn write_file(arguments: &mut Arguments) -> Result<Operation, ParseFailure> {
    let request = v1::WriteRequest {
        path: arguments.text("path"),
        content: arguments.text("content"),
        ..Default::default()
    };
    Operation::try_from(request).map_err(|malformed| named(&malformed))
}

fn delete_file(arguments: &mut Arguments) -> Result<Operation, ParseFailure> {
    let request = v1::DeleteRequest { path: arguments.text("path"), ..Default::default() };
    Operation::try_from(request).map_err(|malformed| named(&malformed))
}

fn run_command(arguments: &mut Arguments) -> Result<Operation, ParseFailure> {
    let request = v1::ExecRequest {
        command: arguments.text("command"),
        args: arguments.list("args"),
        cwd: arguments.text("cwd"),
        timeout_ms: Some(arguments.timeout_ms("timeout_ms")),
        ..Default::default()
    };
    Operation::try_from(request).map_err(|malformed| named(&malformed))
}

/// The arguments have the names of the canonical fields, but for one.
fn named(malformed: &Malformed) -> ParseFailure {
    let field = match malformed.field.as_str() {
        "grep.before" | "grep.after" => "context_lines",
        field => field.rsplit('.').next().unwrap_or_default(),
    };
    ParseFailure::malformed(field, malformed)
}

#[cfg(test)]
mod tests;
