//! `cofferdam.v1.Operation` → [`Operation`]: the one place where a request is parsed.
//!
//! Trust boundary: every bound that the types of `ops` promise is established here.

use std::time::Duration;

use jail::SandboxPath;
use ops::{
    Edit, EditChange, Encoding, Exec, Git, GitDiffFlag, Glob, Grep, List, Operation, Read, ReadPart, Reason,
    Write,
};
use wire::v1;

use super::Malformed;

const MAX_CONTENT: usize = 3 * 1024 * 1024;
const MAX_ARGS: usize = 4_096;
const MAX_ARGV_BYTES: usize = 128 * 1024;
const MAX_ENV: usize = 256;
const MAX_STDIN: usize = 1024 * 1024;
const MAX_PATHS: usize = 1_024;
const MAX_MESSAGE: usize = 64 * 1024;
const MAX_PATTERN: usize = 4_096;
const MAX_GLOB: usize = 1_024;
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_TIMEOUT: Duration = Duration::from_secs(120);

/// Parses and validates.
pub fn operation_from_wire(operation: v1::Operation) -> Result<Operation, Malformed> {
    use v1::operation::Kind;
    let kind = operation.kind.ok_or_else(|| {
        Malformed::new(
            "operation",
            "is missing: set exactly one of read, list, glob, grep, exec, write, edit, git",
        )
    })?;
    Ok(match kind {
        Kind::Read(request) => Operation::Read(read(&request)?),
        Kind::List(request) => Operation::List(list(&request)?),
        Kind::Glob(request) => Operation::Glob(glob(request)?),
        Kind::Grep(request) => Operation::Grep(grep(request)?),
        Kind::Exec(request) => Operation::Exec(exec(request)?),
        Kind::Write(request) => Operation::Write(write(request)?),
        Kind::Edit(request) => Operation::Edit(edit(request)?),
        Kind::Git(request) => Operation::Git(git(request)?),
    })
}

fn read(request: &v1::ReadRequest) -> Result<Read, Malformed> {
    let path = required_path("read.path", &request.path)?;
    let lines = request.start_line.is_some() || request.end_line.is_some();
    let bytes = request.offset.is_some() || request.limit.is_some();
    let part = match (lines, bytes) {
        (true, true) => {
            return Err(Malformed::new(
                "read",
                "takes lines (startLine, endLine) or bytes (offset, limit), not both",
            ));
        }
        (true, false) => {
            let first = request.start_line.unwrap_or(1);
            if first == 0 {
                return Err(Malformed::new("read.start_line", "counts from 1"));
            }
            if request.end_line.is_some_and(|last| last < first) {
                return Err(Malformed::new("read.end_line", "must not be before start_line"));
            }
            ReadPart::Lines { first, last: request.end_line }
        }
        (false, true) => ReadPart::Bytes { offset: request.offset.unwrap_or(0), limit: request.limit },
        (false, false) => ReadPart::Whole,
    };
    Ok(Read { path, part, encoding: encoding("read.encoding", request.encoding)? })
}

fn list(request: &v1::ListRequest) -> Result<List, Malformed> {
    Ok(List {
        path: path_or_root("list.path", &request.path)?,
        depth: within("list.depth", request.depth, 1, 1, 16)?,
        include_hidden: request.include_hidden,
        include_symlinks: request.include_symlinks,
        max_entries: within("list.max_entries", request.max_entries, 200, 1, 10_000)?,
    })
}

fn glob(request: v1::GlobRequest) -> Result<Glob, Malformed> {
    text("glob.pattern", &request.pattern, 1, MAX_GLOB)?;
    Ok(Glob {
        path: path_or_root("glob.path", &request.path)?,
        pattern: request.pattern,
        include_ignored: request.include_ignored,
        max_results: within("glob.max_results", request.max_results, 200, 1, 10_000)?,
    })
}

fn grep(request: v1::GrepRequest) -> Result<Grep, Malformed> {
    text("grep.pattern", &request.pattern, 1, MAX_PATTERN)?;
    text("grep.glob", &request.glob, 0, MAX_GLOB)?;
    let (pattern, regex, case_insensitive) = slashed(&request);
    text("grep.pattern", &pattern, 1, MAX_PATTERN)?;
    Ok(Grep {
        path: path_or_root("grep.path", &request.path)?,
        pattern,
        regex,
        case_insensitive,
        before: within("grep.before", request.before, 1, 0, 20)?,
        after: within("grep.after", request.after, 1, 0, 20)?,
        glob: Some(request.glob).filter(|glob| !glob.is_empty()),
        max_matches: within("grep.max_matches", request.max_matches, 50, 1, 1_000)?,
        include_ignored: request.include_ignored,
    })
}

/// `/…/` and `/…/i` are regular expressions, whatever `regex` says.
fn slashed(request: &v1::GrepRequest) -> (String, bool, bool) {
    let inner = request.pattern.strip_prefix('/').and_then(|rest| {
        let (rest, ignore_case) = rest.strip_suffix("/i").map_or((rest, false), |rest| (rest, true));
        if ignore_case { Some((rest, true)) } else { rest.strip_suffix('/').map(|rest| (rest, false)) }
    });
    match inner {
        Some((inner, ignore_case)) if !inner.is_empty() => {
            (inner.to_owned(), true, ignore_case || request.case_insensitive)
        }
        _ => (request.pattern.clone(), request.regex, request.case_insensitive),
    }
}

fn exec(request: v1::ExecRequest) -> Result<Exec, Malformed> {
    let command = request.command;
    text("exec.command", &command, 1, 4_096)?;
    if command.contains('/') && !command.starts_with('/') {
        return Err(Malformed::new(
            "exec.command",
            "is a bare name such as `cargo` or an absolute path in the container",
        ));
    }
    if request.args.len() > MAX_ARGS || request.args.iter().map(String::len).sum::<usize>() > MAX_ARGV_BYTES {
        return Err(Malformed::new(
            "exec.args",
            format!("are more than {MAX_ARGS} or longer than {MAX_ARGV_BYTES} bytes together"),
        ));
    }
    if request.args.iter().any(|arg| arg.contains('\0')) {
        return Err(Malformed::new("exec.args", "contain a NUL byte"));
    }
    if request.env.len() > MAX_ENV {
        return Err(Malformed::new("exec.env", format!("has more than {MAX_ENV} variables")));
    }
    for (name, value) in &request.env {
        if !is_variable_name(name) {
            return Err(Malformed::new("exec.env", "has a name that is not [A-Za-z_][A-Za-z0-9_]*"));
        }
        text("exec.env", value, 0, 32 * 1024)?;
    }
    if request.stdin.len() > MAX_STDIN {
        return Err(Malformed::new("exec.stdin", format!("is longer than {MAX_STDIN} bytes")));
    }
    let timeout = request.timeout_ms.map_or(DEFAULT_TIMEOUT, Duration::from_millis);
    if timeout.is_zero() || timeout > MAX_TIMEOUT {
        return Err(Malformed::new("exec.timeout_ms", "must be from 1 to 120000"));
    }
    Ok(Exec {
        command,
        args: request.args,
        cwd: path_or_root("exec.cwd", &request.cwd)?,
        env: request.env.into_iter().collect(),
        stdin: request.stdin,
        timeout,
    })
}

fn is_variable_name(name: &str) -> bool {
    name.len() <= 256
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn write(request: v1::WriteRequest) -> Result<Write, Malformed> {
    let path = required_path("write.path", &request.path)?;
    let content = match encoding("write.encoding", request.encoding)? {
        Encoding::Utf8 => request.content.into_bytes(),
        Encoding::Base64 => ops::decode_base64(&request.content)
            .ok_or_else(|| Malformed::new("write.content", "is not RFC 4648 base64 with padding"))?,
    };
    if content.len() > MAX_CONTENT {
        return Err(Malformed::new("write.content", format!("is longer than {MAX_CONTENT} bytes")));
    }
    Ok(Write {
        path,
        content,
        if_match_sha256: sha256("write.if_match_sha256", request.if_match_sha256)?,
        create_only: request.create_only,
    })
}

fn edit(request: v1::EditRequest) -> Result<Edit, Malformed> {
    use v1::edit_request::Change;
    let path = required_path("edit.path", &request.path)?;
    let change =
        request.change.ok_or_else(|| Malformed::new("edit", "needs one of strReplace, create, insert"))?;
    let change = match change {
        Change::StrReplace(v1::StrReplace { old_str, new_str, replace_all }) => {
            long_text("edit.str_replace.old_str", &old_str)?;
            long_text("edit.str_replace.new_str", &new_str)?;
            if old_str.is_empty() {
                return Err(Malformed::new(
                    "edit.str_replace.old_str",
                    "is empty: give the text to replace, or use create or insert",
                ));
            }
            if old_str == new_str {
                return Err(Malformed::new(
                    "edit.str_replace",
                    "old_str and new_str are identical: nothing would change",
                ));
            }
            EditChange::StrReplace { old: old_str, new: new_str, replace_all }
        }
        Change::Create(v1::CreateFile { content }) => {
            long_text("edit.create.content", &content)?;
            EditChange::Create { content }
        }
        Change::Insert(v1::InsertText { after_line, text }) => {
            long_text("edit.insert.text", &text)?;
            EditChange::Insert { after_line, text }
        }
    };
    Ok(Edit { path, change, if_match_sha256: sha256("edit.if_match_sha256", request.if_match_sha256)? })
}

fn git(request: v1::GitRequest) -> Result<Git, Malformed> {
    use v1::git_request::Command;
    let command =
        request.command.ok_or_else(|| Malformed::new("git", "needs one of status, diff, add, commit"))?;
    Ok(match command {
        Command::Status(v1::GitStatus {}) => Git::Status,
        Command::Diff(v1::GitDiff { flags, paths }) => Git::Diff {
            flags: flags.iter().map(|flag| diff_flag(flag)).collect::<Result<_, _>>()?,
            paths: git_paths("git.diff.paths", &paths)?,
        },
        Command::Add(v1::GitAdd { paths }) => {
            if paths.is_empty() {
                return Err(Malformed::new(
                    "git.add.paths",
                    "is empty: name the files to add, or `.` for all",
                ));
            }
            Git::Add { paths: git_paths("git.add.paths", &paths)? }
        }
        Command::Commit(v1::GitCommit { message }) => {
            text("git.commit.message", &message, 1, MAX_MESSAGE)?;
            if message.trim().is_empty() {
                return Err(Malformed::new("git.commit.message", "is blank"));
            }
            Git::Commit { message }
        }
    })
}

fn diff_flag(flag: &str) -> Result<GitDiffFlag, Malformed> {
    GitDiffFlag::parse(flag).ok_or_else(|| {
        Malformed::new(
            "git.diff.flags",
            "may only be --cached --staged --stat --name-only --name-status --shortstat --numstat --no-color",
        )
    })
}

fn git_paths(field: &str, paths: &[String]) -> Result<Vec<SandboxPath>, Malformed> {
    if paths.len() > MAX_PATHS {
        return Err(Malformed::new(field, format!("has more than {MAX_PATHS} paths")));
    }
    let paths = paths.iter().map(|path| required_path(field, path)).collect::<Result<Vec<_>, _>>()?;
    if paths.iter().any(|path| path.mount() != jail::Mount::Project) {
        return Err(Malformed::new(field, "must be beneath @project, where the repository is"));
    }
    Ok(paths)
}

fn required_path(field: &str, path: &str) -> Result<SandboxPath, Malformed> {
    if path.is_empty() {
        return Err(Malformed::new(field, "is missing: give a path such as @project/src/main.rs"));
    }
    SandboxPath::parse(path).map_err(|refusal| Malformed {
        reason: Reason::SandboxViolation,
        field: field.to_owned(),
        message: refusal.to_string(),
    })
}

fn path_or_root(field: &str, path: &str) -> Result<SandboxPath, Malformed> {
    required_path(field, if path.is_empty() { "@project" } else { path })
}

fn encoding(field: &str, encoding: i32) -> Result<Encoding, Malformed> {
    match v1::ContentEncoding::try_from(encoding) {
        Ok(v1::ContentEncoding::Unspecified | v1::ContentEncoding::Utf8) => Ok(Encoding::Utf8),
        Ok(v1::ContentEncoding::Base64) => Ok(Encoding::Base64),
        Err(_) => Err(Malformed::new(field, "is unknown")),
    }
}

fn within(field: &str, value: Option<u32>, default: u32, least: u32, most: u32) -> Result<u32, Malformed> {
    let value = value.unwrap_or(default);
    if (least..=most).contains(&value) {
        Ok(value)
    } else {
        Err(Malformed::new(field, format!("must be from {least} to {most}")))
    }
}

fn text(field: &str, text: &str, least: usize, most: usize) -> Result<(), Malformed> {
    if text.len() < least {
        return Err(Malformed::new(field, "is missing"));
    }
    if text.len() > most {
        return Err(Malformed::new(field, format!("is longer than {most} bytes")));
    }
    if text.contains('\0') {
        return Err(Malformed::new(field, "contains a NUL byte"));
    }
    Ok(())
}

/// File content may hold NUL bytes.
fn long_text(field: &str, text: &str) -> Result<(), Malformed> {
    if text.len() > MAX_CONTENT {
        return Err(Malformed::new(field, format!("is longer than {MAX_CONTENT} bytes")));
    }
    Ok(())
}

fn sha256(field: &str, hash: String) -> Result<Option<String>, Malformed> {
    if hash.is_empty() {
        return Ok(None);
    }
    if hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)) {
        Ok(Some(hash))
    } else {
        Err(Malformed::new(field, "is not a SHA-256 in 64 lower-case hexadecimal digits"))
    }
}
