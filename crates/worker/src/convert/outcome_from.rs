//! Wire messages → [`Outcome`], in the daemon.
//!
//! Trust boundary: the container lane's worker lives beside an attacker. A message that is not a possible outcome is
//! malformed, and the stream that carried it is closed. Sizes were capped with the frame.

use ops::{
    DeleteResult, EditResult, Encoding, Entry, EntryType, ExecResult, FileChange, GitResult, GlobResult,
    GrepMatch, GrepResult, Hint, KillEvidence, Limit, ListResult, OpResult, Outcome, PatchResult,
    PatchedFile, ReadResult, Reason, ToolFailure, WriteResult,
};
use wire::v1::{self, result::Kind};
use wire::worker::v1 as worker;

use super::Malformed;

const MAX_DETAILS: usize = 64;
const MAX_HINTS: usize = 8;

/// Parses and validates.
pub fn outcome_from_wire(outcome: worker::Outcome) -> Result<Outcome, Malformed> {
    use worker::outcome::Kind;
    match outcome.kind {
        Some(Kind::Result(result)) => {
            let kind = result.kind.ok_or_else(|| Malformed::new("outcome.result", "is empty"))?;
            Ok(Ok(result_from(kind)?))
        }
        Some(Kind::Failure(failure)) => Ok(Err(failure_from(failure, &outcome.hints)?)),
        None => Err(Malformed::new("outcome", "is empty")),
    }
}

fn failure_from(failure: v1::ToolFailure, hints: &[String]) -> Result<ToolFailure, Malformed> {
    let reason = Reason::parse(&failure.reason)
        .ok_or_else(|| Malformed::new("outcome.failure.reason", "is unknown"))?;
    if failure.details.len() > MAX_DETAILS {
        return Err(Malformed::new("outcome.failure.details", "are too many"));
    }
    if hints.len() > MAX_HINTS {
        return Err(Malformed::new("outcome.hints", "are too many"));
    }
    let hint = |name: &String| {
        Hint::parse(name).ok_or_else(|| Malformed::new("outcome.hints", "has an unknown one"))
    };
    let hints = hints.iter().map(hint).collect::<Result<_, _>>()?;
    Ok(ToolFailure {
        reason,
        message: failure.message,
        details: failure.details.into_iter().collect(),
        hints,
    })
}

fn result_from(kind: Kind) -> Result<OpResult, Malformed> {
    Ok(match kind {
        Kind::Read(result) => OpResult::Read(read(result)?),
        Kind::List(result) => OpResult::List(list(result)?),
        Kind::Glob(v1::GlobResult { paths, truncated, hint }) => {
            OpResult::Glob(GlobResult { paths, truncated, hint })
        }
        Kind::Grep(result) => OpResult::Grep(grep(result)),
        Kind::Exec(result) => OpResult::Exec(exec(result)?),
        Kind::Shell(result) => OpResult::Shell(exec(result)?),
        Kind::Write(v1::WriteResult { path, bytes_written, sha256_before, sha256_after, created }) => {
            OpResult::Write(WriteResult { path, bytes_written, sha256_before, sha256_after, created })
        }
        Kind::Edit(v1::EditResult {
            path,
            diff,
            diff_truncated,
            sha256_before,
            sha256_after,
            replacements,
        }) => OpResult::Edit(EditResult {
            path,
            diff,
            diff_truncated,
            sha256_before,
            sha256_after,
            replacements,
        }),
        Kind::Patch(result) => OpResult::Patch(patch(result)?),
        Kind::Delete(result) => OpResult::Delete(delete(result)?),
        // No worker calls upstream servers.
        Kind::Mcp(_) => return Err(Malformed::new("mcp", "is no worker's result")),
        Kind::Git(v1::GitResult { output, truncated, omitted_bytes, commit }) => {
            OpResult::Git(GitResult { output, truncated, omitted_bytes, commit })
        }
    })
}

fn read(result: v1::ReadResult) -> Result<ReadResult, Malformed> {
    Ok(ReadResult {
        encoding: match result.encoding() {
            v1::ContentEncoding::Utf8 => Encoding::Utf8,
            v1::ContentEncoding::Base64 => Encoding::Base64,
            v1::ContentEncoding::Unspecified => return Err(Malformed::new("read.encoding", "is unknown")),
        },
        path: result.path,
        content: result.content,
        size_bytes: result.size_bytes,
        sha256: result.sha256,
        total_lines: result.total_lines,
        start_line: result.start_line,
        end_line: result.end_line,
        truncated: result.truncated,
        binary: result.binary,
        hint: result.hint,
    })
}

fn list(result: v1::ListResult) -> Result<ListResult, Malformed> {
    let entries = result
        .entries
        .into_iter()
        .map(|entry| {
            Ok(Entry {
                entry_type: entry_type(entry.r#type(), "list.entries.type")?,
                path: entry.path,
                name: entry.name,
                size_bytes: entry.size_bytes,
                modified_unix_seconds: entry.modified_unix_seconds,
            })
        })
        .collect::<Result<_, _>>()?;
    Ok(ListResult {
        path: result.path,
        entries,
        truncated: result.truncated,
        total_entries: result.total_entries,
        hint: result.hint,
    })
}

fn entry_type(found: v1::entry::Type, field: &str) -> Result<EntryType, Malformed> {
    Ok(match found {
        v1::entry::Type::File => EntryType::File,
        v1::entry::Type::Directory => EntryType::Directory,
        v1::entry::Type::Symlink => EntryType::Symlink,
        v1::entry::Type::Other => EntryType::Other,
        v1::entry::Type::Unspecified => return Err(Malformed::new(field, "is unknown")),
    })
}

fn grep(result: v1::GrepResult) -> GrepResult {
    let matches = result
        .matches
        .into_iter()
        .map(|found| GrepMatch {
            path: found.path,
            line: found.line,
            text: found.text,
            before: found.before,
            after: found.after,
        })
        .collect();
    GrepResult {
        matches,
        truncated: result.truncated,
        hint: result.hint,
        files_searched: result.files_searched,
        files_matched: result.files_matched,
        files_skipped: result.files_skipped,
    }
}

fn patch(result: v1::PatchResult) -> Result<PatchResult, Malformed> {
    let files = result
        .files
        .into_iter()
        .map(|file| {
            use v1::patched_file::Change;
            Ok(PatchedFile {
                change: match file.change() {
                    Change::Created => FileChange::Created,
                    Change::Updated => FileChange::Updated,
                    Change::Deleted => FileChange::Deleted,
                    Change::Moved => FileChange::Moved,
                    Change::Unspecified => return Err(Malformed::new("patch.files.change", "is unknown")),
                },
                path: file.path,
                moved_from: file.moved_from,
                sha256_before: file.sha256_before,
                sha256_after: file.sha256_after,
                bytes_written: file.bytes_written,
                trash_entry: file.trash_entry,
            })
        })
        .collect::<Result<_, _>>()?;
    Ok(PatchResult { files, notes: result.notes, diff: result.diff, diff_truncated: result.diff_truncated })
}

fn delete(result: v1::DeleteResult) -> Result<DeleteResult, Malformed> {
    Ok(DeleteResult {
        entry_type: entry_type(result.r#type(), "delete.type")?,
        path: result.path,
        size_bytes: result.size_bytes,
        sha256: result.sha256,
        trash_entry: result.trash_entry,
        gone_for_good: result.gone_for_good,
    })
}

fn exec(result: v1::ExecResult) -> Result<ExecResult, Malformed> {
    let kill = result.kill.unwrap_or_default();
    // Of the limits a worker sees only what is full; the rest the daemon finds out, and its words are its own.
    let space = |name: &String| Limit::parse(name).filter(|limit| limit.is_space());
    let limits_hit = result.limits_hit.iter().map(space).collect::<Option<Vec<_>>>();
    Ok(ExecResult {
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
        kill: KillEvidence { ended: kill.ended, left: kill.left, method: kill.method, took_us: kill.took_us },
        ended_by: None,
        limits_hit: limits_hit
            .ok_or_else(|| Malformed::new("exec.limits_hit", "has one that no worker can see"))?,
        hint: String::new(),
    })
}
