//! Scripts of `sed` that run and write nothing.

use super::shapes::SED;

/// Returns true if the script is on this list: `p`, `d`, `q` and `=` at a line, a range of lines or a pattern, and `s`.
///
/// With `-i` it may still write its files.
pub(super) fn is_plain(args: &[String]) -> bool {
    let Ok(line) = SED.read(args) else { return false };
    // Without `-e` the first operand is the script.
    match (line.values.as_slice(), line.operands.first()) {
        ([], Some(script)) => commands(script).is_some(),
        ([], None) => false,
        (scripts, _) => scripts.iter().all(|script| commands(script).is_some()),
    }
}

/// Reads commands with `;` between them. `None` if one is not on the list.
fn commands(mut rest: &str) -> Option<()> {
    loop {
        rest = after_address(rest)?;
        rest = match rest.strip_prefix(',') {
            Some(second) => after_address(second)?,
            None => rest,
        };
        rest = rest.strip_prefix('!').unwrap_or(rest);
        rest = match rest.strip_prefix('s') {
            Some(substitution) => after_substitution(substitution)?,
            None => rest.strip_prefix(['p', 'd', 'q', '='])?,
        };
        if rest.is_empty() {
            return Some(());
        }
        rest = rest.strip_prefix(';')?;
    }
}

/// Returns the script after a line number, `$` or a pattern, or the same one if it has none.
fn after_address(script: &str) -> Option<&str> {
    if let Some(pattern) = script.strip_prefix('/') {
        return after_text(pattern, '/');
    }
    Some(script.strip_prefix('$').unwrap_or_else(|| script.trim_start_matches(|c: char| c.is_ascii_digit())))
}

fn after_substitution(script: &str) -> Option<&str> {
    let delimiter = script.chars().next().filter(|c| matches!(c, '/' | '|' | ',' | '#' | ':' | '@'))?;
    let texts = script.strip_prefix(delimiter)?;
    let flags = after_text(after_text(texts, delimiter)?, delimiter)?;
    Some(flags.trim_start_matches(|c: char| matches!(c, 'g' | 'p' | 'i' | 'I') || c.is_ascii_digit()))
}

/// Returns the script after a text and its delimiter.
///
/// Programs differ in how they read square brackets, so these are not on the list.
fn after_text(script: &str, delimiter: char) -> Option<&str> {
    let mut escaped = false;
    let end = script.find(|c: char| {
        let ends = c == delimiter && !escaped || matches!(c, '[' | '\n');
        escaped = c == '\\' && !escaped;
        ends
    })?;
    script.get(end..)?.strip_prefix(delimiter)
}
