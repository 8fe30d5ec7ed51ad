//! Where to go on after a read that was cut, in terms that every dialect has words for.

use std::fmt::Write as _;

use ops::ReadResult;

/// What is left to do for the reader of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Nothing: this is all that was asked for.
    None,
    /// There is nothing at that place: the file is shorter.
    BeyondEnd,
    /// Go on with this line. It is the last one that was shown, for it may have been cut.
    From(u64),
    /// Not even the first line fits.
    InLine,
}

impl Rest {
    /// Of a result that is text.
    pub(crate) fn of(result: &ReadResult) -> Self {
        match result.truncated {
            true if result.end_line > result.start_line => Self::From(result.end_line),
            true => Self::InLine,
            false if result.content.is_empty() && result.size_bytes > 0 => Self::BeyondEnd,
            false => Self::None,
        }
    }
}

/// Lines with their numbers, as `cat -n` numbers them. A line's end is a line feed and nothing else.
pub(crate) fn numbered(result: &ReadResult) -> String {
    let mut text = String::new();
    let lines = result.content.strip_suffix('\n').unwrap_or(&result.content).split('\n');
    for (number, line) in (result.start_line.max(1)..).zip(lines) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{number:6}\t{line}");
    }
    text
}
