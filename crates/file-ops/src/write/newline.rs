//! Line endings: a model writes `\n`, the file may use `\r\n`.

/// Line endings of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Newlines {
    /// `\n`, or no line ending at all.
    Lf,
    /// `\r\n` throughout.
    Crlf,
    /// Both.
    Mixed,
}

impl Newlines {
    pub(super) fn of(text: &str) -> Self {
        let all = text.matches('\n').count();
        match text.matches("\r\n").count() {
            0 => Self::Lf,
            crlf if crlf == all => Self::Crlf,
            _ => Self::Mixed,
        }
    }

    /// Converts `text` to these line endings. Text with a `\r` stays, because its author took care of the line endings.
    pub(super) fn fit(self, text: &str) -> String {
        if self == Self::Crlf && !text.contains('\r') { text.replace('\n', "\r\n") } else { text.to_owned() }
    }

    /// Returns the line ending for an added line.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Crlf => "\r\n",
            Self::Lf | Self::Mixed => "\n",
        }
    }
}

/// Returns the 1-based lines of offsets in ascending order.
pub(super) fn line_numbers(text: &str, positions: &[usize]) -> Vec<u64> {
    let (mut line, mut at) = (1, 0);
    positions
        .iter()
        .map(|&position| {
            line += text[at..position].matches('\n').count() as u64;
            at = position;
            line
        })
        .collect()
}
