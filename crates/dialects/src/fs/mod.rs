//! `fs`: mount-aware file tools with camelCase arguments and results of the ToolResult union.
//!
//! The tools are `fs.list`, `fs.read`, `fs.search`, `fs.write` and `fs.apply_patch`, which changes front matter.

mod patch;
mod render;
mod result;

use ops::{Malformed, Operation, Outcome};
use serde_json::Value;
use wire::v1;

use crate::arguments::Arguments;
use crate::dialect::Dialect;
use crate::failure::ParseFailure;
use crate::made::Made;
use crate::tool::{Effect, Kind, Parameter, Tool};

/// The dialect.
pub(crate) struct Fs;

impl Dialect for Fs {
    fn name(&self) -> &'static str {
        "fs"
    }

    fn tools(&self) -> &'static [Tool] {
        &TOOLS
    }

    fn framed(&self, made: &Made<'_>, outcome: &Outcome) -> String {
        render::render(made.operation, outcome)
    }

    fn render_pending(&self, _made: &Made<'_>, approval_id: &str) -> String {
        render::render_pending(approval_id)
    }

    fn output_schema(&self, tool: &Tool) -> Option<Value> {
        Some(result::schema(tool.name))
    }
}

static TOOLS: [Tool; 5] = [
    Tool {
        name: "fs.list",
        description: "List the direct children of a directory: name, type and size. Hidden entries and symbolic \
                      links are left out. At most 200 entries; with more, `entriesPreview`, `truncated` and a `hint` \
                      come back. Example: {\"path\": \"@project/src\"}",
        parameters: &[Parameter::required(
            "path",
            Kind::Text,
            "Directory, such as @project, @pkg/lib or @state/notes.",
        )],
        operations: &["list"],
        effect: Effect::Reads,
        repeatable: true,
        operation: list,
    },
    Tool {
        name: "fs.read",
        description: "Read a UTF-8 text file, whole or a range of lines. Over {max_read_bytes} bytes only the beginning comes \
                      back, as `contentPreview` with `truncated` and a `hint`: then give startLine and endLine, or \
                      use fs.search. Always gives the file's size in bytes and its sha256. \
                      Example: {\"path\": \"@project/src/main.rs\", \"startLine\": 1, \"endLine\": 80}",
        parameters: &[
            Parameter::required("path", Kind::Text, "File, such as @project/README.md."),
            Parameter::optional(
                "startLine",
                Kind::Integer { least: 1 },
                "First line, counted from 1. Default: the first.",
            ),
            Parameter::optional(
                "endLine",
                Kind::Integer { least: 1 },
                "Last line, inclusive. Default: the last.",
            ),
        ],
        operations: &["read"],
        effect: Effect::Reads,
        repeatable: true,
        operation: read,
    },
    Tool {
        name: "fs.search",
        description: "Find text in the files below a directory. The pattern is literal text; written /like this/ or \
                      /like this/i it is a regular expression. Skips .git, node_modules, hidden directories and \
                      binary files. At most 50 matches unless maxMatches says otherwise. \
                      Example: {\"path\": \"@project\", \"pattern\": \"fn main\", \"after\": 3}",
        parameters: &[
            Parameter::required("path", Kind::Text, "Directory or file, such as @project/src."),
            Parameter::required(
                "pattern",
                Kind::Text,
                "Literal text, or a regular expression as /…/ or /…/i.",
            ),
            Parameter::optional(
                "before",
                Kind::Integer { least: 0 },
                "Lines of context before a match, at most 20. Default 1.",
            ),
            Parameter::optional(
                "after",
                Kind::Integer { least: 0 },
                "Lines of context after a match, at most 20. Default 1.",
            ),
            Parameter::optional(
                "maxMatches",
                Kind::Integer { least: 1 },
                "Most matches to return, at most 1000. Default 50.",
            ),
        ],
        operations: &["grep"],
        effect: Effect::Reads,
        repeatable: true,
        operation: search,
    },
    Tool {
        name: "fs.write",
        description: "Create a file or replace its whole content, atomically; missing directories are made. At most \
                      {max_write_bytes} bytes. @pkg is read-only. With ifMatchSha256 (from fs.read) nothing is written when \
                      the file has changed since. Example: {\"path\": \"@project/notes.md\", \"content\": \"# Notes\\n\"}",
        parameters: &[
            Parameter::required("path", Kind::Text, "File in @project or @state."),
            Parameter::required("content", Kind::Text, "The whole new content."),
            Parameter::optional(
                "ifMatchSha256",
                Kind::Text,
                "Write only if the file's sha256 is this, 64 lower-case hex digits.",
            ),
        ],
        operations: &["write"],
        effect: Effect::Changes,
        repeatable: true,
        operation: write,
    },
    patch::TOOL,
];

fn list(arguments: &mut Arguments) -> Result<Operation, ParseFailure> {
    let request = v1::ListRequest { path: path(arguments)?, ..Default::default() };
    Operation::try_from(request).map_err(|malformed| named(&malformed))
}

fn read(arguments: &mut Arguments) -> Result<Operation, ParseFailure> {
    let request = v1::ReadRequest {
        path: path(arguments)?,
        start_line: arguments.integer("startLine"),
        end_line: arguments.integer("endLine"),
        ..Default::default()
    };
    Operation::try_from(request).map_err(|malformed| {
        let failure = named(&malformed);
        // Each line by itself has been checked against the parameters: only their order is left.
        if malformed.field == "read.end_line" { failure.with("refusal", render::LINE_ORDER) } else { failure }
    })
}

fn search(arguments: &mut Arguments) -> Result<Operation, ParseFailure> {
    let request = v1::GrepRequest {
        path: path(arguments)?,
        pattern: arguments.text("pattern"),
        before: arguments.small_integer("before"),
        after: arguments.small_integer("after"),
        max_matches: arguments.small_integer("maxMatches"),
        ..Default::default()
    };
    Operation::try_from(request).map_err(|malformed| named(&malformed))
}

fn write(arguments: &mut Arguments) -> Result<Operation, ParseFailure> {
    let request = v1::WriteRequest {
        path: path(arguments)?,
        content: arguments.text("content"),
        if_match_sha256: if_match(arguments)?,
        ..Default::default()
    };
    Operation::try_from(request).map_err(|malformed| named(&malformed))
}

/// Always given, so that an empty one is an empty path and not the default.
fn path(arguments: &mut Arguments) -> Result<String, ParseFailure> {
    let path = arguments.text("path");
    if path.is_empty() { Err(ParseFailure::path("path", &jail::PathRefusal::Empty)) } else { Ok(path) }
}

/// An empty hash is a wrong hash here, not the lack of a condition.
fn if_match(arguments: &mut Arguments) -> Result<String, ParseFailure> {
    let given = arguments.has("ifMatchSha256");
    let hash = arguments.text("ifMatchSha256");
    if given && hash.is_empty() {
        return Err(ParseFailure::argument("ifMatchSha256", "is empty: give a hash or leave it out"));
    }
    Ok(hash)
}

/// The canonical fields have the same names in snake case.
fn named(malformed: &Malformed) -> ParseFailure {
    let field = malformed.field.rsplit('.').next().unwrap_or_default();
    ParseFailure::malformed(&render::camel_case(field), malformed)
}

#[cfg(test)]
mod tests;
