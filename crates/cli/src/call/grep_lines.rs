//! Converts matches with their contexts to the lines to print. They are in order, and each occurs once. A gap represents omitted lines.

use std::collections::BTreeMap;

use wire::v1::GrepMatch;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineKind {
    Match,
    Context,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum GrepLine<'a> {
    Text {
        path: &'a str,
        number: u64,
        text: &'a str,
        kind: LineKind,
    },
    /// Omitted lines between groups.
    Gap,
}

/// Returns the lines of all matches. Overlapping contexts are merged, and a match takes precedence over a context.
pub(crate) fn lines(matches: &[GrepMatch]) -> Vec<GrepLine<'_>> {
    let mut all: BTreeMap<(&str, u64), (&str, LineKind)> = BTreeMap::new();
    let mut with_context = false;
    for found in matches {
        let path = found.path.as_str();
        all.insert((path, found.line), (&found.text, LineKind::Match));
        let before = (1..).zip(found.before.iter().rev()).map(|(n, text)| (found.line.checked_sub(n), text));
        let after = (1..).zip(&found.after).map(|(n, text)| (found.line.checked_add(n), text));
        for (number, text) in before.chain(after) {
            with_context = true;
            if let Some(number) = number {
                all.entry((path, number)).or_insert((text, LineKind::Context));
            }
        }
    }

    let mut out = Vec::with_capacity(all.len());
    let mut last: Option<(&str, u64)> = None;
    for ((path, number), (text, kind)) in all {
        let adjoins = last.is_none_or(|(p, n)| p == path && n.checked_add(1) == Some(number));
        if with_context && !adjoins {
            out.push(GrepLine::Gap);
        }
        out.push(GrepLine::Text { path, number, text, kind });
        last = Some((path, number));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, line: u64, text: &str, before: &[&str], after: &[&str]) -> GrepMatch {
        let owned = |lines: &[&str]| lines.iter().map(ToString::to_string).collect();
        GrepMatch { path: path.into(), line, text: text.into(), before: owned(before), after: owned(after) }
    }

    fn print(matches: &[GrepMatch]) -> Vec<String> {
        lines(matches)
            .into_iter()
            .map(|line| match line {
                GrepLine::Gap => "--".into(),
                GrepLine::Text { path, number, text, kind: LineKind::Match } => {
                    format!("{path}:{number}:{text}")
                }
                GrepLine::Text { path, number, text, kind: LineKind::Context } => {
                    format!("{path}-{number}-{text}")
                }
            })
            .collect()
    }

    #[test]
    fn overlapping_contexts_are_merged() {
        let matches =
            [found("a", 2, "two", &["one"], &["three"]), found("a", 3, "three", &["two"], &["four"])];
        assert_eq!(print(&matches), ["a-1-one", "a:2:two", "a:3:three", "a-4-four"]);
    }

    #[test]
    fn gaps_stand_between_groups() {
        let matches =
            [found("a", 2, "x", &["w"], &[]), found("a", 9, "y", &[], &["z"]), found("b", 10, "y", &[], &[])];
        assert_eq!(print(&matches), ["a-1-w", "a:2:x", "--", "a:9:y", "a-10-z", "--", "b:10:y"]);
    }

    #[test]
    fn without_context_there_are_no_gaps() {
        let matches = [found("a", 2, "x", &[], &[]), found("a", 9, "y", &[], &[])];
        assert_eq!(print(&matches), ["a:2:x", "a:9:y"]);
    }

    #[test]
    fn impossible_numbers_do_no_harm() {
        let matches = [found("a", 0, "x", &["p", "q"], &[]), found("a", u64::MAX, "y", &[], &["z"])];
        assert_eq!(print(&matches), ["a:0:x", "--", format!("a:{}:y", u64::MAX).as_str()]);
    }
}
