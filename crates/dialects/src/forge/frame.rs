//! The message with which a result goes back to the model.
//!
//! ```text
//! [forge:tool]
//! tool: bash
//! status: ok
//! exit_code: 0
//! --- stdout (3 bytes) ---
//! hi
//! --- stderr (0 bytes) ---
//!
//! [/forge:tool]
//! ```
//!
//! The text of a file or a command can neither close the frame nor open another. A backslash is inserted into each text that looks like a
//! mark (`[\/forge:tool]`), and [`read`] removes it again. Within the frame a section is as long as its head says, for any content.

use std::fmt::Write as _;

use text::one_line;

/// Line that begins a frame.
const OPEN: &str = "[forge:tool]";
/// Line that ends a frame.
const CLOSE: &str = "[/forge:tool]";
/// Common part of both marks, after the bracket and the slash.
const MARK: &str = "forge:";

/// Parsed frame.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Frame {
    /// Facts as `name: value`, both without line breaks.
    pub facts: Vec<(String, String)>,
    /// Texts by their names.
    pub sections: Vec<(String, String)>,
}

impl Frame {
    pub(super) fn new(tool: &str, status: &str) -> Self {
        Self::default().fact("tool", tool).fact("status", status)
    }

    #[must_use]
    #[allow(clippy::needless_pass_by_value)] // so that numbers and formatted texts need no reference
    pub(super) fn fact(mut self, name: &str, value: impl ToString) -> Self {
        self.facts.push((name.to_owned(), one_line(&value.to_string()).into_owned()));
        self
    }

    #[must_use]
    pub(super) fn section(mut self, name: &str, text: impl Into<String>) -> Self {
        self.sections.push((name.to_owned(), text.into()));
        self
    }

    /// Returns the value of the first fact with this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.facts.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns the text of the section with this name.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.sections.iter().find(|(key, _)| key == name).map(|(_, text)| text.as_str())
    }

    /// Returns the frame as the model receives it.
    pub fn write(&self) -> String {
        let mut inner = String::new();
        for (name, value) in &self.facts {
            // Writing to a string cannot fail.
            let _ = writeln!(inner, "{name}: {value}");
        }
        for (name, text) in &self.sections {
            let _ = writeln!(inner, "--- {name} ({} bytes) ---\n{text}", text.len());
        }
        format!("{OPEN}\n{}{CLOSE}\n", escape(&inner))
    }
}

/// Parses a message that is one frame; returns `None` for any other.
pub fn read(message: &str) -> Option<Frame> {
    let escaped = message.strip_prefix(OPEN)?.strip_prefix('\n')?.strip_suffix('\n')?.strip_suffix(CLOSE)?;
    if escaped.contains(OPEN) || escaped.contains(CLOSE) {
        return None;
    }
    let inner = unescape(escaped);
    let mut rest = inner.as_str();
    let mut frame = Frame::default();
    while !rest.is_empty() {
        let (line, behind) = rest.split_once('\n')?;
        if let Some((name, length)) = section_head(line) {
            let text = behind.get(..length)?;
            rest = behind.get(length..)?.strip_prefix('\n')?;
            frame.sections.push((name.to_owned(), text.to_owned()));
        } else {
            // Facts come first.
            if !frame.sections.is_empty() {
                return None;
            }
            let (name, value) = line.split_once(": ")?;
            frame.facts.push((name.to_owned(), value.to_owned()));
            rest = behind;
        }
    }
    Some(frame)
}

/// Parses a line such as `--- stdout (3 bytes) ---`.
fn section_head(line: &str) -> Option<(&str, usize)> {
    let (name, length) = line.strip_prefix("--- ")?.strip_suffix(" bytes) ---")?.rsplit_once(" (")?;
    Some((name, length.parse().ok()?))
}

/// Inserts one more backslash into each text that looks like a mark, with or without backslashes.
fn escape(text: &str) -> String {
    with_marks(text, |escaped, backslashes| {
        escaped.push('\\');
        escaped.push_str(backslashes);
    })
}

/// Removes one backslash from each.
fn unescape(text: &str) -> String {
    with_marks(text, |plain, backslashes| plain.push_str(backslashes.get(1..).unwrap_or_default()))
}

/// Copies `text`. In each mark (`[`, backslashes, an optional `/`, `forge:`), `change` writes the backslashes.
fn with_marks(text: &str, change: impl Fn(&mut String, &str)) -> String {
    let mut copy = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('[') {
        let (before, behind) = rest.split_at(at + 1);
        copy.push_str(before);
        let tail = behind.trim_start_matches('\\');
        let backslashes = &behind[..behind.len() - tail.len()];
        if tail.strip_prefix('/').unwrap_or(tail).starts_with(MARK) {
            change(&mut copy, backslashes);
        } else {
            copy.push_str(backslashes);
        }
        rest = tail;
    }
    copy.push_str(rest);
    copy
}
