//! Outcomes as the editor's plain text.

use std::fmt::Write as _;

use operations::{EditChange, EditResult, OpResult, Operation, Outcome, ReadResult};

use crate::canonical::render_canonical;
use crate::entries::entries;
use crate::reading::{Rest, numbered};
use text::one_line;

/// Renders an outcome. Results of operations that no tool of this dialect makes are rendered canonically.
pub(super) fn render(operation: Option<&Operation>, outcome: &Outcome) -> String {
    match outcome {
        Ok(OpResult::Read(result)) => read(result),
        Ok(OpResult::List(result)) => entries(result, "", "view a subdirectory").0,
        Ok(OpResult::Edit(result)) => edit(operation, result),
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
        Rest::BeyondEnd => return format!("(nothing there: the file has {} lines)", result.total_lines),
        Rest::None => None,
        Rest::InLine => Some("this line alone is too long to be shown whole".to_owned()),
        Rest::From(line) => Some(format!("go on with view_range [{line}, -1]")),
    };
    let mut text = numbered(result);
    if let Some(rest) = rest {
        let ReadResult { size_bytes, total_lines, .. } = result;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "[truncated: the file has {size_bytes} bytes in {total_lines} lines; {rest}]");
    }
    text
}

fn edit(operation: Option<&Operation>, result: &EditResult) -> String {
    let path = one_line(&result.path);
    let what = match operation {
        Some(Operation::Edit(edit)) => match edit.change {
            EditChange::Create { .. } => return format!("File created successfully at: {path}"),
            EditChange::StrReplace { .. } => "The text was replaced",
            EditChange::Insert { .. } => "The text was inserted",
        },
        _ => "The file was edited",
    };
    let cut = if result.diff_truncated { "\n[the diff is longer]" } else { "" };
    format!("{what} in {path}\n{}{cut}", result.diff)
}
