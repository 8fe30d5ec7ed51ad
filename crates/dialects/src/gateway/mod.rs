//! `gateway`: tools of a tool gateway, whose results are `{requestId,status,data,error,metadata,executedAt}`.

mod render;

use std::num::NonZeroU64;
use std::sync::LazyLock;

use operations::{Operation, Outcome};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use wire::v1;

use crate::dialect::Dialect;
use crate::limits::{Limits, saturated};
use crate::made::Made;
use crate::tool::{Effect, NoOperation, Tool, ToolArguments, result_schema};

pub(crate) struct Gateway;

impl Dialect for Gateway {
    fn name(&self) -> &'static str {
        "gateway"
    }

    fn tools(&self) -> &'static [Tool] {
        &*TOOLS
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
        Some(result_schema::<render::Answer<'_>>())
    }
}

static TOOLS: LazyLock<[Tool; 6]> = LazyLock::new(|| {
    [
        Tool::of::<ReadFile>("read_file", &["read"], Effect::Reads),
        Tool::of::<ListDirectory>("list_directory", &["list"], Effect::Reads),
        Tool::of::<SearchCode>("search_code", &["grep"], Effect::Reads),
        Tool::of::<WriteFile>("write_file", &["write"], Effect::Changes).repeatable(),
        Tool::of::<DeleteFile>("delete_file", &["delete"], Effect::Changes).repeatable(),
        Tool::of::<RunCommand>("run_command", &["exec", "exec.read_only"], Effect::Changes),
    ]
});

/// Read a text file, whole or a range of lines. Over {max_read_bytes} bytes only the beginning comes back, with
/// `truncated` and a `hint`. Example: {"path": "config.json"}
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadFile {
    /// File, such as src/main.rs.
    path: String,
    /// First line, counted from 1. Default: the first.
    start_line: Option<NonZeroU64>,
    /// Last line, inclusive. Default: the last.
    end_line: Option<NonZeroU64>,
}

impl ToolArguments for ReadFile {
    fn operation(self, _limits: &Limits) -> Result<Operation, NoOperation> {
        Ok(Operation::try_from(v1::ReadRequest {
            path: self.path,
            start_line: self.start_line.map(NonZeroU64::get),
            end_line: self.end_line.map(NonZeroU64::get),
            ..Default::default()
        })?)
    }
}

/// List the direct children of a directory: name, type, size and time. Hidden entries and symbolic links are left out.
/// At most 200 entries. Example: {"path": "src"}
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListDirectory {
    /// Directory. Default: the workspace.
    path: Option<String>,
}

impl ToolArguments for ListDirectory {
    fn operation(self, _limits: &Limits) -> Result<Operation, NoOperation> {
        let path = self.path.unwrap_or_default();
        Ok(Operation::try_from(v1::ListRequest { path, ..Default::default() })?)
    }
}

/// Find text in the files below a directory. The pattern is literal text; written /like this/ or /like this/i it is a
/// regular expression. Skips .git, node_modules, hidden directories and binary files. At most 50 matches.
/// Example: {"pattern": "fn main", "path": "src"}
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SearchCode {
    /// Literal text, or a regular expression as /…/ or /…/i.
    pattern: String,
    /// Directory or file. Default: the workspace.
    path: Option<String>,
    /// Only files like this, such as *.rs. Default: all.
    glob: Option<String>,
    /// Ignore case. Default false.
    case_insensitive: Option<bool>,
    /// Lines shown around each match, at most 20. Default 1.
    context_lines: Option<u64>,
}

impl ToolArguments for SearchCode {
    fn operation(self, _limits: &Limits) -> Result<Operation, NoOperation> {
        let context = self.context_lines.map(saturated);
        Ok(Operation::try_from(v1::GrepRequest {
            path: self.path.unwrap_or_default(),
            pattern: self.pattern,
            glob: self.glob.unwrap_or_default(),
            case_insensitive: self.case_insensitive.unwrap_or_default(),
            before: context,
            after: context,
            ..Default::default()
        })?)
    }
}

/// Create a file or replace its whole content, atomically; missing directories are made. At most {max_write_bytes}
/// bytes. A person may have to approve it first. Example: {"path": "notes.md", "content": "# Notes\n"}
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WriteFile {
    /// File, such as notes.md.
    path: String,
    /// The whole new content.
    content: String,
}

impl ToolArguments for WriteFile {
    fn operation(self, _limits: &Limits) -> Result<Operation, NoOperation> {
        let Self { path, content } = self;
        Ok(Operation::try_from(v1::WriteRequest { path, content, ..Default::default() })?)
    }
}

/// Delete one file, or an empty directory. A person has to approve it first. Example: {"path": "old.txt"}
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DeleteFile {
    /// File or empty directory.
    path: String,
}

impl ToolArguments for DeleteFile {
    fn operation(self, _limits: &Limits) -> Result<Operation, NoOperation> {
        Ok(Operation::try_from(v1::DeleteRequest { path: self.path, ..Default::default() })?)
    }
}

/// Run one command in the workspace, its arguments as a list: there is no shell. rm, sudo, dd and the like are refused
/// where they are named. A person may have to approve it first. Ended after {default_timeout_s} seconds, or after
/// timeout_ms. At most {max_output_bytes} bytes of each stream are shown.
/// Example: {"command": "cargo", "args": ["test"]}
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RunCommand {
    /// The program, such as cargo.
    command: String,
    /// Its arguments, one string each. Default: none.
    args: Option<Vec<String>>,
    /// Working directory. Default: the workspace.
    cwd: Option<String>,
    /// Milliseconds until it is ended, at most {max_timeout_s} seconds.
    timeout_ms: Option<NonZeroU64>,
}

impl ToolArguments for RunCommand {
    fn operation(self, limits: &Limits) -> Result<Operation, NoOperation> {
        Ok(Operation::try_from(v1::ExecRequest {
            command: self.command,
            args: self.args.unwrap_or_default(),
            cwd: self.cwd.unwrap_or_default(),
            timeout_ms: Some(limits.timeout_ms(self.timeout_ms)),
            ..Default::default()
        })?)
    }
}

#[cfg(test)]
mod tests;
