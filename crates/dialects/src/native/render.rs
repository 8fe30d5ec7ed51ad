//! Outcomes as plain text.

use operations::{
    EditChange, EditResult, EndedBy, ExecResult, GitResult, GrepResult, ListResult, McpContent, McpResult,
    OpResult, Operation, Outcome, ReadResult,
};
use wire::v1::mcp_content::Type;

use super::matches;
use crate::canonical::render_canonical;
use crate::entries::entries;
use crate::reading::Rest;
use crate::remark::remark;
use text::one_line;

/// Renders an outcome. Results of operations that no tool of this dialect makes are rendered canonically.
pub(crate) fn render(operation: Option<&Operation>, outcome: &Outcome) -> String {
    match outcome {
        Ok(OpResult::Read(result)) => read(result),
        Ok(OpResult::List(result)) => list(result),
        Ok(OpResult::Grep(result)) => grep(result),
        Ok(OpResult::Exec(result) | OpResult::Shell(result)) => exec(operation, result),
        Ok(OpResult::Edit(result)) => edit(operation, result),
        Ok(OpResult::Git(result)) => git(result),
        Ok(OpResult::Mcp(result)) => mcp(result),
        Ok(_) => render_canonical(outcome),
        Err(failure) => format!("Error: {}", failure.message),
    }
}

fn read(result: &ReadResult) -> String {
    if result.binary {
        return format!("(binary file: {} bytes, sha256 {})", result.size_bytes, result.sha256);
    }
    let rest = match Rest::of(result) {
        Rest::None if result.content.is_empty() => return "(empty)".to_owned(),
        Rest::None => return result.content.clone(),
        Rest::BeyondEnd => return format!("(nothing there: the file has {} lines)", result.total_lines),
        Rest::InLine => "this line alone is too long to be shown whole; search it with grep",
        Rest::From(line) => &format!("go on with start_line {line}, or search it with grep"),
    };
    let ReadResult { size_bytes, total_lines, .. } = result;
    let note = format!("[truncated: the file has {size_bytes} bytes in {total_lines} lines; {rest}]");
    with_notes(result.content.clone(), &[note])
}

fn list(result: &ListResult) -> String {
    let (mut text, remarked) = entries(result, "@", "list a subdirectory, or use grep");
    if remarked {
        text.pop();
    }
    text
}

fn grep(result: &GrepResult) -> String {
    let mut text = matches::render(&result.matches, |path| one_line(path).into_owned());
    if result.matches.is_empty() {
        text.push_str("(no matches found)");
    }
    let count = result.matches.len();
    let more =
        result.truncated.then(|| format!("[stopped after {count} matches; narrow the pattern or the path]"));
    if remark(&mut text, &result.hint, result.matches.is_empty(), more) {
        text.pop();
    }
    text
}

/// Renders the output, followed by notes on it.
fn exec(operation: Option<&Operation>, result: &ExecResult) -> String {
    let mut notes = Vec::new();
    for (stream, bytes) in [("stdout", result.stdout_omitted_bytes), ("stderr", result.stderr_omitted_bytes)]
    {
        if bytes > 0 {
            notes.push(format!("[{bytes} bytes of {stream} left out]"));
        }
    }
    match (result.timed_out, operation, result.exit_code, result.signal) {
        (true, ..) => notes.push(match operation.and_then(Operation::command_timeout) {
            Some(timeout) => format!("Error: Command timed out after {}s", timeout.as_secs_f64()),
            None => "Error: Command timed out".to_owned(),
        }),
        (false, _, _, Some(signal)) => {
            let by = result.ended_by().word().map_or_else(String::new, |by| format!(": {by}"));
            notes.push(format!("[ended by signal {signal}{by}]"));
        }
        (false, _, Some(0), _) if result.ended_by() == EndedBy::Unspecified => {}
        (false, _, Some(code), _) => notes.push(format!("[exit code {code}]")),
        (false, _, None, None) => notes.push("[ended without an exit code]".to_owned()),
    }
    if let Some((_, happened)) = operations::cut_short_by(result).filter(|_| !result.timed_out) {
        notes.push(format!("Error: {happened}"));
    }
    if !result.hint.is_empty() {
        notes.push(format!("[{}]", result.hint));
    }
    let mut text = result.stdout.clone();
    if !result.stderr.is_empty() {
        text = with_notes(text, &["[stderr]".to_owned()]);
        text.push('\n');
        text.push_str(&result.stderr);
    }
    if text.is_empty() && notes.is_empty() { "(no output)".to_owned() } else { with_notes(text, &notes) }
}

fn edit(operation: Option<&Operation>, result: &EditResult) -> String {
    let path = one_line(&result.path);
    let created = match operation {
        Some(Operation::Edit(edit)) => matches!(edit.change, EditChange::Create { .. }),
        _ => result.sha256_before.is_empty(),
    };
    if created {
        return format!("Created {path}");
    }
    let notes = if result.diff_truncated { vec!["[the diff is longer]".to_owned()] } else { Vec::new() };
    with_notes(format!("Edited {path}\n{}", result.diff), &notes)
}

fn git(result: &GitResult) -> String {
    if result.truncated {
        let note = format!("[{} bytes left out; name fewer paths]", result.omitted_bytes);
        return with_notes(result.output.clone(), &[note]);
    }
    if result.output.is_empty() { "(no output)".to_owned() } else { result.output.clone() }
}

/// Renders texts unchanged, and describes all other items. Structured content is rendered if there are no texts.
fn mcp(result: &McpResult) -> String {
    let mut text = String::new();
    for item in &result.content {
        let McpContent { data, mime_type, uri, name, is_base64, .. } = item;
        let shown = match item.r#type() {
            Type::Text | Type::Unspecified => data.clone(),
            Type::Image | Type::Audio => format!("[{}: {} bytes of base64]", one_line(mime_type), data.len()),
            Type::Resource if !is_base64 => format!("[{}]\n{data}", one_line(uri)),
            Type::Resource => {
                format!("[{}, {}: {} bytes of base64]", one_line(uri), one_line(mime_type), data.len())
            }
            Type::ResourceLink => format!("[{}: {}]", one_line(name), one_line(uri)),
        };
        text = with_notes(text, &[shown]);
    }
    if text.is_empty() {
        text.clone_from(&result.structured_content_json);
    }
    if result.truncated {
        let McpResult { omitted_bytes, omitted_items, .. } = result;
        return with_notes(text, &[format!("[{omitted_bytes} bytes left out, {omitted_items} items whole]")]);
    }
    if text.is_empty() { "(no output)".to_owned() } else { text }
}

/// Adds each of `notes` to `text` as a separate line.
fn with_notes(mut text: String, notes: &[String]) -> String {
    for note in notes {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(note);
    }
    text
}
