//! The shapes of the union's results.

use std::collections::BTreeMap;

use operations::{
    Entry, EntryType, GrepMatch, GrepResult, ListResult, Operation, PatchResult, ReadResult, WriteResult,
    beside_more,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::reading::Rest;
use crate::tool::result_schema;

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReadSuccess<'a> {
    ok: bool,
    path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_preview: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    truncated: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    bytes: u64,
    sha256: &'a str,
    #[serde(skip_serializing_if = "is_zero")]
    start_line: u64,
    #[serde(skip_serializing_if = "is_zero")]
    end_line: u64,
}

impl<'a> ReadSuccess<'a> {
    /// Shows a binary file as a preview without text.
    pub(super) fn of(result: &'a ReadResult) -> Self {
        let partly = result.truncated || result.binary;
        Self {
            ok: true,
            path: &result.path,
            content: (!partly).then_some(&result.content),
            content_preview: partly.then_some(&result.content),
            truncated: partly.then_some(true),
            hint: read_hint(result),
            bytes: result.size_bytes,
            sha256: &result.sha256,
            start_line: result.start_line,
            end_line: result.end_line,
        }
    }
}

fn read_hint(result: &ReadResult) -> Option<String> {
    if result.binary {
        return Some("the file is not UTF-8 text, so its content is not shown".to_owned());
    }
    let rest = match Rest::of(result) {
        Rest::None => return None,
        Rest::BeyondEnd => "nothing is there",
        Rest::InLine => "this line alone is too long to be shown whole; search the file with fs.search",
        Rest::From(line) => {
            &format!("read on with startLine={line} and an endLine, or search the file with fs.search")
        }
    };
    Some(format!("the file has {} lines; {rest}", result.total_lines))
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the signature that serde asks for
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListSuccess<'a> {
    ok: bool,
    path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    entries: Option<Vec<DirectChild<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    entries_preview: Option<Vec<DirectChild<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    truncated: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct DirectChild<'a> {
    name: &'a str,
    path: &'a str,
    #[serde(rename = "type")]
    #[schemars(with = "String")]
    entry_type: EntryType,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
}

impl<'a> ListSuccess<'a> {
    pub(super) fn of(result: &'a ListResult) -> Self {
        let entries: Vec<DirectChild<'a>> = result.entries.iter().map(DirectChild::of).collect();
        let more = format!(
            "the directory has {} entries or more, of which {} are shown; list its subdirectories or use fs.search",
            result.total_entries,
            entries.len()
        );
        let hint = hint(result.truncated.then_some(more), &result.hint, entries.is_empty());
        let (entries, entries_preview) =
            if result.truncated { (None, Some(entries)) } else { (Some(entries), None) };
        Self {
            ok: true,
            path: &result.path,
            entries,
            entries_preview,
            truncated: result.truncated.then_some(true),
            hint,
        }
    }
}

/// Joins the note that there are more findings, in this dialect's words, and the rest of the result's hint.
fn hint(more: Option<String>, hint: &str, is_empty: bool) -> Option<String> {
    let more = more.filter(|_| !is_empty || hint.is_empty());
    let rest = if more.is_some() { beside_more(hint) } else { hint };
    let rest = (!rest.is_empty()).then(|| rest.to_owned());
    more.into_iter().chain(rest).reduce(|more, rest| format!("{more}; {rest}"))
}

impl<'a> DirectChild<'a> {
    fn of(entry: &'a Entry) -> Self {
        Self {
            name: &entry.name,
            path: &entry.path,
            entry_type: entry.r#type(),
            bytes: (entry.r#type() == EntryType::File).then_some(entry.size_bytes),
        }
    }
}

const MORE_MATCHES: &str = "there may be more matches; narrow the pattern or the path, or raise maxMatches";

#[derive(Serialize, JsonSchema)]
pub(super) struct SearchSuccess<'a> {
    ok: bool,
    matches: Vec<ShownMatch<'a>>,
    truncated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    stats: Stats,
}

#[derive(Serialize, JsonSchema)]
struct ShownMatch<'a> {
    path: &'a str,
    line: u64,
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<&'a [String]>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Stats {
    matches: usize,
    files_searched: u64,
    files_matched: u64,
    files_skipped: u64,
}

impl<'a> SearchSuccess<'a> {
    pub(super) fn of(operation: Option<&Operation>, result: &'a GrepResult) -> Self {
        // Context is present if it was requested, and empty at the edge of a file.
        let (before, after) = match operation {
            Some(Operation::Grep(grep)) => (grep.before > 0, grep.after > 0),
            _ => (true, true),
        };
        let shown = |found: &'a GrepMatch| ShownMatch {
            path: &found.path,
            line: found.line,
            text: &found.text,
            before: before.then_some(&*found.before),
            after: after.then_some(&*found.after),
        };
        Self {
            ok: true,
            matches: result.matches.iter().map(shown).collect(),
            truncated: result.truncated,
            hint: hint(
                result.truncated.then(|| MORE_MATCHES.to_owned()),
                &result.hint,
                result.matches.is_empty(),
            ),
            stats: Stats {
                matches: result.matches.len(),
                files_searched: result.files_searched,
                files_matched: result.files_matched,
                files_skipped: result.files_skipped,
            },
        }
    }
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct WriteSuccess<'a> {
    ok: bool,
    path: &'a str,
    bytes_written: u64,
    sha256_after: &'a str,
}

impl<'a> WriteSuccess<'a> {
    pub(super) fn of(result: &'a WriteResult) -> Self {
        Self {
            ok: true,
            path: &result.path,
            bytes_written: result.bytes_written,
            sha256_after: &result.sha256_after,
        }
    }
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PatchSuccess<'a> {
    ok: bool,
    path: &'a str,
    sha256_before: &'a str,
    sha256_after: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    notes: &'a [String],
}

impl<'a> PatchSuccess<'a> {
    /// Converts the patch of one file's front matter. Patches of several files have no form in the union.
    pub(super) fn of(result: &'a PatchResult) -> Option<Self> {
        let [file] = result.files.as_slice() else { return None };
        Some(Self {
            ok: true,
            path: &file.path,
            sha256_before: &file.sha256_before,
            sha256_after: &file.sha256_after,
            notes: &result.notes,
        })
    }
}

#[derive(Serialize, JsonSchema)]
pub(super) struct UnionFailure<'a> {
    ok: bool,
    error: UnionError<'a>,
}

#[derive(Serialize, JsonSchema)]
struct UnionError<'a> {
    code: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    details: BTreeMap<String, &'a str>,
}

impl<'a> UnionFailure<'a> {
    pub(super) fn of(code: &'a str, message: &'a str, details: BTreeMap<String, &'a str>) -> Self {
        Self { ok: false, error: UnionError { code, message, details } }
    }
}

/// Returns the JSON Schema of a tool's results: its own success, or the union's failure.
pub(super) fn schema(tool: &str) -> Value {
    let mut success = match tool {
        "fs.list" => result_schema::<ListSuccess<'_>>(),
        "fs.read" => result_schema::<ReadSuccess<'_>>(),
        "fs.search" => result_schema::<SearchSuccess<'_>>(),
        "fs.write" => result_schema::<WriteSuccess<'_>>(),
        _ => result_schema::<PatchSuccess<'_>>(),
    };
    let failure = result_schema::<UnionFailure<'_>>();
    let required = match tool {
        // A patch of several files has no form in the union: its result is the canonical one.
        "fs.apply_patch" => json!(["ok"]),
        _ => success["required"].take(),
    };
    success["properties"]["error"] = failure["properties"]["error"].clone();
    success["required"] = json!(["ok"]);
    success["oneOf"] = json!([
        {"properties": {"ok": {"const": true}}, "required": required},
        {"properties": {"ok": {"const": false}}, "required": failure["required"]},
    ]);
    success
}
