//! `editor`: the commands of the text editor that Claude is trained on, as four tools with plain text results.
//!
//! A model that calls the editor as the one tool that its vendor defines, with the command among the arguments, is
//! understood, too.

mod render;

use ops::{Hint, Malformed, Operation, Outcome, Reason};
use serde_json::Value;
use wire::v1::{self, edit_request::Change};

use crate::arguments::Arguments;
use crate::dialect::Dialect;
use crate::failure::ParseFailure;
use crate::limits::Limits;
use crate::made::Made;
use crate::tool::{Effect, Kind, Parameter, Tool};

/// The dialect.
pub(crate) struct Editor;

/// Names of the vendor's one tool, new and old.
const WHOLE: [&str; 2] = ["str_replace_based_edit_tool", "str_replace_editor"];

impl Dialect for Editor {
    fn name(&self) -> &'static str {
        "editor"
    }

    fn tools(&self) -> &'static [Tool] {
        &TOOLS
    }

    fn framed(&self, made: &Made<'_>, outcome: &Outcome) -> String {
        render::render(made.operation, outcome)
    }

    /// What lists is `view` itself.
    fn hint(&self, _tool: &str, hint: Hint) -> Option<String> {
        let slash = "to list a directory put a slash at the end of its path";
        (hint == Hint::List).then(|| slash.to_owned())
    }

    fn render_pending(&self, _made: &Made<'_>, approval_id: &str) -> String {
        render::render_pending(approval_id)
    }

    fn parse(
        &self,
        tool_name: &str,
        arguments_json: &str,
        limits: &Limits,
    ) -> Result<Operation, ParseFailure> {
        if !WHOLE.contains(&tool_name) {
            let tool = self.tool(tool_name)?;
            return (tool.operation)(&mut Arguments::parse(tool, arguments_json, limits)?);
        }
        let mut values = Arguments::object_of(arguments_json)?;
        match values.remove("command") {
            Some(Value::String(command)) => {
                let tool = self.tool(&command).map_err(|failure| ParseFailure {
                    reason: Reason::InvalidArgument,
                    field: Some("command".to_owned()),
                    ..failure
                })?;
                (tool.operation)(&mut Arguments::of(tool, values, limits)?)
            }
            Some(_) => Err(ParseFailure::argument("command", "must be a string")),
            None => Err(ParseFailure::argument("command", "is missing")),
        }
    }
}

static TOOLS: [Tool; 4] = [
    Tool {
        name: "view",
        description: "Show a text file with numbered lines, or the direct children of a directory. Over \
                      {max_read_bytes} bytes only the beginning of a file comes back, and a last line in brackets \
                      says how to go on. Example: {\"path\": \"src/main.rs\", \"view_range\": [1, 40]}",
        parameters: &[
            Parameter::required("path", Kind::Text, "File or directory, such as src/main.rs."),
            Parameter::optional(
                "view_range",
                Kind::LineRange,
                "First and last line, counted from 1; -1 as last is the end. Files only. Default: all.",
            ),
        ],
        operations: &["read", "list"],
        effect: Effect::Reads,
        repeatable: true,
        operation: view,
    },
    Tool {
        name: "create",
        description: "Create a file, which must not exist yet. Missing directories are made. At most \
                      {max_write_bytes} bytes. Example: {\"path\": \"src/new.rs\", \"file_text\": \"fn main() {}\\n\"}",
        parameters: &[
            Parameter::required("path", Kind::Text, "File, such as src/new.rs."),
            Parameter::required("file_text", Kind::Text, "The whole content of the file."),
        ],
        operations: &["edit"],
        effect: Effect::Adds,
        repeatable: false,
        operation: create,
    },
    Tool {
        name: "str_replace",
        description: "Replace text in a file. old_str must occur exactly once, white space included; with several \
                      matches their lines are named and nothing changes. The file may have at most {max_write_bytes} \
                      bytes. Example: {\"path\": \"src/main.rs\", \"old_str\": \"let x = 1;\", \
                      \"new_str\": \"let x = 2;\"}",
        parameters: &[
            Parameter::required("path", Kind::Text, "File, such as src/main.rs."),
            Parameter::required("old_str", Kind::Text, "The text to replace, exactly as in the file."),
            Parameter::optional("new_str", Kind::Text, "The new text. Default: none, old_str is removed."),
        ],
        operations: &["edit"],
        effect: Effect::Changes,
        repeatable: false,
        operation: str_replace,
    },
    Tool {
        name: "insert",
        description: "Insert text after a line of a file. The file may have at most {max_write_bytes} bytes. \
                      Example: {\"path\": \"src/main.rs\", \"insert_line\": 3, \"insert_text\": \"// why\\n\"}",
        parameters: &[
            Parameter::required("path", Kind::Text, "File, such as src/main.rs."),
            Parameter::required(
                "insert_line",
                Kind::Integer { least: 0 },
                "The text goes behind this line, counted from 1; 0 is the beginning of the file.",
            ),
            Parameter::optional("insert_text", Kind::Text, "The text. Give this one or new_str."),
            Parameter::optional("new_str", Kind::Text, "The text, by its older name."),
        ],
        operations: &["edit"],
        effect: Effect::Changes,
        repeatable: false,
        operation: insert,
    },
];

/// A file with lines, or else whatever there is: the outcome tells a directory from a file.
fn view(arguments: &mut Arguments) -> Result<Operation, ParseFailure> {
    let range = arguments.range("view_range").map(lines).transpose()?;
    let path = arguments.text("path");
    // A directory is named as one: a path says nothing else of what it leads to.
    if range.is_none()
        && (path.ends_with('/') || matches!(path.as_str(), "." | "@project" | "@pkg" | "@state"))
    {
        let request = v1::ListRequest { path, ..Default::default() };
        return Operation::try_from(request).map_err(|malformed| named(&malformed));
    }
    let request = v1::ReadRequest {
        path,
        start_line: range.map(|(first, _)| first),
        end_line: range.and_then(|(_, last)| last),
        ..Default::default()
    };
    Operation::try_from(request).map_err(|malformed| named(&malformed))
}

/// First and last line; no last line is the end of the file.
fn lines((first, last): (i64, i64)) -> Result<(u64, Option<u64>), ParseFailure> {
    let first = u64::try_from(first).ok().filter(|first| *first >= 1);
    let last =
        if last == -1 { Some(None) } else { u64::try_from(last).ok().filter(|last| *last >= 1).map(Some) };
    match (first, last) {
        (Some(first), Some(last)) => Ok((first, last)),
        _ => Err(ParseFailure::argument(
            "view_range",
            "lines are counted from 1; only the last may be -1, the end of the file",
        )),
    }
}

fn create(arguments: &mut Arguments) -> Result<Operation, ParseFailure> {
    edit(arguments, |arguments| Ok(Change::Create(v1::CreateFile { content: arguments.text("file_text") })))
}

fn str_replace(arguments: &mut Arguments) -> Result<Operation, ParseFailure> {
    edit(arguments, |arguments| {
        Ok(Change::StrReplace(v1::StrReplace {
            old_str: arguments.text("old_str"),
            new_str: arguments.text("new_str"),
            replace_all: false,
        }))
    })
}

fn insert(arguments: &mut Arguments) -> Result<Operation, ParseFailure> {
    edit(arguments, |arguments| {
        let text = match (arguments.has("insert_text"), arguments.has("new_str")) {
            (true, false) => arguments.text("insert_text"),
            (false, true) => arguments.text("new_str"),
            (true, true) => return Err(ParseFailure::argument("new_str", "does not go with insert_text")),
            (false, false) => return Err(ParseFailure::argument("insert_text", "is missing")),
        };
        Ok(Change::Insert(v1::InsertText {
            after_line: arguments.integer("insert_line").unwrap_or_default(),
            text,
        }))
    })
}

fn edit(
    arguments: &mut Arguments,
    change: fn(&mut Arguments) -> Result<Change, ParseFailure>,
) -> Result<Operation, ParseFailure> {
    let change = change(arguments)?;
    let request =
        v1::EditRequest { path: arguments.text("path"), change: Some(change), ..Default::default() };
    Operation::try_from(request).map_err(|malformed| named(&malformed))
}

fn named(malformed: &Malformed) -> ParseFailure {
    let field = match malformed.field.as_str() {
        "edit.create.content" => "file_text",
        "edit.insert.text" => "insert_text",
        "edit.str_replace" => "new_str",
        "read.start_line" | "read.end_line" => "view_range",
        field => field.rsplit('.').next().unwrap_or_default(),
    };
    ParseFailure::malformed(field, malformed)
}

#[cfg(test)]
mod tests;
