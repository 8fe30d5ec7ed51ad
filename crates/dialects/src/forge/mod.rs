//! `forge`: tools that a model calls by a fenced block in its text, for models that know no other way.
//!
//! ````text
//! ```forge:bash
//! {"command": "ls -la"}
//! ```
//! ````
//!
//! [`transcript`] finds the first such block in a text, and [`frame`] writes the message that goes back to the model. The tools can also
//! be called as ordinary tool calls.

pub mod frame;
mod prompt;
mod render;
pub mod transcript;

use std::num::NonZeroU64;
use std::sync::LazyLock;

use operations::{Grep, Operation, Outcome};
use schemars::JsonSchema;
use serde::Deserialize;
use wire::v1::{self, edit_request::Change};

use crate::dialect::Dialect;
use crate::failure::ParseFailure;
use crate::limits::Limits;
use crate::made::Made;
use crate::policy::Policy;
use crate::tool::{Effect, NoOperation, Tool, ToolArguments};

pub(crate) struct Forge;

/// Prefix of a tool's name in the info string of a fence.
const PREFIX: &str = "forge:";
/// Lines that a read returns by default, and the most that it returns.
const LINES: u64 = 200;
const MOST_LINES: u64 = 2_000;
/// Most matches that a search returns.
const HITS: u32 = 200;

impl Dialect for Forge {
    fn name(&self) -> &'static str {
        "forge"
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

    fn prompt(&self, tools: &[&'static Tool], limits: &Limits, policy: &Policy<'_>) -> Option<String> {
        Some(prompt::of(tools, limits, policy))
    }

    fn plain_name<'n>(&self, name: &'n str) -> &'n str {
        name.strip_prefix(PREFIX).unwrap_or(name)
    }
}

static TOOLS: LazyLock<[Tool; 6]> = LazyLock::new(|| {
    [
        Tool::of::<BashArguments>("bash", &["shell"], Effect::Changes),
        Tool::of::<WriteArguments>("write", &["write"], Effect::Changes).repeatable(),
        Tool::of::<ReadArguments>("read", &["read"], Effect::Reads),
        Tool::of::<EditArguments>("edit", &["edit"], Effect::Changes),
        Tool::of::<GrepArguments>("grep", &["grep"], Effect::Reads),
        Tool::of::<GlobArguments>("glob", &["glob"], Effect::Reads),
    ]
});

/// Run a shell script (bash -lc) in the workspace. Pipes, && and $VAR work. rm, sudo, dd and the like are refused where
/// they are named. A person may have to approve the script first: always where commands ask and it is more than plain
/// words joined by && || ; | < >. Ended after {default_timeout_s} seconds, or after timeoutMs. At most
/// {max_output_bytes} bytes of each stream are shown. Example: {"command": "ls -la | head"}
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct BashArguments {
    /// The script.
    command: String,
    /// Milliseconds until it is ended, at most {max_timeout_s} seconds.
    timeout_ms: Option<NonZeroU64>,
}

impl ToolArguments for BashArguments {
    fn operation(self, limits: &Limits) -> Result<Operation, NoOperation> {
        let timeout_ms = Some(limits.timeout_ms(self.timeout_ms));
        let request = v1::ShellRequest { script: self.command, timeout_ms, ..Default::default() };
        Ok(Operation::try_from(request)?)
    }
}

/// Create a file or replace its whole content; missing directories are made. At most {max_write_bytes} bytes.
/// Example: {"path": "src/a.txt", "content": "one\ntwo\n"}
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WriteArguments {
    /// File in the workspace, such as src/a.txt.
    path: String,
    /// The whole new content.
    content: String,
}

impl ToolArguments for WriteArguments {
    fn operation(self, _limits: &Limits) -> Result<Operation, NoOperation> {
        let Self { path, content } = self;
        Ok(Operation::try_from(v1::WriteRequest { path, content, ..Default::default() })?)
    }
}

/// Read lines of a text file. At most 16,384 bytes come back; go on with a greater offset.
/// Example: {"path": "src/main.rs", "offset": 0, "limit": 100}
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadArguments {
    /// File in the workspace, such as src/main.rs.
    path: String,
    /// Lines to pass over first. Default 0.
    offset: Option<u64>,
    /// Most lines, at most 2,000. Default 200.
    limit: Option<NonZeroU64>,
}

impl ToolArguments for ReadArguments {
    fn operation(self, _limits: &Limits) -> Result<Operation, NoOperation> {
        let limit = self.limit.map_or(LINES, NonZeroU64::get);
        if limit > MOST_LINES {
            return Err(ParseFailure::argument("limit", format!("must be at most {MOST_LINES}")).into());
        }
        let first = self.offset.unwrap_or(0).saturating_add(1);
        Ok(Operation::try_from(v1::ReadRequest {
            path: self.path,
            start_line: Some(first),
            end_line: Some(first.saturating_add(limit - 1)),
            ..Default::default()
        })?)
    }
}

/// Replace text in a file. oldString must occur exactly once, white space included, unless replaceAll is true. The file
/// may have at most {max_edit_bytes} bytes. Example: {"path": "src/a.txt", "oldString": "one", "newString": "two"}
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct EditArguments {
    /// File in the workspace, such as src/a.txt.
    path: String,
    /// The text to replace, exactly as in the file.
    old_string: String,
    /// The new text; another one than oldString.
    new_string: String,
    /// Replace every occurrence. Default false.
    replace_all: Option<bool>,
}

impl ToolArguments for EditArguments {
    fn operation(self, _limits: &Limits) -> Result<Operation, NoOperation> {
        let change = Change::StrReplace(v1::StrReplace {
            old_str: self.old_string,
            new_str: self.new_string,
            replace_all: self.replace_all.unwrap_or_default(),
        });
        let request = v1::EditRequest { path: self.path, change: Some(change), ..Default::default() };
        Ok(Operation::try_from(request)?)
    }
}

/// Search the workspace for a regular expression. At most 200 lines come back, each cut at 400 characters; binary files
/// are passed over. Example: {"pattern": "TODO|FIXME", "glob": "src/**/*.rs"}
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct GrepArguments {
    /// Regular expression, without look-around.
    pattern: String,
    /// Only files like this, such as src/**/*.rs. Default: all.
    glob: Option<String>,
    /// Ignore case. Default false.
    ignore_case: Option<bool>,
}

impl ToolArguments for GrepArguments {
    fn operation(self, _limits: &Limits) -> Result<Operation, NoOperation> {
        Ok(Operation::try_from(v1::GrepRequest {
            regex: !Grep::is_slashed(&self.pattern),
            pattern: self.pattern,
            glob: self.glob.unwrap_or_default(),
            case_insensitive: self.ignore_case.unwrap_or_default(),
            before: Some(0),
            after: Some(0),
            max_matches: Some(HITS),
            ..Default::default()
        })?)
    }
}

/// Find files by name. *, ** and ? stand for what they do in a shell. At most 200 paths come back.
/// Example: {"pattern": "src/**/*.rs"}
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GlobArguments {
    /// Pattern, relative to the workspace.
    pattern: String,
}

impl ToolArguments for GlobArguments {
    fn operation(self, _limits: &Limits) -> Result<Operation, NoOperation> {
        Ok(Operation::try_from(v1::GlobRequest { pattern: self.pattern, ..Default::default() })?)
    }
}

#[cfg(test)]
mod property;
#[cfg(test)]
mod tests;
