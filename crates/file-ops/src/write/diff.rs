//! Unified diffs that always end: the algorithm has a deadline, and beyond the size limit the sink only counts.

use std::fmt::{self, Write as _};
use std::time::Duration;

use jail::SandboxPath;
use similar::TextDiff;

/// Time after which the diff is correct but no longer minimal.
const TIME: Duration = Duration::from_millis(500);
const CONTEXT: usize = 3;
/// Most lines of both sides together: the algorithm takes up to 60 bytes for each.
const MAX_LINES: usize = 1 << 22;

/// Unified diff, possibly cut.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Diff {
    pub(super) text: String,
    /// Bytes that did not fit.
    pub(super) left_out: usize,
}

impl Diff {
    pub(super) fn is_cut(&self) -> bool {
        self.left_out > 0
    }

    /// Returns the text, with a last line that says how much is missing. In a unified diff a line that begins with a backslash is a
    /// remark.
    pub(super) fn noted(mut self) -> String {
        if self.is_cut() {
            let newline = if self.text.is_empty() || self.text.ends_with('\n') { "" } else { "\n" };
            // Writing to a string cannot fail.
            let _ = writeln!(self.text, "{newline}\\ {} more bytes of this diff are left out", self.left_out);
        }
        self.text
    }
}

/// Returns the change from `old` (`None`: the file did not exist) to `new`, in at most about `most` bytes.
///
/// Lines end at `\n` only, as for git and patch.
pub(super) fn unified(path: &SandboxPath, old: Option<&str>, new: &str, most: u64) -> Diff {
    between(old.map(|old| (path, old)), Some((path, new)), most)
}

/// Returns the change from one file to another; `None` is no file.
pub(super) fn between(
    old: Option<(&SandboxPath, &str)>,
    new: Option<(&SandboxPath, &str)>,
    most: u64,
) -> Diff {
    let count = |side: Option<(&SandboxPath, &str)>| side.map_or(0, |(_, text)| text.matches('\n').count());
    if let Some((path, _)) = new.or(old)
        && count(old) + count(new) > MAX_LINES
    {
        let size = |side: Option<(&SandboxPath, &str)>| side.map(|(_, text)| text.len() as u64);
        return sizes(path, size(old), size(new));
    }
    let name = |side: Option<(&SandboxPath, &str)>| {
        side.map_or_else(|| "/dev/null".to_owned(), |(path, _)| header_name(path))
    };
    let lines: [Vec<&str>; 2] =
        [old, new].map(|side| side.map_or("", |(_, text)| text).split_inclusive('\n').collect());
    let diff = TextDiff::configure().timeout(TIME).newline_terminated(true).diff_slices(&lines[0], &lines[1]);
    let mut sink = Sink::new(most);
    // Writing to the sink cannot fail.
    let _ = write!(sink, "--- {}\n+++ {}\n", name(old), name(new));
    let _ = write!(sink, "{}", diff.unified_diff().context_radius(CONTEXT));
    Diff { text: sink.text, left_out: sink.left_out }
}

/// Returns one line with the sizes, in place of a diff, if one side is too long or no text.
pub(super) fn sizes(path: &SandboxPath, old: Option<u64>, new: Option<u64>) -> Diff {
    let size = |size: Option<u64>| size.map_or_else(|| "no file".to_owned(), |size| format!("{size} bytes"));
    let text = format!("Binary or very long: {} from {} to {}\n", header_name(path), size(old), size(new));
    Diff { text, left_out: 0 }
}

/// Returns the name for a header. A name that could forge a line of the diff is quoted, as git does.
fn header_name(path: &SandboxPath) -> String {
    let name = path.to_string();
    if name.contains(char::is_control) { format!("{name:?}") } else { name }
}

struct Sink {
    text: String,
    most: usize,
    left_out: usize,
}

impl Sink {
    fn new(most: u64) -> Self {
        Self { text: String::new(), most: usize::try_from(most).unwrap_or(usize::MAX), left_out: 0 }
    }
}

impl fmt::Write for Sink {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let space = if self.left_out > 0 { 0 } else { self.most.saturating_sub(self.text.len()) };
        let taken = (0..=space.min(text.len())).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
        self.text.push_str(&text[..taken]);
        self.left_out += text.len() - taken;
        Ok(())
    }
}
