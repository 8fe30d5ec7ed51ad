//! The output of a companion, of which the engine keeps the end.

use std::time::Duration;

use bytes::Bytes;
use containers::EngineError;
use futures_util::{Stream, StreamExt as _, TryStreamExt as _};

use crate::companion::Companion;

/// Time in which the engine has to give what it keeps.
const WITHIN: Duration = Duration::from_secs(20);
/// Most bytes and lines of the end of a log, in a message.
const LAST: (usize, usize) = (2_048, 12);
/// Bytes in which the beginning of each value that is in the last lines is, too: as many as the variables of a companion can have.
const KEPT: usize = LAST.0 + 128 * 1024;
/// Shortest value that is hidden, as in records. A shorter one occurs in too many harmless words.
const SHORTEST: usize = 8;
/// Text in place of a value.
const HIDDEN: &str = "[redacted:value]";

impl Companion {
    /// Returns what it has written, from the last `tail` bytes on. With `follow` goes on until it ends.
    pub async fn log(
        &self,
        tail: usize,
        follow: bool,
    ) -> Result<impl Stream<Item = Result<Bytes, EngineError>> + Send + use<>, EngineError> {
        let attempt = "read a container's log";
        let kept = self.engine.logs(&self.container, false);
        let kept =
            kept.try_fold(0usize, |sum, piece| std::future::ready(Ok(sum.saturating_add(piece.len()))));
        let kept = tokio::time::timeout(WITHIN, kept).await;
        let kept = kept.map_err(|_| EngineError::TimedOut { attempt, limit: WITHIN })??;
        let mut skip = kept.saturating_sub(tail);
        let pieces = self.engine.logs(&self.container, follow);
        Ok(pieces.try_filter_map(move |piece| std::future::ready(Ok(after(&mut skip, piece)))))
    }

    /// Returns the last lines that it has written, made harmless for a message and without these values. Empty if there are none.
    pub async fn last_lines(&self, values: &[&str]) -> String {
        let mut end = Vec::new();
        let reading = async {
            let mut pieces = std::pin::pin!(self.engine.logs(&self.container, false));
            while let Some(Ok(piece)) = pieces.next().await {
                end.extend_from_slice(&piece);
                if end.len() > 2 * KEPT {
                    end.drain(..end.len() - KEPT);
                }
            }
        };
        // Lines that have come by then are better than none.
        let _ = tokio::time::timeout(WITHIN, reading).await;
        let values: Vec<&str> = values.iter().copied().filter(|value| value.len() >= SHORTEST).collect();
        cleaned(&end[end.len().saturating_sub(KEPT)..], &values)
    }
}

/// Returns the part of a piece that is not skipped.
fn after(skip: &mut usize, mut piece: Bytes) -> Option<Bytes> {
    let skipped = piece.len().min(*skip);
    *skip -= skipped;
    let rest = piece.split_off(skipped);
    (!rest.is_empty()).then_some(rest)
}

/// Returns the end of a text, with a mark in place of each of the values. It does not begin within one of them.
fn without(text: &str, values: &[&str]) -> String {
    let mut begin = text::floor(text, text.len().saturating_sub(LAST.0));
    for value in values {
        for (at, found) in text.match_indices(*value) {
            if (at + 1..at + found.len()).contains(&begin) {
                begin = at + found.len();
            }
        }
    }
    values.iter().fold(text[begin..].to_owned(), |text, value| text.replace(*value, HIDDEN))
}

fn cleaned(end: &[u8], values: &[&str]) -> String {
    let end = String::from_utf8_lossy(&end[text::cut_beginning(end)..]);
    let end = without(&end, values);
    let mut lines: Vec<&str> = end.lines().filter(|line| !line.trim().is_empty()).collect();
    lines.drain(..lines.len().saturating_sub(LAST.1));
    let lines = lines.into_iter().map(|line| text::one_line(line.trim_end()));
    let mut last = lines.collect::<Vec<_>>().join("\n");
    // An escaped byte is several. The message is a header of an answer, of which clients take 16 KiB.
    let mut surplus = last.len().saturating_sub(LAST.0);
    while !last.is_char_boundary(surplus) {
        surplus += 1;
    }
    last.split_off(surplus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_log_begins_anywhere_in_a_piece() {
        let mut skip = 4;
        let mut rest = |piece: &'static [u8]| after(&mut skip, Bytes::from_static(piece));
        assert_eq!(rest(b"ab"), None);
        assert_eq!(rest(b"cdef").as_deref(), Some(&b"ef"[..]));
        assert_eq!(rest(b"gh").as_deref(), Some(&b"gh"[..]));
        assert_eq!(rest(b""), None);
    }

    #[test]
    fn the_last_lines_are_harmless_and_few() {
        assert_eq!(cleaned(b"", &[]), "");
        assert_eq!(cleaned(b"a\n\n  \nb\x1b[2J\xff\n", &[]), "a\nb\\u{1b}[2J\u{fffd}");
        let many: Vec<String> = (0..100).map(|number| format!("line {number}\n")).collect();
        let last = cleaned(many.concat().as_bytes(), &[]);
        assert!(last.starts_with("line 88\n") && last.ends_with("line 99"), "{last}");
        assert_eq!(cleaned(&"ä".as_bytes()[1..], &[]), "");
        for hostile in [b'\x01', b'\xff'] {
            let last = cleaned(&[hostile; LAST.0], &[]);
            assert!((LAST.0 - 4..=LAST.0).contains(&last.len()), "{}", last.len());
        }
    }

    #[test]
    fn the_last_lines_have_no_part_of_a_value() {
        // One is cut by the bound, and one has a character that is escaped.
        let values = ["hunter2hunter2", "tab\tseparated"];
        for shift in 0..20 {
            let written = format!("{}{}\nlog in: {}", values[0], "x".repeat(LAST.0 - 40 + shift), values[1]);
            let last = cleaned(written.as_bytes(), &values);
            assert!(!last.contains("ter2") && !last.contains("separated"), "{last}");
            assert!(last.ends_with("x\nlog in: [redacted:value]"), "{last}");
        }
    }
}
