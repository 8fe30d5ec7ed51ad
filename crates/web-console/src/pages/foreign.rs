//! Texts that others wrote, as HTML: agents, their programs, servers that they reached, and people's comments.
//!
//! [`crate::shown`] makes a text harmless. This module also bounds it: long texts are cut, with a way to see more, and a character without
//! a shape that is repeated is shown once, with its number.

use maud::{Markup, html};
use text::Shape;

use crate::shown;

/// Characters of a text in a table that are shown at once.
const LINE: usize = 160;
/// Characters of a heading.
const HEADING: usize = 80;
/// Most characters of one text on a page. The rest is counted.
const MOST: usize = 128 * 1024;
/// Most parts into which hidden characters divide a text. The rest is one part, so that no agent makes a page that no browser shows.
const PARTS: usize = 4_096;

/// Returns `text` on one line. More than 160 characters unfold on request.
pub(crate) fn line(text: &str) -> Markup {
    match cut(text, LINE) {
        None => html! { bdi.text { (visible(text, Shape::Line)) } },
        Some(beginning) => html! {
            details.long {
                summary { bdi.text { (visible(beginning, Shape::Line)) } "… (" (text.chars().count()) " characters)" }
                (block(text))
            }
        },
    }
}

/// Returns the beginning of `text` on one line, for headings and links.
pub(crate) fn heading(text: &str) -> Markup {
    let beginning = cut(text, HEADING);
    html! { bdi.text { (visible(beginning.unwrap_or(text), Shape::Line)) } @if beginning.is_some() { "…" } }
}

/// Returns `text` with its lines.
pub(crate) fn block(text: &str) -> Markup {
    let beginning = cut(text, MOST);
    html! {
        pre.text tabindex="0" { bdi.text { (visible(beginning.unwrap_or(text), Shape::Block)) } }
        @if let Some(beginning) = beginning {
            p.note { (text.len() - beginning.len()) " more bytes are not shown." }
        }
    }
}

/// Returns bytes that a program wrote, as [`block`]. Bytes that are no UTF-8 are U+FFFD.
pub(crate) fn bytes(bytes: &[u8]) -> Markup {
    block(&String::from_utf8_lossy(bytes))
}

/// Returns a JSON text, laid out if it is one.
pub(crate) fn json(text: &str) -> Markup {
    let laid_out = serde_json::from_str::<serde_json::Value>(text)
        .ok()
        .and_then(|value| serde_json::to_string_pretty(&value).ok());
    block(laid_out.as_deref().unwrap_or(text))
}

/// Returns the beginning of a text that is longer than `most` characters.
fn cut(text: &str, most: usize) -> Option<&str> {
    text.char_indices().nth(most).map(|(end, _)| &text[..end])
}

/// Returns `text` with its hidden characters marked. Repetitions of one are counted, so that a file of NUL bytes is short.
pub(crate) fn visible(text: &str, shape: Shape) -> Markup {
    let hides = |c: char| text::is_hidden(c) && !(shape == Shape::Block && matches!(c, '\n' | '\t'));
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if pieces.len() >= PARTS {
            pieces.push((rest, 1));
            break;
        }
        let (end, count) = if hides(first) {
            let after = rest.trim_start_matches(first);
            (first.len_utf8(), (rest.len() - after.len()) / first.len_utf8())
        } else {
            (rest.find(hides).unwrap_or(rest.len()), 1)
        };
        pieces.push((&rest[..end], count));
        rest = &rest[end * count..];
    }
    html! {
        @for (piece, count) in pieces { (shown::visible(piece, shape)) @if count > 1 { b.repeated { "×" (count) } } }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A text with markup, a control character and a mark of direction.
    pub(crate) const HOSTILE: &str =
        "<img src=x onerror=\"pwned=1\">'\"&\u{1b}[2J\u{202e}\u{200b}</script></pre></td>javascript:pwned=1";

    /// Fails if a page has something of [`HOSTILE`] that is not shown as text.
    pub(crate) fn assert_harmless(page: &Markup) {
        let page = &page.0;
        assert!(page.contains("&lt;img src=x onerror="), "the text is not there: {page}");
        for bad in
            ["<img", "</script></pre>", "\u{1b}", "\u{202e}", "\u{200b}", "href=\"javascript", "onerror=\""]
        {
            assert!(!page.contains(bad), "{bad:?} in {page}");
        }
        assert!(page.contains("&lt;U+202E&gt;</b>"), "{page}");
    }

    #[test]
    fn markup_and_hidden_characters_are_shown_as_text() {
        for shown in
            [line(HOSTILE), heading(HOSTILE), block(HOSTILE), bytes(HOSTILE.as_bytes()), json(HOSTILE)]
        {
            assert_harmless(&shown);
        }
        assert_harmless(&json(&serde_json::json!({ HOSTILE: [HOSTILE] }).to_string()));
    }

    #[test]
    fn lines_stay_in_blocks_alone() {
        assert!(line("a\nb").0.contains("\u{240a}"));
        assert!(visible("a\n\tb\r", Shape::Block).0.starts_with("a\n\tb<b"));
        let nuls = visible("\0\0\0x\0", Shape::Block).0;
        assert_eq!((nuls.matches('\u{2400}').count(), nuls.matches("×3").count()), (2, 1), "{nuls}");
    }

    #[test]
    fn a_flood_of_different_hidden_characters_makes_no_flood_of_markup() {
        let shown = visible(&"\u{ad}\u{200b}".repeat(PARTS), Shape::Block).0;
        assert!(shown.matches("<b class").count() < 2 * PARTS && !shown.contains(['\u{ad}', '\u{200b}']));
        assert_eq!(shown.matches("U+00AD").count(), PARTS);
    }

    #[test]
    fn long_texts_are_cut_and_all_of_them_can_be_seen() {
        let long = "é".repeat(LINE + 1);
        let shown = line(&long).0;
        assert!(shown.contains("<details") && shown.contains("(161 characters)") && shown.contains(&long));
        assert!(heading(&long).0.ends_with('…'));
        let huge = "x".repeat(MOST + 7);
        assert!(block(&huge).0.contains("7 more bytes are not shown"));
    }
}
