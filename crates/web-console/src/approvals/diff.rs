//! A preview with the lines that go and come, and the words in them that differ.
//!
//! Each line keeps its sign, so that no meaning is in a colour alone.

use maud::{Markup, html};
use similar::{ChangeTag, TextDiff};
use text::Shape;
use text::diff::{Hunk, Kind};

use crate::shown::{hides_much, visible};

/// Most lines that have an element each. With more, an agent could make a page that no browser shows.
const LINES: usize = 20_000;
/// Longest line whose words are compared, bytes.
const LONGEST: usize = 400;
/// Most pairs of lines whose words are compared.
const PAIRS: usize = 100;
/// Part of two lines that has to be equal. The words of others say nothing.
const ALIKE: f32 = 0.4;

/// A line and its kind.
type Line<'a> = (&'a str, Kind);

fn lines(preview: &str) -> Vec<Line<'_>> {
    let mut hunk = Hunk::default();
    preview.split_inclusive('\n').map(|line| (line, hunk.kind_of(line))).collect()
}

/// Shows a preview whole.
pub(super) fn diff(preview: &str) -> Markup {
    let lines = lines(preview);
    if lines.len() > LINES || hides_much(preview) {
        return framed(&visible(preview, Shape::Block));
    }
    let mut pairs = PAIRS;
    let mut shown = Vec::new();
    let mut rest = lines.as_slice();
    while let [(_, first), ..] = rest {
        let gone = count(rest, Kind::Gone);
        let come = count(&rest[gone..], Kind::Come);
        if gone > 0 && gone == come && gone <= pairs {
            pairs -= gone;
            let (old, new) = rest[..gone + come].split_at(gone);
            let compared: Vec<_> = old.iter().zip(new).map(|((old, _), (new, _))| words(old, new)).collect();
            shown.extend(old.iter().zip(&compared).map(|(line, (old, _))| shown_line(*line, old.as_deref())));
            shown.extend(new.iter().zip(&compared).map(|(line, (_, new))| shown_line(*line, new.as_deref())));
            rest = &rest[gone + come..];
        } else {
            let same = count(rest, *first).max(1);
            shown.extend(rest[..same].iter().map(|line| shown_line(*line, None)));
            rest = &rest[same..];
        }
    }
    framed(&html! { @for line in &shown { (line) } })
}

fn framed(content: &Markup) -> Markup {
    html! { pre.text.diff tabindex="0" role="region" aria-label="Preview" { (content) } }
}

/// Returns how many lines of this kind the rest begins with.
fn count(lines: &[Line<'_>], kind: Kind) -> usize {
    lines.iter().take_while(|(_, of)| *of == kind).count()
}

/// A piece of a line, and if it differs from the other line.
type Piece<'a> = (&'a str, bool);

/// Compares the words of a line that goes with those of the line that comes for it. The signs are not compared.
fn words<'a>(old: &'a str, new: &'a str) -> (Option<Vec<Piece<'a>>>, Option<Vec<Piece<'a>>>) {
    let (old, new) = (&old[1..], &new[1..]);
    if old.len() > LONGEST || new.len() > LONGEST {
        return (None, None);
    }
    let compared = TextDiff::from_words(old, new);
    if compared.ratio() < ALIKE {
        return (None, None);
    }
    let (mut gone, mut come) = (Vec::new(), Vec::new());
    let (mut old_at, mut new_at) = (0, 0);
    for change in compared.iter_all_changes() {
        let length = change.value().len();
        if change.tag() != ChangeTag::Insert {
            gone.push((&old[old_at..old_at + length], change.tag() == ChangeTag::Delete));
            old_at += length;
        }
        if change.tag() != ChangeTag::Delete {
            come.push((&new[new_at..new_at + length], change.tag() == ChangeTag::Insert));
            new_at += length;
        }
    }
    (Some(gone), Some(come))
}

fn shown_line((line, kind): Line<'_>, pieces: Option<&[Piece<'_>]>) -> Markup {
    let content = html! {
        @match pieces {
            None => { (visible(line, Shape::Block)) }
            Some(pieces) => {
                (&line[..1])
                @for (piece, differs) in pieces {
                    @if !differs { (visible(piece, Shape::Block)) }
                    @else if kind == Kind::Gone { del { (visible(piece, Shape::Block)) } }
                    @else { ins { (visible(piece, Shape::Block)) } }
                }
            }
        }
    };
    match kind {
        Kind::Gone => html! { span.gone { (content) } },
        Kind::Come => html! { span.come { (content) } },
        Kind::Place => html! { span.place { (content) } },
        Kind::Name | Kind::Other => content,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_have_their_kind_and_words_that_differ_are_marked() {
        let shown =
            diff("--- a\n+++ b\n@@ -1,2 +1,2 @@\n same\n-let port = 80;\n+let port = 443;\n").into_string();
        for part in [
            "--- a\n+++ b\n<span class=\"place\">@@ -1,2 +1,2 @@\n</span> same\n",
            "<span class=\"gone\">-let port = <del>80;</del>\n</span>",
            "<span class=\"come\">+let port = <ins>443;</ins>\n</span>",
        ] {
            assert!(shown.contains(part), "{part} is not in {shown}");
        }
    }

    #[test]
    fn lines_that_have_nothing_in_common_have_no_marks() {
        let shown = diff("-one two three\n+vier\n").into_string();
        assert!(!shown.contains("<del>") && !shown.contains("<ins>"), "{shown}");
    }

    #[test]
    fn a_preview_cannot_deceive() {
        let shown =
            diff("-rm -rf /\r+harmless\u{202e}\n+\x1b[2K</pre><script>alert(1)</script>\n").into_string();
        assert!(!shown.contains("<script") && !shown.contains(['\r', '\u{202e}', '\u{1b}']), "{shown}");
        assert_eq!(shown.matches("</pre>").count(), 1, "{shown}");
    }

    #[test]
    fn no_content_looks_like_the_name_of_a_file() {
        let preview = "--- a\n+++ b\n@@ -1,2 +1,2 @@\n--- gone\n same\n+++ come; evil()\n--- c\n+++ d\n@@ -3 +3 @@\n--- x\n+++ y\n--- e\n";
        let shown = diff(preview).into_string();
        assert!(shown.contains("<span class=\"come\">+++ come; evil()\n</span>"), "{shown}");
    }

    #[test]
    fn a_flood_of_lines_or_of_hidden_characters_is_one_text() {
        let shown = diff(&"+\n".repeat(LINES + 1)).into_string();
        assert!(!shown.contains("<span") && shown.matches("+\n").count() == LINES + 1);
        let shown = diff(&"+\u{ad}\n".repeat(LINES)).into_string();
        assert!(shown.matches("<b class").count() < 1_000 && !shown.contains("<span"));
        assert!(!shown.contains('\u{ad}') && shown.matches("U+00AD").count() == LINES);
    }

    /// Returns the text that a reader sees.
    fn read(markup: &str) -> String {
        let mut seen = String::new();
        let mut is_tag = false;
        for c in markup.chars() {
            match c {
                '<' => is_tag = true,
                '>' if is_tag => is_tag = false,
                c if !is_tag => seen.push(c),
                _ => {}
            }
        }
        seen.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
    }

    proptest! {
        #[test]
        fn all_of_a_preview_is_shown(preview in "([-+@ ][a-z &<>\"\u{e4}]{0,12}\n){0,12}[-+]?") {
            prop_assert_eq!(read(&diff(&preview).into_string()), preview);
        }
    }
}
