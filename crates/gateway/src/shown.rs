//! Text from an agent, as it may appear in a message: short, on one line, with nothing that a terminal would obey.

const MAX_CHARS: usize = 100;

/// `text` with control, invisible and quoting characters escaped, cut to [`MAX_CHARS`].
pub(crate) fn shown(text: &str) -> String {
    let mut out: String = text.chars().take(MAX_CHARS).flat_map(char::escape_debug).collect();
    if text.chars().nth(MAX_CHARS).is_some() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_short_and_harmless() {
        assert_eq!(shown("rm\n\u{1b}[2J\u{202e}"), "rm\\n\\u{1b}[2J\\u{202e}");
        assert_eq!(shown(&"é".repeat(101)), "é".repeat(100) + "…");
    }
}
