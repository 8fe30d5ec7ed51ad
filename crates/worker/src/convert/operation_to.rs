//! [`Operation`] → `cofferdam.v1.Operation`, for the worker and for what a reviewer sees.

use ops::{
    Delete, Edit, EditChange, Exec, FrontMatter, Git, Glob, Grep, List, Mcp, Operation, Patch, PatchChange,
    Read, ReadPart, Shell, Write,
};
use wire::v1::{self, operation::Kind};

/// As the worker gets it; parses back to the same operation.
pub fn operation_to_wire(operation: &Operation) -> v1::Operation {
    let kind = match operation {
        Operation::Read(read) => Kind::Read(read_to(read)),
        Operation::List(list) => Kind::List(list_to(list)),
        Operation::Glob(glob) => Kind::Glob(glob_to(glob)),
        Operation::Grep(grep) => Kind::Grep(grep_to(grep)),
        Operation::Exec(exec) => Kind::Exec(exec_to(exec)),
        Operation::Shell(shell) => Kind::Shell(shell_to(shell)),
        Operation::Write(write) => Kind::Write(write_to(write)),
        Operation::Edit(edit) => Kind::Edit(edit_to(edit)),
        Operation::Patch(patch) => Kind::Patch(patch_to(patch)),
        Operation::Delete(delete) => Kind::Delete(delete_to(delete)),
        Operation::Git(git) => Kind::Git(git_to(git)),
        Operation::Mcp(mcp) => Kind::Mcp(mcp_to(mcp)),
    };
    v1::Operation { kind: Some(kind) }
}

fn read_to(read: &Read) -> v1::ReadRequest {
    let mut request = v1::ReadRequest {
        path: read.path.to_string(),
        encoding: super::outcome_to::encoding(read.encoding),
        ..Default::default()
    };
    match read.part {
        ReadPart::Whole => {}
        ReadPart::Lines { first, last } => {
            request.start_line = Some(first);
            request.end_line = last;
        }
        ReadPart::Bytes { offset, limit } => {
            request.offset = Some(offset);
            request.limit = limit;
        }
    }
    request
}

fn list_to(list: &List) -> v1::ListRequest {
    v1::ListRequest {
        path: list.path.to_string(),
        depth: Some(list.depth),
        include_hidden: list.include_hidden,
        include_symlinks: list.include_symlinks,
        max_entries: Some(list.max_entries),
    }
}

fn glob_to(glob: &Glob) -> v1::GlobRequest {
    v1::GlobRequest {
        path: glob.path.to_string(),
        pattern: glob.pattern.clone(),
        include_ignored: glob.include_ignored,
        max_results: Some(glob.max_results),
    }
}

fn grep_to(grep: &Grep) -> v1::GrepRequest {
    // Between slashes stands a regular expression: one that has slashes of its own there would lose them. A literal never
    // looks like that, since `ops::raw` has taken it for a regular expression before.
    let pattern = match grep.pattern.strip_prefix('/') {
        Some(rest) if grep.regex && ["/", "/i"].iter().any(|end| rest.ends_with(end)) => format!("[/]{rest}"),
        _ => grep.pattern.clone(),
    };
    v1::GrepRequest {
        path: grep.path.to_string(),
        pattern,
        regex: grep.regex,
        case_insensitive: grep.case_insensitive,
        before: Some(grep.before),
        after: Some(grep.after),
        glob: grep.glob.clone().unwrap_or_default(),
        max_matches: Some(grep.max_matches),
        include_ignored: grep.include_ignored,
    }
}

fn exec_to(exec: &Exec) -> v1::ExecRequest {
    v1::ExecRequest {
        command: exec.command.clone(),
        args: exec.args.clone(),
        cwd: exec.cwd.to_string(),
        env: exec.env.clone().into_iter().collect(),
        stdin: exec.stdin.clone(),
        timeout_ms: u64::try_from(exec.timeout.as_millis()).ok(),
        only_reads: exec.only_reads,
    }
}

fn shell_to(shell: &Shell) -> v1::ShellRequest {
    v1::ShellRequest {
        script: shell.script.clone(),
        cwd: shell.cwd.to_string(),
        env: shell.env.clone(),
        stdin: shell.stdin.clone(),
        timeout_ms: Some(u64::try_from(shell.timeout.as_millis()).unwrap_or(u64::MAX)),
    }
}

fn write_to(write: &Write) -> v1::WriteRequest {
    let (content, encoding) = match std::str::from_utf8(&write.content) {
        Ok(text) => (text.to_owned(), ops::Encoding::Utf8),
        Err(_) => (ops::encode_base64(&write.content), ops::Encoding::Base64),
    };
    v1::WriteRequest {
        path: write.path.to_string(),
        content,
        if_match_sha256: write.if_match_sha256.clone().unwrap_or_default(),
        create_only: write.create_only,
        encoding: super::outcome_to::encoding(encoding),
    }
}

fn edit_to(edit: &Edit) -> v1::EditRequest {
    use v1::edit_request::Change;
    let change = match &edit.change {
        EditChange::StrReplace { old, new, replace_all } => Change::StrReplace(v1::StrReplace {
            old_str: old.clone(),
            new_str: new.clone(),
            replace_all: *replace_all,
        }),
        EditChange::Create { content } => Change::Create(v1::CreateFile { content: content.clone() }),
        EditChange::Insert { after_line, text } => {
            Change::Insert(v1::InsertText { after_line: *after_line, text: text.clone() })
        }
    };
    v1::EditRequest {
        path: edit.path.to_string(),
        change: Some(change),
        if_match_sha256: edit.if_match_sha256.clone().unwrap_or_default(),
    }
}

fn patch_to(patch: &Patch) -> v1::PatchRequest {
    use v1::patch_request::Change;
    let change = match patch.change() {
        PatchChange::Unified(diff) => Change::UnifiedDiff(diff.clone()),
        PatchChange::Envelope(envelope) => Change::Envelope(envelope.clone()),
        PatchChange::FrontMatter(update) => Change::UpdateFrontmatter(front_matter_to(update)),
    };
    v1::PatchRequest { change: Some(change) }
}

fn front_matter_to(update: &FrontMatter) -> v1::UpdateFrontmatter {
    v1::UpdateFrontmatter {
        path: update.path.to_string(),
        if_match_sha256: update.if_match_sha256.clone().unwrap_or_default(),
        steps_completed_append: update.steps_completed_append.clone(),
        variables_set_json: update.variables_json(),
        decision_log_append_json: update.decisions_json(),
        artifacts_append: update.artifacts_append.clone(),
        current_node_id: update.current_node_id.clone(),
        updated_at: update.updated_at.clone(),
    }
}

fn delete_to(delete: &Delete) -> v1::DeleteRequest {
    v1::DeleteRequest {
        path: delete.path.to_string(),
        if_match_sha256: delete.if_match_sha256.clone().unwrap_or_default(),
    }
}

fn git_to(git: &Git) -> v1::GitRequest {
    use v1::git_request::Command;
    let strings = |paths: &[jail::SandboxPath]| paths.iter().map(ToString::to_string).collect();
    let command = match git {
        Git::Status => Command::Status(v1::GitStatus {}),
        Git::Diff { flags, paths } => Command::Diff(v1::GitDiff {
            flags: flags.iter().map(|flag| flag.as_str().to_owned()).collect(),
            paths: strings(paths),
        }),
        Git::Log { flags, max_count, revisions, paths } => Command::Log(v1::GitLog {
            flags: flags.iter().map(|flag| flag.as_str().to_owned()).collect(),
            max_count: Some(*max_count),
            revision: revisions.to_string(),
            paths: strings(paths),
        }),
        Git::Show { flags, revision, file, paths } => Command::Show(v1::GitShow {
            flags: flags.iter().map(|flag| flag.as_str().to_owned()).collect(),
            revision: match file {
                Some(file) => format!("{revision}:{file}"),
                None => revision.to_string(),
            },
            paths: strings(paths),
        }),
        Git::Add { paths } => Command::Add(v1::GitAdd { paths: strings(paths) }),
        Git::Commit { message } => Command::Commit(v1::GitCommit { message: message.clone() }),
    };
    v1::GitRequest { command: Some(command) }
}

fn mcp_to(mcp: &Mcp) -> v1::McpRequest {
    v1::McpRequest {
        server: mcp.tool.server().to_owned(),
        tool: mcp.tool.tool().to_owned(),
        arguments_json: mcp.arguments_json(),
    }
}
