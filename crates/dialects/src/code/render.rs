//! Outcomes as plain text.

use std::fmt::Write as _;

use operations::{
    EditResult, ExecResult, FileChange, GlobResult, GrepResult, OpResult, Operation, Outcome, PatchResult,
    ProcessResult, ReadResult, WriteResult,
};
use text::one_line;

use super::{checkpoint, in_container, snippet};
use crate::canonical::render_canonical;
use crate::entries::entries;
use crate::limits::grouped;
use crate::native;
use crate::reading::{Rest, numbered};
use crate::remark::remark;

/// Renders an outcome. Results of operations that no tool of this dialect makes are rendered canonically.
pub(super) fn render(operation: Option<&Operation>, outcome: &Outcome) -> String {
    match outcome {
        Ok(OpResult::Read(result)) => read(result),
        Ok(OpResult::List(result)) => entries(result, "", "read a subdirectory, or use glob").0,
        Ok(OpResult::Glob(result)) => glob(result),
        Ok(OpResult::Grep(result)) => grep(operation, result),
        Ok(OpResult::Exec(result) | OpResult::Shell(result)) => command(operation, result),
        Ok(OpResult::Write(result)) => write(result),
        Ok(OpResult::Edit(result)) => edit(result),
        Ok(OpResult::Patch(result)) => patch(result),
        Ok(OpResult::Process(result)) => process(result),
        Ok(OpResult::Checkpoint(result)) => checkpoint::render(result),
        Ok(OpResult::Git(_) | OpResult::Mcp(_)) => native::render_outcome(operation, outcome),
        Ok(OpResult::Delete(_) | OpResult::Session(_)) => render_canonical(outcome),
        Err(failure) => format!("Error: {}", failure.message),
    }
}

fn read(result: &ReadResult) -> String {
    let ReadResult { size_bytes, total_lines, .. } = result;
    if result.binary {
        return format!("(binary file: {size_bytes} bytes, sha256 {})", result.sha256);
    }
    let rest = match Rest::of(result) {
        Rest::None if result.content.is_empty() => return "(empty file)".to_owned(),
        Rest::BeyondEnd => return format!("(nothing there: the file has {total_lines} lines)"),
        Rest::None if result.end_line > 0 && result.end_line < *total_lines => {
            return format!("{}[the file has {total_lines} lines]\n", numbered(result));
        }
        Rest::None => return numbered(result),
        Rest::InLine => "this line alone is too long to be shown whole; search it with grep".to_owned(),
        Rest::From(line) => format!("go on with offset {line}, or search it with grep"),
    };
    format!(
        "{}[truncated: the file has {size_bytes} bytes in {total_lines} lines; {rest}]\n",
        numbered(result)
    )
}

fn glob(result: &GlobResult) -> String {
    let mut text = String::new();
    if result.paths.is_empty() {
        text.push_str("(no files found)");
    }
    for path in &result.paths {
        text.push_str(&in_container(path));
        text.push('\n');
    }
    let shown = result.paths.len();
    let more =
        result.truncated.then(|| format!("[stopped after {shown} paths; narrow the pattern or the path]"));
    remark(&mut text, &result.hint, result.paths.is_empty(), more);
    text
}

fn grep(operation: Option<&Operation>, result: &GrepResult) -> String {
    let paths_alone = matches!(operation, Some(Operation::Grep(grep)) if grep.one_per_file);
    let mut text = String::new();
    if paths_alone {
        for found in &result.matches {
            text.push_str(&in_container(&found.path));
            text.push('\n');
        }
    } else {
        text = native::render_matches(&result.matches, in_container);
    }
    if result.matches.is_empty() {
        text.push_str("(no matches found)");
    }
    let (shown, noun) = (result.matches.len(), if paths_alone { "files" } else { "matches" });
    let more = result.truncated.then(|| {
        format!("[stopped after {shown} {noun}; narrow the pattern or the path, or raise head_limit]")
    });
    remark(&mut text, &result.hint, result.matches.is_empty(), more);
    text
}

/// Renders the output, followed by the way in which the command ended.
fn command(operation: Option<&Operation>, result: &ExecResult) -> String {
    let mut text = result.stdout.clone();
    if !result.stderr.is_empty() {
        note(&mut text, "[stderr]");
        text.push('\n');
        text.push_str(&result.stderr);
    }
    if text.is_empty() {
        text.push_str("(no output)");
    }
    let left_out = result.stdout_omitted_bytes.saturating_add(result.stderr_omitted_bytes);
    if left_out > 0 {
        let left_out = grouped(left_out);
        let how =
            "to see them send the output to a file, such as > /state/out.txt 2>&1, and read parts of it";
        note(&mut text, &format!("[truncated: {left_out} bytes of the middle are left out; {how}]"));
    }
    if result.timed_out {
        let after = operation.and_then(Operation::command_timeout);
        let after = after.map_or_else(String::new, |after| format!(" after {} seconds", after.as_secs_f64()));
        note(&mut text, &format!("[timed out{after}: it and all that it started were ended]"));
    } else {
        let by = result.ended_by().word().map_or_else(String::new, |by| format!(" ({by})"));
        let ended = match (result.exit_code, result.signal) {
            (_, Some(signal)) => format!("[ended by signal {signal}{by}]"),
            (Some(code), None) => format!("[exit code {code}{by}]"),
            (None, None) => "[ended without an exit code]".to_owned(),
        };
        note(&mut text, &ended);
        if let Some((_, happened)) = operations::cut_short_by(result) {
            note(&mut text, &format!("[cut short: {happened}]"));
        }
    }
    if !result.hint.is_empty() {
        note(&mut text, &format!("[{}]", result.hint));
    }
    text
}

/// Adds `note` to `text` as a separate line.
fn note(text: &mut String, note: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(note);
}

fn write(result: &WriteResult) -> String {
    let verb = if result.created { "Created" } else { "Wrote" };
    format!("{verb} {} ({} bytes)", in_container(&result.path), grouped(result.bytes_written))
}

fn edit(result: &EditResult) -> String {
    let path = in_container(&result.path);
    let places = match result.replacements {
        0 | 1 => String::new(),
        many => format!(" in {many} places"),
    };
    let lines = snippet::of(&result.diff);
    let cut = if result.diff_truncated { "[more lines have changed]\n" } else { "" };
    format!("Edited {path}{places}. The lines are now:\n{lines}{cut}")
}

fn patch(result: &PatchResult) -> String {
    let mut text = "Applied the patch:\n".to_owned();
    for file in &result.files {
        let path = in_container(&file.path);
        let _ = match file.change() {
            FileChange::Created => writeln!(text, "A {path}"),
            FileChange::Deleted => writeln!(text, "D {path}"),
            FileChange::Moved => writeln!(text, "R {} -> {path}", in_container(&file.moved_from)),
            FileChange::Updated | FileChange::Unspecified => writeln!(text, "M {path}"),
        };
    }
    for said in &result.notes {
        let _ = writeln!(text, "[{}]", one_line(said));
    }
    text
}

fn process(result: &ProcessResult) -> String {
    let id = &result.process_id;
    format!("Started process {id}. Its output: process {{\"action\": \"output\", \"process_id\": \"{id}\"}}")
}
