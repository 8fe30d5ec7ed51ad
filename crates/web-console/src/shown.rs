//! Foreign text as markup. This is the only way in which a text of an agent, a client or a file gets into a page.
//!
//! `maud` escapes markup. Control characters, marks of direction and characters without a width become visible ones that differ
//! from a text that merely looks like them. A text is never a link and never an attribute that a browser acts on.

use maud::{Markup, html};
use text::Shape;
use text::clean::clean;

/// Most hidden characters of one text that are set apart. Each is a hundred bytes of the page.
const MARKED: usize = 256;
/// Most hidden characters of a text that is shown line by line with all of them set apart.
const SOME: usize = 4_096;

/// Shows a text on one line. Its direction does not reach its surroundings.
pub(crate) fn line(text: &str) -> Markup {
    html! { bdi.text { (visible(text, Shape::Line)) } }
}

/// Shows a text that may have several lines.
pub(crate) fn block(text: &str) -> Markup {
    html! { pre.text { (visible(text, Shape::Block)) } }
}

/// Shows a text with the hidden characters marked, without an element around it.
pub(crate) fn visible(text: &str, shape: Shape) -> Markup {
    let mut pieces = Vec::new();
    let mut start = 0;
    let is_marked = |c: char| text::is_hidden(c) && !(shape == Shape::Block && matches!(c, '\n' | '\t'));
    for (at, c) in text.char_indices().filter(|(_, c)| is_marked(*c)).take(MARKED) {
        pieces.push((&text[start..at], &text[at..at + c.len_utf8()]));
        start = at + c.len_utf8();
    }
    let rest = &text[start..];
    html! {
        @for (plain, hidden) in pieces {
            (plain)
            b.hidden title="a character that would be invisible or change its surroundings" { (clean(hidden, Shape::Line)) }
        }
        (clean(rest, shape))
    }
}

/// Returns true if a text has so many hidden characters that a page must not set each of them apart: no browser would show it.
pub(crate) fn hides_much(text: &str) -> bool {
    text.chars().filter(|c| text::is_hidden(*c) && !matches!(c, '\n' | '\t')).nth(SOME).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_text() {
        let shown = line("<script>alert(1)</script>\"'&<a href=javascript:x>").into_string();
        assert_eq!(
            shown,
            "<bdi class=\"text\">&lt;script&gt;alert(1)&lt;/script&gt;&quot;'&amp;&lt;a href=javascript:x&gt;</bdi>"
        );
    }

    #[test]
    fn hidden_characters_are_marked_and_differ_from_their_picture() {
        let shown = line("a\u{202e}b\r\n<U+202E>\u{200b}\0").into_string();
        assert!(!shown.contains(['\u{202e}', '\r', '\n', '\u{200b}', '\0']), "{shown:?}");
        assert_eq!(shown.matches("<b class=\"hidden\"").count(), 5, "{shown}");
        assert_eq!(shown.matches("&lt;U+202E&gt;</b>").count(), 1, "{shown}");
        assert_eq!(shown.matches("&lt;U+202E&gt;").count(), 2, "{shown}");
    }

    #[test]
    fn a_flood_of_hidden_characters_makes_no_flood_of_markup() {
        let shown = line(&"\u{ad}".repeat(10_000)).into_string();
        assert_eq!(shown.matches("<b class=\"hidden\"").count(), MARKED);
        assert!(!shown.contains('\u{ad}') && shown.len() < 200_000, "{}", shown.len());
    }

    #[test]
    fn a_block_keeps_its_lines_and_tabs() {
        let shown = block("one\n\ttwo\u{7f}").into_string();
        assert!(shown.starts_with("<pre class=\"text\">one\n\ttwo<b"), "{shown}");
        assert!(shown.contains('\u{2421}'), "{shown}");
    }
}
