//! Text from outside inside our own sentences and lines: on one line, with nothing that a terminal would obey.

use std::borrow::Cow;

const MAX_CHARS: usize = 200;

/// `text`, escaped and cut to 200 characters: for messages that repeat what was said.
pub(crate) fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(MAX_CHARS).flat_map(escaped).collect();
    if text.chars().nth(MAX_CHARS).is_some() {
        shown.push('…');
    }
    shown
}

/// `text`, escaped where it would break its line: for file names, which may hold anything but `/` and NUL.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    if text.chars().any(breaks_line) {
        Cow::Owned(text.chars().flat_map(escaped).collect())
    } else {
        Cow::Borrowed(text)
    }
}

fn escaped(c: char) -> impl Iterator<Item = char> {
    let escape = breaks_line(c).then(|| c.escape_default());
    let plain = escape.is_none().then_some(c);
    escape.into_iter().flatten().chain(plain)
}

/// Control characters, line separators, and marks that change the direction of text.
fn breaks_line(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{061C}' | '\u{200E}' | '\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}
