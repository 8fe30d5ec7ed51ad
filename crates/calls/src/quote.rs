//! Text from an agent, shown to a reviewer so that none of it can pass for the daemon's.

/// Adds lines of text from the agent, each after a bar.
pub(crate) fn quote(to: &mut String, text: &str) {
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        to.push_str("  | ");
        to.extend(line.chars().flat_map(visible));
        to.push('\n');
    }
}

/// Returns a character, escaped if it is not visible.
pub(crate) fn visible(c: char) -> impl Iterator<Item = char> {
    let plain = matches!(c, '\t' | '\\' | '"' | '\'');
    let escaped = (!plain).then(|| c.escape_debug());
    plain.then_some(c).into_iter().chain(escaped.into_iter().flatten())
}
