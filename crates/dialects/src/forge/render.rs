//! Outcomes as frames.

use std::fmt::Write as _;

use operations::{ExecResult, GlobResult, GrepResult, OpResult, Outcome, ReadResult, Reason, ToolFailure};

use super::PREFIX;
use super::frame::Frame;
use crate::canonical::{PENDING, render_canonical};
use crate::exec::render::timed_out;
use crate::made::Made;
use crate::reading::Rest;
use text::{excerpt, one_line};

/// Most bytes of one section.
const CLIP: usize = 16_384;

pub(super) fn render(made: &Made<'_>, outcome: &Outcome) -> String {
    let tool = excerpt(made.tool.strip_prefix(PREFIX).unwrap_or(made.tool));
    let frame = match outcome {
        Err(failure) => failed(&tool, made, failure),
        Ok(result) => done(Frame::new(&tool, status(result)), made, result, outcome),
    };
    frame.write()
}

pub(super) fn render_pending(made: &Made<'_>, approval_id: &str) -> String {
    let tool = excerpt(made.tool.strip_prefix(PREFIX).unwrap_or(made.tool));
    Frame::new(&tool, "pending").fact("approval", approval_id).section("message", PENDING).write()
}

/// Returns the status. A command that failed has an exit code as well.
fn status(result: &OpResult) -> &'static str {
    match result.command() {
        Some(command) if command.exit_code != Some(0) || operations::unfinished(command).is_some() => {
            "failed"
        }
        _ => "ok",
    }
}

fn done(frame: Frame, made: &Made<'_>, result: &OpResult, outcome: &Outcome) -> Frame {
    match result {
        OpResult::Exec(result) | OpResult::Shell(result) => command(frame, made, result),
        OpResult::Read(result) => read(frame, result),
        OpResult::Write(result) => frame
            .fact("path", &result.path)
            .fact("bytes", result.bytes_written)
            .fact("created", result.created),
        OpResult::Edit(result) => clipped(
            frame.fact("path", &result.path).fact("replacements", result.replacements),
            "diff",
            &result.diff,
        ),
        OpResult::Grep(result) => grep(frame, result),
        OpResult::Glob(result) => glob(frame, result),
        _ => clipped(frame, "result", &render_canonical(outcome)),
    }
}

fn failed(tool: &str, made: &Made<'_>, failure: &ToolFailure) -> Frame {
    // Without an operation the block itself was wrong: unreadable JSON has no argument to name.
    let status = match (made.operation.is_some(), failure.reason) {
        (false, Reason::InvalidArgument) if failure.details.contains_key("field") => "invalid_schema",
        (false, Reason::InvalidArgument) => "invalid_json",
        (false, Reason::NotFound) => "unknown_tool",
        _ => "failed",
    };
    let frame = Frame::new(tool, status).fact("code", failure.reason);
    let frame = clipped(frame, "error", &failure.message);
    if status.starts_with("invalid") {
        return frame.section("hint", "Fix the JSON or schema and try again.");
    }
    frame
}

fn command(mut frame: Frame, made: &Made<'_>, result: &ExecResult) -> Frame {
    if let Some(code) = result.exit_code {
        frame = frame.fact("exit_code", code);
    }
    if let Some(signal) = result.signal {
        frame = frame.fact("signal", signal);
    }
    if result.timed_out {
        frame = frame.fact("timed_out", true).fact("error", timed_out(made.operation));
    } else if let Some(failure) = operations::unfinished(result) {
        frame = frame.fact("code", failure.reason).fact("error", failure.message);
    }
    for (name, bytes) in
        [("stdout_left_out", result.stdout_omitted_bytes), ("stderr_left_out", result.stderr_omitted_bytes)]
    {
        if bytes > 0 {
            frame = frame.fact(name, format_args!("{bytes} bytes"));
        }
    }
    hinted(frame, &result.hint).section("stdout", &result.stdout).section("stderr", &result.stderr)
}

fn read(frame: Frame, result: &ReadResult) -> Frame {
    let frame =
        frame.fact("path", &result.path).fact("bytes", result.size_bytes).fact("lines", result.total_lines);
    if result.binary {
        return frame.fact("binary", true).section("content", "");
    }
    let (content, left_out) = clip(&result.content);
    let mut frame = frame;
    if result.start_line > 0 {
        frame = frame.fact("first_line", result.start_line).fact("last_line", result.end_line);
    }
    // Continue after the lines that were shown; a line that was cut is shown again.
    let shown_lines = content.matches('\n').count() as u64;
    let next = match Rest::of(result) {
        _ if left_out > 0 => Some(result.start_line.saturating_sub(1) + shown_lines),
        Rest::From(line) => Some(line.saturating_sub(1)),
        Rest::None if result.end_line > 0 && result.end_line < result.total_lines => Some(result.end_line),
        Rest::None | Rest::BeyondEnd | Rest::InLine => None,
    };
    if left_out > 0 {
        frame = frame.fact("left_out", format_args!("{left_out} bytes"));
    }
    if result.truncated || left_out > 0 {
        frame = frame.fact("truncated", true);
    }
    if let Some(next) = next {
        frame = frame.fact("next_offset", next);
    }
    frame.section("content", content)
}

fn grep(frame: Frame, result: &GrepResult) -> Frame {
    let mut hits = String::new();
    for found in &result.matches {
        // Writing to a string cannot fail.
        let _ = writeln!(hits, "{}:{}:{}", one_line(&found.path), found.line, found.text);
    }
    let frame = frame
        .fact("matches", result.matches.len())
        .fact("files_searched", result.files_searched)
        .fact("truncated", result.truncated);
    clipped(hinted(frame, &result.hint), "matches", &hits)
}

fn glob(frame: Frame, result: &GlobResult) -> Frame {
    let mut paths = String::new();
    for path in &result.paths {
        paths.push_str(&one_line(path));
        paths.push('\n');
    }
    let frame = frame.fact("paths", result.paths.len()).fact("truncated", result.truncated);
    clipped(hinted(frame, &result.hint), "paths", &paths)
}

fn hinted(frame: Frame, hint: &str) -> Frame {
    if hint.is_empty() { frame } else { frame.fact("hint", hint) }
}

/// Adds as much of the section as fits, and the number of missing bytes.
fn clipped(frame: Frame, name: &str, text: &str) -> Frame {
    let (text, left_out) = clip(text);
    let frame = if left_out > 0 { frame.fact("left_out", format_args!("{left_out} bytes")) } else { frame };
    frame.section(name, text)
}

/// Returns the beginning of a text, in whole characters, and the number of missing bytes.
fn clip(text: &str) -> (&str, usize) {
    let end = (0..=CLIP.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    let shown = &text[..end];
    (shown, text.len() - shown.len())
}
