//! Where to go on after a read that was cut, in terms that every dialect has words for.

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
