//! Line endings: a model writes `\n`, the file may not.

/// How the lines of a text end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Newlines {
    /// `\n`, or there is none.
    Lf,
    /// `\r\n`, all of them.
    Crlf,
    /// Some of each.
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

    /// `text` for a file with these line endings. Whoever writes `\r` knows what they are, so that such text stays.
    pub(super) fn fit(self, text: &str) -> String {
        if self == Self::Crlf && !text.contains('\r') { text.replace('\n', "\r\n") } else { text.to_owned() }
    }

    /// What ends a line that is added.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Crlf => "\r\n",
            Self::Lf | Self::Mixed => "\n",
        }
    }
}

/// The 1-based lines of positions in ascending order.
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
