//! `read`, `write`, `edit` and `patch`.

use std::num::NonZeroU64;

use operations::Operation;
use schemars::JsonSchema;
use serde::Deserialize;
use wire::v1::{self, edit_request::Change, patch_request::Change as PatchChange};

use crate::failure::ParseFailure;
use crate::limits::Limits;
use crate::tool::{NoOperation, ToolArguments};

/// Read a text file, with line numbers and a tab before each line: they are not part of the file. At most
/// {max_read_bytes} bytes come back; a last line in brackets says how to go on. A path that ends in a slash lists a
/// directory. Example: {"file_path": "src/main.rs", "offset": 1, "limit": 200}
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Read {
    /// File, such as src/main.rs or /workspace/src/main.rs.
    file_path: String,
    /// First line, counted from 1. Default: the first.
    offset: Option<NonZeroU64>,
    /// Most lines. Default: all.
    limit: Option<NonZeroU64>,
}

impl ToolArguments for Read {
    fn operation(self, _limits: &Limits) -> Result<Operation, NoOperation> {
        let Self { file_path: path, offset, limit } = self;
        if path.ends_with('/') && offset.is_none() && limit.is_none() {
            return Ok(Operation::try_from(v1::ListRequest { path, ..Default::default() })?);
        }
        let first = offset.map(NonZeroU64::get);
        let last = limit.map(|limit| first.unwrap_or(1).saturating_add(limit.get() - 1));
        Ok(Operation::try_from(v1::ReadRequest {
            path,
            start_line: first,
            end_line: last,
            ..Default::default()
        })?)
    }
}

/// Create a file or replace its whole content, atomically; missing directories are made. At most {max_write_bytes}
/// bytes. Example: {"file_path": "src/new.rs", "content": "fn main() {}\n"}
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Write {
    /// File, such as src/new.rs.
    file_path: String,
    /// The whole new content.
    content: String,
}

impl ToolArguments for Write {
    fn operation(self, _limits: &Limits) -> Result<Operation, NoOperation> {
        let Self { file_path: path, content } = self;
        Ok(Operation::try_from(v1::WriteRequest { path, content, ..Default::default() })?)
    }
}

/// Replace text in a file. old_string must occur exactly once, white space included and without the line numbers of read;
/// with several matches their lines are named and nothing changes, unless replace_all is true. The file may have at most
/// {max_edit_bytes} bytes. The answer shows the changed lines.
/// Example: {"file_path": "src/main.rs", "old_string": "let x = 1;", "new_string": "let x = 2;"}
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Edit {
    /// File, such as src/main.rs.
    file_path: String,
    /// The text to replace, exactly as in the file.
    old_string: String,
    /// The new text; another one than old_string. Empty to remove it.
    new_string: String,
    /// Replace every occurrence. Default false.
    replace_all: Option<bool>,
}

impl ToolArguments for Edit {
    fn operation(self, _limits: &Limits) -> Result<Operation, NoOperation> {
        let Self { file_path: path, old_string: old_str, new_string: new_str, replace_all } = self;
        let change = v1::StrReplace { old_str, new_str, replace_all: replace_all.unwrap_or_default() };
        let change = Some(Change::StrReplace(change));
        Ok(Operation::try_from(v1::EditRequest { path, change, ..Default::default() })?)
    }
}

/// Change several files at once, all of them or none. The patch is a unified diff, as git diff writes it, or begins with
/// *** Begin Patch, has parts *** Add File: PATH, *** Update File: PATH and *** Delete File: PATH, and ends with
/// *** End Patch. Example: {"patch": "*** Begin Patch\n*** Update File: a.txt\n@@\n-one\n+two\n*** End Patch\n"}
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PatchText {
    /// The patch.
    patch: String,
}

impl ToolArguments for PatchText {
    fn operation(self, _limits: &Limits) -> Result<Operation, NoOperation> {
        if self.patch.trim().is_empty() {
            return Err(ParseFailure::argument("patch", "is empty").into());
        }
        let envelope = self.patch.trim_start().starts_with("*** Begin Patch");
        let change =
            if envelope { PatchChange::Envelope(self.patch) } else { PatchChange::UnifiedDiff(self.patch) };
        Ok(Operation::try_from(v1::PatchRequest { change: Some(change) })?)
    }
}
