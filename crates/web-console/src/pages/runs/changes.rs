//! The changes of a run beside the directory beneath.

use maud::{Markup, html};
use text::Shape;
use text::clean::clean;
use text::diff::{Hunk, Kind};
use wire::v1::{DiffRunResponse, FileChange};

use super::super::elements::{Part, id_path, part, state, table};
use super::super::{figures, foreign};
use crate::shown::hides_much;

/// Changed paths that are shown.
const MOST: usize = 500;
/// Lines of a diff that are shown.
const LINES: usize = 20_000;

pub(crate) fn render(run: &str, changes: &Part<DiffRunResponse>, is_all: bool) -> Markup {
    html! {
        (super::head(run, "changes"))
        (part(changes, |changes| shown(run, changes, is_all)))
    }
}

fn shown(run: &str, changes: &DiffRunResponse, is_all: bool) -> Markup {
    html! {
        p { (changes.total) " paths have changed." }
        @if !changes.changes.is_empty() {
            (table("Changed paths", &["Path", "Change", "Kind", "Size", "Objection"], changes.changes.iter().take(MOST).map(row)))
        }
        @if changes.changes.len() > MOST { p.note { "The first " (MOST) " are shown." } }
        @if !changes.unified_diff.is_empty() { h2 { "Diff" } (diff(&changes.unified_diff)) }
        @if changes.truncated {
            p.note {
                "Changes or parts of the diff are left out. "
                @if let (false, Some(path)) = (is_all, id_path("/runs/", run, "/changes?all=true")) { a href=(path) { "Show up to 1 MiB" } }
            }
        }
    }
}

fn row(change: &FileChange) -> Vec<Markup> {
    let objection = if change.obstacle.is_empty() { &change.objection } else { &change.obstacle };
    vec![
        foreign::line(&change.path),
        state(&figures::word(change.kind().as_str_name())),
        foreign::line(&change.file_type),
        html! { (figures::size(change.size_bytes)) },
        foreign::line(objection),
    ]
}

/// Returns a diff with a class for each line. The sign at its beginning says the same as its colour.
pub(crate) fn diff(diff: &str) -> Markup {
    let lines: Vec<&str> = diff.split_inclusive('\n').take(LINES + 1).collect();
    let hides_much = hides_much(diff);
    let mut hunk = Hunk::default();
    html! {
        pre.lines tabindex="0" {
            @for line in lines.iter().take(LINES) {
                span.(class(line, hunk.kind_of(line))) {
                    bdi {
                        @if hides_much { (clean(line, Shape::Block)) } @else { (foreign::visible(line, Shape::Block)) }
                    }
                }
            }
        }
        @if lines.len() > LINES { p.note { "More lines are not shown." } }
    }
}

fn class(line: &str, kind: Kind) -> &'static str {
    match kind {
        Kind::Name => "head",
        Kind::Other if line.starts_with("diff ") => "head",
        Kind::Place => "hunk",
        Kind::Come => "added",
        Kind::Gone => "removed",
        Kind::Other => "same",
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::foreign::tests::{HOSTILE, assert_harmless};
    use super::*;

    const ID: &str = "0198a1b2-0000-7000-8000-00000000aaaa";

    #[test]
    fn paths_and_lines_are_harmless() {
        let hostile = || HOSTILE.to_owned();
        let change = FileChange {
            path: hostile(),
            file_type: hostile(),
            objection: hostile(),
            obstacle: hostile(),
            ..Default::default()
        };
        let changes = DiffRunResponse {
            changes: vec![change],
            total: 1,
            unified_diff: format!("+{HOSTILE}\n-{HOSTILE}\n@@ {HOSTILE}\n{HOSTILE}"),
            truncated: true,
        };
        assert_harmless(&render(ID, &Ok(changes), false));
        assert_harmless(&render(ID, &Err(hostile()), false));
    }

    #[test]
    fn lines_have_the_class_of_their_sign() {
        let shown = diff("--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n z\n").0;
        for class in ["head", "hunk", "removed", "added", "same"] {
            assert!(shown.contains(&format!("<span class=\"{class}\">")), "{class}");
        }
        let shown = diff("--- a\n+++ b\n@@ -1 +1 @@\n--- x\n+++ y\n").0;
        assert_eq!(shown.matches("<span class=\"head\">").count(), 2, "{shown}");
        assert!(diff(&"x\n".repeat(LINES + 2)).0.contains("More lines are not shown"));
    }

    #[test]
    fn a_diff_that_was_cut_can_be_seen_whole() {
        let cut = DiffRunResponse { truncated: true, ..Default::default() };
        assert!(render(ID, &Ok(cut.clone()), false).0.contains("changes?all=true"));
        assert!(!render(ID, &Ok(cut), true).0.contains("changes?all=true"));
    }
}
