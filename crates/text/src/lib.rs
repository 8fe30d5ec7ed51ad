#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod clean;
pub mod diff;
pub mod outlet;

use std::borrow::Cow;

/// Characters of an excerpt, at most.
const MOST: usize = 200;
/// Bytes of a character, at most.
const CHARACTER: usize = 4;

/// Which line ends may stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Newlines and tabs stay.
    Block,
    /// All of it is on one line.
    Line,
}

/// `text` on one line, with unruly characters escaped as in Rust: for file names, which may hold anything but `/` and NUL.
pub fn one_line(text: &str) -> Cow<'_, str> {
    escaped(text, Shape::Line)
}

/// The first 200 characters of `text` on one line, with unruly characters escaped: for messages that repeat what was said.
pub fn excerpt(text: &str) -> String {
    excerpt_of(text, Shape::Line, MOST)
}

/// As [`excerpt`], with `most` characters.
pub fn excerpt_of(text: &str, shape: Shape, most: usize) -> String {
    let end = text.char_indices().nth(most).map(|(end, _)| end);
    let mut shown = escaped(&text[..end.unwrap_or(text.len())], shape).into_owned();
    if end.is_some() {
        shown.push('…');
    }
    shown
}

/// The last character boundary at or before `at`.
pub fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

/// `text` with what `put` writes in place of each hidden character.
pub fn without_hidden(text: &str, shape: Shape, put: impl FnMut(char, &mut String)) -> Cow<'_, str> {
    replaced(text, |c| is_hidden(c) && !stays(c, shape), put)
}

/// Returns how many of `bytes` there are without a last character that is cut.
pub fn without_cut_end(bytes: &[u8]) -> usize {
    let start = bytes.iter().rev().take(CHARACTER).position(|byte| !continues(*byte));
    let Some(start) = start.map(|back| bytes.len() - 1 - back) else { return bytes.len() };
    match std::str::from_utf8(&bytes[start..]) {
        Err(error) if error.error_len().is_none() => start,
        _ => bytes.len(),
    }
}

/// Returns how many bytes at the beginning of `bytes` belong to a character that begins before them.
pub fn cut_beginning(bytes: &[u8]) -> usize {
    bytes.iter().take(CHARACTER - 1).take_while(|byte| continues(**byte)).count()
}

fn continues(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

fn escaped(text: &str, shape: Shape) -> Cow<'_, str> {
    replaced(text, |c| is_unruly(c) && !stays(c, shape), |c, out| out.extend(c.escape_default()))
}

fn replaced(text: &str, goes: impl Fn(char) -> bool, mut put: impl FnMut(char, &mut String)) -> Cow<'_, str> {
    if !text.chars().any(&goes) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if goes(c) { put(c, &mut out) } else { out.push(c) }
    }
    Cow::Owned(out)
}

fn stays(c: char, shape: Shape) -> bool {
    shape == Shape::Block && matches!(c, '\n' | '\t')
}

/// Control characters, separators of lines, and marks that change the direction of text.
fn is_unruly(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns true if `c` is unruly or invisible: joiners, fillers, spaces without a width, tags. The selectors of an emoji are not.
pub fn is_hidden(c: char) -> bool {
    is_unruly(c)
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unruly_characters_cannot_forge_a_line() {
        assert_eq!(excerpt("a\nb\x1b[2J\u{202e}c"), "a\\nb\\u{1b}[2J\\u{202e}c");
        assert_eq!(one_line("rm\u{2028}\u{9b}x"), "rm\\u{2028}\\u{9b}x");
        assert_eq!(excerpt_of("\ta\r", Shape::Block, 9), "\ta\\r");
    }

    #[test]
    fn names_of_all_languages_stay() {
        let name = "می\u{200c}خواهم e\u{301} ❤\u{fe0f}.txt";
        assert!(matches!(one_line(name), Cow::Borrowed(same) if same == name));
    }

    #[test]
    fn long_text_is_cut() {
        assert_eq!(excerpt(&"é".repeat(300)), "é".repeat(200) + "…");
        assert_eq!(excerpt(&"é".repeat(200)), "é".repeat(200));
        assert_eq!(excerpt_of("\n\n\n", Shape::Line, 2), "\\n\\n…");
    }

    #[test]
    fn a_cut_shows_whole_characters_alone() {
        let text = "aé€😀z";
        for (from, to) in (0..=text.len()).flat_map(|from| (from..=text.len()).map(move |to| (from, to))) {
            let part = &text.as_bytes()[from..to];
            let part = &part[..without_cut_end(part)];
            let part = &part[cut_beginning(part)..];
            assert!(text.contains(std::str::from_utf8(part).unwrap()), "{from}..{to}");
            assert!(part.len() + 6 >= to - from, "no more is left out than two characters: {from}..{to}");
        }
        for none in [&b"a\xff"[..], b"\xc0\xaf", b"\x80\x80\x80\x80\x80"] {
            assert_eq!(without_cut_end(none), none.len(), "bytes that are no text stay: {none:?}");
        }
    }

    #[test]
    fn hidden_characters_are_replaced() {
        let mark = |_, out: &mut String| out.push('?');
        assert_eq!(
            without_hidden("a\u{200b}\n\t\u{e0041}\r❤\u{fe0f}", Shape::Block, mark),
            "a?\n\t??❤\u{fe0f}"
        );
        assert_eq!(without_hidden("a\n\tb", Shape::Line, mark), "a??b");
        assert!(matches!(without_hidden("plain", Shape::Line, mark), Cow::Borrowed(_)));
    }
}
