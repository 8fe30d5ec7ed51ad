//! The position at which to continue after a read that was cut, for use in every dialect.

use std::fmt::Write as _;

use operations::ReadResult;

/// Rest of a file after a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// No rest: everything requested was returned.
    None,
    /// The requested position is beyond the end of the file.
    BeyondEnd,
    /// Continue with this line, the last one that was shown: it may have been cut.
    From(u64),
    /// Not even the first line fits.
    InLine,
}

impl Rest {
    /// Returns the rest after a result that is text.
    pub(crate) fn of(result: &ReadResult) -> Self {
        match result.truncated {
            true if result.end_line > result.start_line => Self::From(result.end_line),
            true => Self::InLine,
            false if result.content.is_empty() && result.size_bytes > 0 => Self::BeyondEnd,
            false => Self::None,
        }
    }
}

/// Returns lines with their numbers, like `cat -n`. Only a line feed ends a line.
pub(crate) fn numbered(result: &ReadResult) -> String {
    let mut text = String::new();
    let lines = result.content.strip_suffix('\n').unwrap_or(&result.content).split('\n');
    for (number, line) in (result.start_line.max(1)..).zip(lines) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{number:6}\t{line}");
    }
    text
}
