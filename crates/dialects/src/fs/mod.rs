//! `fs`: mount-aware file tools with camelCase arguments, and results of the ToolResult union.
//!
//! The tools are `fs.list`, `fs.read`, `fs.search`, `fs.write` and `fs.apply_patch`, which changes front matter.

mod patch;
mod render;
mod result;

use std::num::NonZeroU64;
use std::sync::LazyLock;

use operations::{Operation, Outcome};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use wire::v1;

use crate::dialect::Dialect;
use crate::failure::ParseFailure;
use crate::limits::{Limits, saturated};
use crate::made::Made;
use crate::tool::{Effect, NoOperation, Tool, ToolArguments};

pub(crate) struct Fs;

impl Dialect for Fs {
    fn name(&self) -> &'static str {
        "fs"
    }

    fn tools(&self) -> &'static [Tool] {
        &*TOOLS
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

static TOOLS: LazyLock<[Tool; 5]> = LazyLock::new(|| {
    [
        Tool::of::<FsList>("fs.list", &["list"], Effect::Reads),
        Tool::of::<FsRead>("fs.read", &["read"], Effect::Reads),
        Tool::of::<FsSearch>("fs.search", &["grep"], Effect::Reads),
        Tool::of::<FsWrite>("fs.write", &["write"], Effect::Changes).repeatable(),
        Tool::of::<patch::ApplyPatch>("fs.apply_patch", &["patch"], Effect::Changes),
    ]
});

/// List the direct children of a directory: name, type and size. Hidden entries and symbolic links are left out. At most
/// 200 entries; with more, `entriesPreview`, `truncated` and a `hint` come back. Example: {"path": "@project/src"}
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FsList {
    /// Directory, such as @project, @pkg/lib or @state/notes.
    path: String,
}

impl ToolArguments for FsList {
    fn operation(self, _limits: &Limits) -> Result<Operation, NoOperation> {
        Ok(Operation::try_from(v1::ListRequest { path: given(self.path)?, ..Default::default() })?)
    }
}

/// Read a UTF-8 text file, whole or a range of lines. Over {max_read_bytes} bytes only the beginning comes back, as
/// `contentPreview` with `truncated` and a `hint`: then give startLine and endLine, or use fs.search. Always gives the
/// file's size in bytes and its sha256.
/// Example: {"path": "@project/src/main.rs", "startLine": 1, "endLine": 80}
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct FsRead {
    /// File, such as @project/README.md.
    path: String,
    /// First line, counted from 1. Default: the first.
    start_line: Option<NonZeroU64>,
    /// Last line, inclusive. Default: the last.
    end_line: Option<NonZeroU64>,
}

impl ToolArguments for FsRead {
    fn operation(self, _limits: &Limits) -> Result<Operation, NoOperation> {
        let request = v1::ReadRequest {
            path: given(self.path)?,
            start_line: self.start_line.map(NonZeroU64::get),
            end_line: self.end_line.map(NonZeroU64::get),
            ..Default::default()
        };
        Operation::try_from(request).map_err(|malformed| match malformed.field.as_str() {
            // The type has checked each line, so only their order can be wrong.
            "read.end_line" => {
                ParseFailure::malformed("endLine", &malformed).with("refusal", render::LINE_ORDER).into()
            }
            _ => malformed.into(),
        })
    }
}

/// Find text in the files below a directory. The pattern is literal text; written /like this/ or /like this/i it is a
/// regular expression. Skips .git, node_modules, hidden directories and binary files. At most 50 matches unless
/// maxMatches says otherwise. Example: {"path": "@project", "pattern": "fn main", "after": 3}
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct FsSearch {
    /// Directory or file, such as @project/src.
    path: String,
    /// Literal text, or a regular expression as /…/ or /…/i.
    pattern: String,
    /// Lines of context before a match, at most 20. Default 1.
    before: Option<u64>,
    /// Lines of context after a match, at most 20. Default 1.
    after: Option<u64>,
    /// Most matches to return, at most 1000. Default 50.
    max_matches: Option<NonZeroU64>,
}

impl ToolArguments for FsSearch {
    fn operation(self, _limits: &Limits) -> Result<Operation, NoOperation> {
        Ok(Operation::try_from(v1::GrepRequest {
            path: given(self.path)?,
            pattern: self.pattern,
            before: self.before.map(saturated),
            after: self.after.map(saturated),
            max_matches: self.max_matches.map(|most| saturated(most.get())),
            ..Default::default()
        })?)
    }
}

/// Create a file or replace its whole content, atomically; missing directories are made. At most {max_write_bytes}
/// bytes. @pkg is read-only. With ifMatchSha256 (from fs.read) nothing is written when the file has changed since.
/// Example: {"path": "@project/notes.md", "content": "# Notes\n"}
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct FsWrite {
    /// File in @project or @state.
    path: String,
    /// The whole new content.
    content: String,
    /// Write only if the file's sha256 is this, 64 lower-case hex digits.
    if_match_sha256: Option<String>,
}

impl ToolArguments for FsWrite {
    fn operation(self, _limits: &Limits) -> Result<Operation, NoOperation> {
        Ok(Operation::try_from(v1::WriteRequest {
            path: given(self.path)?,
            content: self.content,
            if_match_sha256: condition(self.if_match_sha256)?,
            ..Default::default()
        })?)
    }
}

/// Refuses an empty path, which would otherwise mean the default. The argument is always given.
fn given(path: String) -> Result<String, ParseFailure> {
    if path.is_empty() { Err(ParseFailure::path("path", &jail::PathRefusal::Empty)) } else { Ok(path) }
}

/// Refuses an empty hash, which would otherwise mean that there is no condition.
fn condition(hash: Option<String>) -> Result<String, ParseFailure> {
    match hash {
        Some(hash) if hash.is_empty() => {
            Err(ParseFailure::argument("ifMatchSha256", "is empty: give a hash or leave it out"))
        }
        hash => Ok(hash.unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests;
