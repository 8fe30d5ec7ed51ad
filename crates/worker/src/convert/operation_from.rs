//! `cofferdam.v1.Operation` → [`Operation`]: fields are copied here, and validated by [`ops::raw`].

use ops::{Encoding, Operation, raw};
use wire::v1;

use super::Malformed;

/// Parses and validates.
pub fn operation_from_wire(operation: v1::Operation) -> Result<Operation, Malformed> {
    use v1::operation::Kind;
    let kind = operation.kind.ok_or_else(|| {
        Malformed::new(
            "operation",
            "is missing: set exactly one of read, list, glob, grep, exec, shell, write, edit, patch, delete, git, mcp",
        )
    })?;
    match kind {
        Kind::Read(request) => read(request)?.into_operation(),
        Kind::List(request) => list(request).into_operation(),
        Kind::Glob(request) => glob(request).into_operation(),
        Kind::Grep(request) => grep(request).into_operation(),
        Kind::Exec(request) => exec(request).into_operation(),
        Kind::Shell(request) => shell(request).into_operation(),
        Kind::Write(request) => write(request)?.into_operation(),
        Kind::Edit(request) => edit(request)?.into_operation(),
        Kind::Patch(request) => patch(request)?.into_operation(),
        Kind::Delete(request) => delete(request).into_operation(),
        Kind::Git(request) => git(request)?.into_operation(),
        Kind::Mcp(v1::McpRequest { server, tool, arguments_json }) => {
            raw::Mcp { server, tool, arguments_json }.into_operation()
        }
    }
}

fn read(request: v1::ReadRequest) -> Result<raw::Read, Malformed> {
    let v1::ReadRequest { path, start_line, end_line, offset, limit, encoding } = request;
    let encoding = encoding_from("read.encoding", encoding)?;
    Ok(raw::Read { path, start_line, end_line, offset, limit, encoding })
}

fn list(request: v1::ListRequest) -> raw::List {
    let v1::ListRequest { path, depth, include_hidden, include_symlinks, max_entries } = request;
    raw::List { path, depth, include_hidden, include_symlinks, max_entries }
}

fn glob(request: v1::GlobRequest) -> raw::Glob {
    let v1::GlobRequest { path, pattern, include_ignored, max_results } = request;
    raw::Glob { path, pattern, include_ignored, max_results }
}

fn grep(request: v1::GrepRequest) -> raw::Grep {
    let v1::GrepRequest {
        path,
        pattern,
        regex,
        case_insensitive,
        before,
        after,
        glob,
        max_matches,
        include_ignored,
    } = request;
    raw::Grep { path, pattern, regex, case_insensitive, before, after, glob, max_matches, include_ignored }
}

fn exec(request: v1::ExecRequest) -> raw::Exec {
    let v1::ExecRequest { command, args, cwd, env, stdin, timeout_ms, only_reads } = request;
    raw::Exec { command, args, cwd, env: env.into_iter().collect(), stdin, timeout_ms, only_reads }
}

fn shell(request: v1::ShellRequest) -> raw::Shell {
    let v1::ShellRequest { script, cwd, env, stdin, timeout_ms } = request;
    raw::Shell { script, cwd, env: env.into_iter().collect(), stdin, timeout_ms }
}

fn write(request: v1::WriteRequest) -> Result<raw::Write, Malformed> {
    let v1::WriteRequest { path, content, if_match_sha256, create_only, encoding } = request;
    let encoding = encoding_from("write.encoding", encoding)?;
    Ok(raw::Write { path, content, encoding, if_match_sha256, create_only })
}

fn edit(request: v1::EditRequest) -> Result<raw::Edit, Malformed> {
    use v1::edit_request::Change;
    let change =
        request.change.ok_or_else(|| Malformed::new("edit", "needs one of strReplace, create, insert"))?;
    let change = match change {
        Change::StrReplace(v1::StrReplace { old_str, new_str, replace_all }) => {
            raw::Change::StrReplace { old_str, new_str, replace_all }
        }
        Change::Create(v1::CreateFile { content }) => raw::Change::Create { content },
        Change::Insert(v1::InsertText { after_line, text }) => raw::Change::Insert { after_line, text },
    };
    Ok(raw::Edit { path: request.path, change, if_match_sha256: request.if_match_sha256 })
}

fn patch(request: v1::PatchRequest) -> Result<raw::Patch, Malformed> {
    use v1::patch_request::Change;
    let change = request
        .change
        .ok_or_else(|| Malformed::new("patch", "needs one of unifiedDiff, envelope, updateFrontmatter"))?;
    Ok(match change {
        Change::UnifiedDiff(diff) => raw::Patch::Unified(diff),
        Change::Envelope(envelope) => raw::Patch::Envelope(envelope),
        Change::UpdateFrontmatter(update) => raw::Patch::FrontMatter(front_matter(update)),
    })
}

fn front_matter(update: v1::UpdateFrontmatter) -> raw::FrontMatter {
    let v1::UpdateFrontmatter {
        path,
        if_match_sha256,
        steps_completed_append,
        variables_set_json,
        decision_log_append_json,
        artifacts_append,
        current_node_id,
        updated_at,
    } = update;
    raw::FrontMatter {
        path,
        if_match_sha256,
        steps_completed_append,
        variables_set_json,
        decision_log_append_json,
        artifacts_append,
        current_node_id,
        updated_at,
    }
}

fn delete(request: v1::DeleteRequest) -> raw::Delete {
    let v1::DeleteRequest { path, if_match_sha256 } = request;
    raw::Delete { path, if_match_sha256 }
}

fn git(request: v1::GitRequest) -> Result<raw::Git, Malformed> {
    use v1::git_request::Command;
    let command = request
        .command
        .ok_or_else(|| Malformed::new("git", "needs one of status, diff, log, show, add, commit"))?;
    Ok(match command {
        Command::Status(v1::GitStatus {}) => raw::Git::Status,
        Command::Diff(v1::GitDiff { flags, paths }) => raw::Git::Diff { flags, paths },
        Command::Log(v1::GitLog { flags, max_count, revision, paths }) => {
            raw::Git::Log { flags, max_count, revision, paths }
        }
        Command::Show(v1::GitShow { flags, revision, paths }) => raw::Git::Show { flags, revision, paths },
        Command::Add(v1::GitAdd { paths }) => raw::Git::Add { paths },
        Command::Commit(v1::GitCommit { message }) => raw::Git::Commit { message },
    })
}

fn encoding_from(field: &str, encoding: i32) -> Result<Encoding, Malformed> {
    match v1::ContentEncoding::try_from(encoding) {
        Ok(v1::ContentEncoding::Unspecified | v1::ContentEncoding::Utf8) => Ok(Encoding::Utf8),
        Ok(v1::ContentEncoding::Base64) => Ok(Encoding::Base64),
        Err(_) => Err(Malformed::new(field, "is unknown")),
    }
}
