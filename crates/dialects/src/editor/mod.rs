//! `editor`: the commands of the text editor that Claude is trained on, as four tools with plain text results.
//!
//! It also accepts calls of the vendor's single tool, which has the command among its arguments.

mod render;

use std::sync::LazyLock;

use operations::{Hint, Operation, Outcome, Reason};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use wire::v1::{self, edit_request::Change};

use crate::arguments::object_of;
use crate::dialect::Dialect;
use crate::failure::ParseFailure;
use crate::limits::Limits;
use crate::made::Made;
use crate::tool::{Effect, NoOperation, Tool, ToolArguments};

pub(crate) struct Editor;

/// Names of the vendor's single tool, new and old.
const WHOLE: [&str; 2] = ["str_replace_based_edit_tool", "str_replace_editor"];

impl Dialect for Editor {
    fn name(&self) -> &'static str {
        "editor"
    }

    fn tools(&self) -> &'static [Tool] {
        &*TOOLS
    }

    fn framed(&self, made: &Made<'_>, outcome: &Outcome) -> String {
        render::render(made.operation, outcome)
    }

    /// `view` itself lists directories.
    fn hint(&self, _tool: &str, hint: Hint) -> Option<String> {
        let slash = "to list a directory put a slash at the end of its path";
        (hint == Hint::List).then(|| slash.to_owned())
    }

    fn parse(
        &self,
        tool_name: &str,
        arguments_json: &str,
        limits: &Limits,
    ) -> Result<Operation, ParseFailure> {
        if !WHOLE.contains(&tool_name) {
            return self.tool(tool_name)?.parse(object_of(arguments_json)?, limits);
        }
        let mut values = object_of(arguments_json)?;
        match values.remove("command") {
            Some(Value::String(command)) => {
                let tool = self.tool(&command).map_err(|failure| ParseFailure {
                    reason: Reason::InvalidArgument,
                    field: Some("command".to_owned()),
                    ..failure
                })?;
                tool.parse(values, limits)
            }
            Some(_) => Err(ParseFailure::argument("command", "must be a string")),
            None => Err(ParseFailure::argument("command", "is missing")),
        }
    }
}

static TOOLS: LazyLock<[Tool; 4]> = LazyLock::new(|| {
    [
        Tool::of::<View>("view", &["read", "list"], Effect::Reads),
        Tool::of::<Create>("create", &["edit"], Effect::Adds),
        Tool::of::<StrReplace>("str_replace", &["edit"], Effect::Changes),
        Tool::of::<Insert>("insert", &["edit"], Effect::Changes),
    ]
});

/// Show a text file with numbered lines, or the direct children of a directory. Over {max_read_bytes} bytes only the
/// beginning of a file comes back, and a last line in brackets says how to go on.
/// Example: {"path": "src/main.rs", "view_range": [1, 40]}
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct View {
    /// File or directory, such as src/main.rs.
    path: String,
    /// First and last line, counted from 1; -1 as last is the end. Files only. Default: all.
    view_range: Option<[i64; 2]>,
}

impl ToolArguments for View {
    /// Lists a path that has the form of a directory, and reads any other. The outcome of a read tells a directory from a file.
    fn operation(self, _limits: &Limits) -> Result<Operation, NoOperation> {
        let Self { path, view_range } = self;
        let range = view_range.map(lines).transpose()?;
        // Only the form of the path can show that it is a directory.
        if range.is_none()
            && (path.ends_with('/') || matches!(path.as_str(), "." | "@project" | "@pkg" | "@state"))
        {
            return Ok(Operation::try_from(v1::ListRequest { path, ..Default::default() })?);
        }
        Ok(Operation::try_from(v1::ReadRequest {
            path,
            start_line: range.map(|(first, _)| first),
            end_line: range.and_then(|(_, last)| last),
            ..Default::default()
        })?)
    }
}

/// Returns first and last line; no last line is the end of the file.
fn lines([first, last]: [i64; 2]) -> Result<(u64, Option<u64>), ParseFailure> {
    let counted = |line: i64| u64::try_from(line).ok().filter(|line| *line >= 1);
    match (counted(first), counted(last)) {
        (Some(first), last) if last.is_some() => Ok((first, last)),
        (Some(first), None) if last == -1 => Ok((first, None)),
        _ => Err(ParseFailure::argument(
            "view_range",
            "lines are counted from 1; only the last may be -1, the end of the file",
        )),
    }
}

/// Create a file, which must not exist yet. Missing directories are made. At most {max_write_bytes} bytes.
/// Example: {"path": "src/new.rs", "file_text": "fn main() {}\n"}
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Create {
    /// File, such as src/new.rs.
    path: String,
    /// The whole content of the file.
    file_text: String,
}

impl ToolArguments for Create {
    fn operation(self, _limits: &Limits) -> Result<Operation, NoOperation> {
        edit(self.path, Change::Create(v1::CreateFile { content: self.file_text }))
    }
}

/// Replace text in a file. old_str must occur exactly once, white space included; with several matches their lines are
/// named and nothing changes. The file may have at most {max_edit_bytes} bytes.
/// Example: {"path": "src/main.rs", "old_str": "let x = 1;", "new_str": "let x = 2;"}
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct StrReplace {
    /// File, such as src/main.rs.
    path: String,
    /// The text to replace, exactly as in the file.
    old_str: String,
    /// The new text. Default: none, old_str is removed.
    new_str: Option<String>,
}

impl ToolArguments for StrReplace {
    fn operation(self, _limits: &Limits) -> Result<Operation, NoOperation> {
        let Self { path, old_str, new_str } = self;
        let new_str = new_str.unwrap_or_default();
        edit(path, Change::StrReplace(v1::StrReplace { old_str, new_str, replace_all: false }))
    }
}

/// Insert text after a line of a file. The file may have at most {max_edit_bytes} bytes.
/// Example: {"path": "src/main.rs", "insert_line": 3, "insert_text": "// why\n"}
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(clippy::struct_field_names)] // the vendor's names
struct Insert {
    /// File, such as src/main.rs.
    path: String,
    /// The text goes after this line, counted from 1; 0 is the beginning of the file.
    insert_line: u64,
    /// The text. Give this one or new_str.
    insert_text: Option<String>,
    /// The text, by its older name.
    new_str: Option<String>,
}

impl ToolArguments for Insert {
    fn operation(self, _limits: &Limits) -> Result<Operation, NoOperation> {
        let text = match (self.insert_text, self.new_str) {
            (Some(text), None) | (None, Some(text)) => text,
            (Some(_), Some(_)) => {
                return Err(ParseFailure::argument("new_str", "does not go with insert_text").into());
            }
            (None, None) => return Err(ParseFailure::argument("insert_text", "is missing").into()),
        };
        edit(self.path, Change::Insert(v1::InsertText { after_line: self.insert_line, text }))
    }
}

fn edit(path: String, change: Change) -> Result<Operation, NoOperation> {
    let request = v1::EditRequest { path, change: Some(change), ..Default::default() };
    Ok(Operation::try_from(request)?)
}

#[cfg(test)]
mod tests;
