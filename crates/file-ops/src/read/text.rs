//! Text or binary: classifies a part of a file that may begin or end within a character.

/// Bytes of a part, classified as text or binary.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Text {
    /// UTF-8 without NUL.
    Valid {
        content: String,
        /// Bytes at the end that belong to a cut character.
        dropped_after: usize,
    },
    /// Anything else.
    Binary,
}

/// Most bytes of a character after its first.
const MAX_CONTINUATION: usize = 3;

/// Classifies the bytes of a part.
///
/// `cut_before` and `cut_after` mean that the file continues there, so an incomplete character may be complete in the file. It is then
/// left out.
pub(super) fn text(mut bytes: Vec<u8>, cut_before: bool, cut_after: bool) -> Text {
    if bytes.contains(&0) {
        return Text::Binary;
    }
    if cut_before {
        let partial = bytes.iter().take(MAX_CONTINUATION).take_while(|&&byte| byte & 0xc0 == 0x80).count();
        bytes.drain(..partial);
    }
    let mut dropped_after = 0;
    if let Err(error) = str::from_utf8(&bytes)
        && error.error_len().is_none()
        && cut_after
    {
        dropped_after = bytes.len() - error.valid_up_to();
        bytes.truncate(error.valid_up_to());
    }
    match String::from_utf8(bytes) {
        Ok(content) => Text::Valid { content, dropped_after },
        Err(_) => Text::Binary,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn valid(content: &str, dropped_after: usize) -> Text {
        Text::Valid { content: content.to_owned(), dropped_after }
    }

    #[test]
    fn a_cut_character_is_not_binary() {
        let bytes = "€x€".as_bytes();
        for start in 0..=3 {
            for end in 4..=7 {
                let content =
                    format!("{}x{}", if start == 0 { "€" } else { "" }, if end == 7 { "€" } else { "" });
                let dropped = if end == 7 { 0 } else { end - 4 };
                let found = text(bytes[start..end].to_vec(), start > 0, end < 7);
                assert_eq!(found, valid(&content, dropped), "{start}..{end}");
            }
        }
    }

    #[test]
    fn an_incomplete_character_at_the_end_of_the_file_is_binary() {
        assert_eq!(text(b"x\xe2\x82".to_vec(), false, false), Text::Binary);
        assert_eq!(text(b"\x82x".to_vec(), false, true), Text::Binary);
    }

    #[test]
    fn other_encodings_and_nul_are_binary() {
        for bytes in [&b"caf\xe9 au lait"[..], b"a\0b", b"\xff\xfea\0", b"\xed\xa0\x80"] {
            assert_eq!(text(bytes.to_vec(), true, true), Text::Binary, "{bytes:?}");
        }
    }
}
