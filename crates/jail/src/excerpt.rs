//! How text from outside appears in a message: short, on one line, with nothing that a terminal would obey.

/// Characters of a path that a message repeats at most.
const MAX_CHARS: usize = 200;

/// `text` with control and direction-changing characters escaped, cut to 200 characters.
pub fn excerpt(text: &str) -> String {
    let mut shown = String::with_capacity(text.len().min(MAX_CHARS));
    for (count, c) in text.chars().enumerate() {
        if count == MAX_CHARS {
            shown.push('…');
            break;
        }
        if c.is_control() || is_direction_mark(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

const fn is_direction_mark(c: char) -> bool {
    matches!(c, '\u{061C}' | '\u{200E}' | '\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_cannot_forge_a_line() {
        assert_eq!(excerpt("a\nb\x1b[2J\u{202E}c"), "a\\nb\\u{1b}[2J\\u{202e}c");
    }

    #[test]
    fn long_text_is_cut() {
        assert_eq!(excerpt(&"é".repeat(300)), "é".repeat(200) + "…");
    }
}
