//! Matches as grep prints them: `path:line:text`, context as `path-line-text`, `--` between groups.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use operations::GrepMatch;

/// Line to print. Neighbouring matches share context, and one may be in the context of the other.
struct MatchLine<'a> {
    text: &'a str,
    is_match: bool,
}

/// Renders matches. `shown` formats a path.
pub(crate) fn render(matches: &[GrepMatch], shown: impl Fn(&str) -> String) -> String {
    let has_context = matches.iter().any(|found| !found.before.is_empty() || !found.after.is_empty());
    let mut text = String::new();
    for of_file in matches.chunk_by(|one, next| one.path == next.path) {
        let Some(first) = of_file.first() else { continue };
        let path = shown(&first.path);
        let mut previous = None;
        for (number, line) in lines(of_file) {
            let follows = previous.is_some_and(|previous: u64| previous.checked_add(1) == Some(number));
            if has_context && !follows && !text.is_empty() {
                text.push_str("--\n");
            }
            let mark = if line.is_match { ':' } else { '-' };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{path}{mark}{number}{mark}{}", line.text);
            previous = Some(number);
        }
    }
    text
}

fn lines(matches: &[GrepMatch]) -> BTreeMap<u64, MatchLine<'_>> {
    let mut lines = BTreeMap::new();
    for found in matches {
        let before =
            (1_u64..).map(|distance| found.line.checked_sub(distance)).zip(found.before.iter().rev());
        let after = (1_u64..).map(|distance| found.line.checked_add(distance)).zip(&found.after);
        for (number, text) in before.chain(after) {
            if let Some(number) = number {
                lines.entry(number).or_insert(MatchLine { text, is_match: false });
            }
        }
        lines.insert(found.line, MatchLine { text: &found.text, is_match: true });
    }
    lines
}
