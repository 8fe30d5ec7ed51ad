//! [`Outcome`] → wire messages, for the daemon and for the client.

use ops::{
    DeleteResult, EditResult, Encoding, EntryType, ExecResult, FileChange, GitResult, GlobResult, GrepResult,
    KillEvidence, ListResult, McpContent, McpResult, OpResult, Outcome, PatchResult, ReadResult, ToolFailure,
    WriteResult,
};
use wire::v1::{self, result::Kind};
use wire::worker::v1 as worker;

/// As a worker sends it.
pub fn outcome_to_wire(outcome: Outcome) -> worker::Outcome {
    use worker::outcome::Kind;
    let mut hints = Vec::new();
    let kind = match outcome {
        Ok(result) => Kind::Result(v1::Result { kind: Some(result_to_wire(result)) }),
        Err(mut failure) => {
            hints = std::mem::take(&mut failure.hints).iter().map(|hint| hint.as_str().to_owned()).collect();
            Kind::Failure(failure_to_wire(failure))
        }
    };
    worker::Outcome { kind: Some(kind), usage: None, bound: None, hints }
}

/// A failure as clients see it, with its hints in the names of the API.
pub fn failure_to_wire(failure: ToolFailure) -> v1::ToolFailure {
    let failure = failure.told(|hint| Some(hint.canonical()));
    v1::ToolFailure {
        reason: failure.reason.as_str().to_owned(),
        message: failure.message,
        details: failure.details.into_iter().collect(),
    }
}

/// A result as clients see it.
pub fn result_to_wire(result: OpResult) -> Kind {
    match result {
        OpResult::Read(result) => Kind::Read(read(result)),
        OpResult::List(result) => Kind::List(list(result)),
        OpResult::Glob(GlobResult { paths, truncated, hint }) => {
            Kind::Glob(v1::GlobResult { paths, truncated, hint })
        }
        OpResult::Grep(result) => Kind::Grep(grep(result)),
        OpResult::Exec(result) => Kind::Exec(exec(result)),
        OpResult::Shell(result) => Kind::Shell(exec(result)),
        OpResult::Write(WriteResult { path, bytes_written, sha256_before, sha256_after, created }) => {
            Kind::Write(v1::WriteResult { path, bytes_written, sha256_before, sha256_after, created })
        }
        OpResult::Edit(EditResult {
            path,
            diff,
            diff_truncated,
            sha256_before,
            sha256_after,
            replacements,
        }) => Kind::Edit(v1::EditResult {
            path,
            diff,
            diff_truncated,
            sha256_before,
            sha256_after,
            replacements,
        }),
        OpResult::Patch(result) => Kind::Patch(patch(result)),
        OpResult::Delete(result) => Kind::Delete(delete(result)),
        OpResult::Git(GitResult { output, truncated, omitted_bytes, commit }) => {
            Kind::Git(v1::GitResult { output, truncated, omitted_bytes, commit })
        }
        OpResult::Mcp(result) => Kind::Mcp(mcp(result)),
    }
}

pub(super) fn encoding(encoding: Encoding) -> i32 {
    match encoding {
        Encoding::Utf8 => v1::ContentEncoding::Utf8,
        Encoding::Base64 => v1::ContentEncoding::Base64,
    }
    .into()
}

/// As the worker is told, and clients are.
pub(crate) fn kill_evidence(evidence: KillEvidence) -> v1::KillEvidence {
    let KillEvidence { ended, left, method, took_us } = evidence;
    v1::KillEvidence { ended, left, method, took_us }
}

fn read(result: ReadResult) -> v1::ReadResult {
    v1::ReadResult {
        content: result.content,
        size_bytes: result.size_bytes,
        sha256: result.sha256,
        total_lines: result.total_lines,
        truncated: result.truncated,
        hint: result.hint,
        binary: result.binary,
        encoding: encoding(result.encoding),
        path: result.path,
        start_line: result.start_line,
        end_line: result.end_line,
    }
}

fn list(result: ListResult) -> v1::ListResult {
    let entries = result
        .entries
        .into_iter()
        .map(|entry| v1::Entry {
            path: entry.path,
            name: entry.name,
            r#type: entry_type(entry.entry_type),
            size_bytes: entry.size_bytes,
            modified_unix_seconds: entry.modified_unix_seconds,
        })
        .collect();
    v1::ListResult {
        path: result.path,
        entries,
        truncated: result.truncated,
        hint: result.hint,
        total_entries: result.total_entries,
    }
}

fn entry_type(entry_type: EntryType) -> i32 {
    match entry_type {
        EntryType::File => v1::entry::Type::File,
        EntryType::Directory => v1::entry::Type::Directory,
        EntryType::Symlink => v1::entry::Type::Symlink,
        EntryType::Other => v1::entry::Type::Other,
    }
    .into()
}

fn grep(result: GrepResult) -> v1::GrepResult {
    let matches = result
        .matches
        .into_iter()
        .map(|found| v1::GrepMatch {
            path: found.path,
            line: found.line,
            text: found.text,
            before: found.before,
            after: found.after,
        })
        .collect();
    v1::GrepResult {
        matches,
        truncated: result.truncated,
        hint: result.hint,
        files_searched: result.files_searched,
        files_matched: result.files_matched,
        files_skipped: result.files_skipped,
    }
}

fn patch(result: PatchResult) -> v1::PatchResult {
    use v1::patched_file::Change;
    let files = result
        .files
        .into_iter()
        .map(|file| v1::PatchedFile {
            path: file.path,
            change: match file.change {
                FileChange::Created => Change::Created,
                FileChange::Updated => Change::Updated,
                FileChange::Deleted => Change::Deleted,
                FileChange::Moved => Change::Moved,
            }
            .into(),
            moved_from: file.moved_from,
            sha256_before: file.sha256_before,
            sha256_after: file.sha256_after,
            bytes_written: file.bytes_written,
            trash_entry: file.trash_entry,
        })
        .collect();
    v1::PatchResult { files, diff: result.diff, diff_truncated: result.diff_truncated, notes: result.notes }
}

fn delete(result: DeleteResult) -> v1::DeleteResult {
    v1::DeleteResult {
        path: result.path,
        r#type: entry_type(result.entry_type),
        size_bytes: result.size_bytes,
        sha256: result.sha256,
        trash_entry: result.trash_entry,
        gone_for_good: result.gone_for_good,
    }
}

fn exec(result: ExecResult) -> v1::ExecResult {
    v1::ExecResult {
        stdout: result.stdout,
        stderr: result.stderr,
        exit_code: result.exit_code,
        signal: result.signal,
        timed_out: result.timed_out,
        stdout_bytes: result.stdout_bytes,
        stderr_bytes: result.stderr_bytes,
        stdout_omitted_bytes: result.stdout_omitted_bytes,
        stderr_omitted_bytes: result.stderr_omitted_bytes,
        cpu_time_us: result.cpu_time_us,
        peak_memory_bytes: result.peak_memory_bytes,
        wall_time_us: result.wall_time_us,
        kill: Some(kill_evidence(result.kill)),
        ended_by: result.ended_by.map_or("", ops::EndedBy::as_str).to_owned(),
        limits_hit: result.limits_hit.iter().map(|limit| limit.as_str().to_owned()).collect(),
        hint: result.hint,
    }
}

fn mcp(result: McpResult) -> v1::McpResult {
    v1::McpResult {
        server: result.server,
        tool: result.tool,
        content: result.content.into_iter().map(mcp_content).collect(),
        structured_content_json: result.structured_content.map(|value| value.to_string()).unwrap_or_default(),
        truncated: result.truncated,
        omitted_items: result.omitted_items,
        omitted_bytes: result.omitted_bytes,
        total_bytes: result.total_bytes,
        sha256: result.sha256,
    }
}

fn mcp_content(item: McpContent) -> v1::McpContent {
    use v1::mcp_content::Type;
    let of = |kind: Type| v1::McpContent { r#type: kind.into(), ..Default::default() };
    match item {
        McpContent::Text { text } => v1::McpContent { data: text, ..of(Type::Text) },
        McpContent::Image { mime_type, data } => v1::McpContent { mime_type, data, ..of(Type::Image) },
        McpContent::Audio { mime_type, data } => v1::McpContent { mime_type, data, ..of(Type::Audio) },
        McpContent::Resource { uri, mime_type, data, is_base64 } => {
            v1::McpContent { uri, mime_type, data, is_base64, ..of(Type::Resource) }
        }
        McpContent::ResourceLink { uri, name, mime_type } => {
            v1::McpContent { uri, name, mime_type, ..of(Type::ResourceLink) }
        }
    }
}
