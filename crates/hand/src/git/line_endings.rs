//! git's judgement whether a stored content keeps its carriage returns: libgit2 lacks the part about binary content.

/// Whether it is text with lines that end in both characters. Such a file is not converted when it is stored anew.
pub(super) fn has_crlf(content: &[u8]) -> bool {
    let (mut crlf, mut printable, mut unprintable) = (false, 0_usize, 0_usize);
    for (index, byte) in content.iter().enumerate() {
        match byte {
            b'\r' if content.get(index + 1) == Some(&b'\n') => crlf = true,
            // On its own, or a NUL: no text.
            b'\r' | 0 => return false,
            b'\n' => {}
            0x08 | b'\t' | 0x0c | 0x1b => printable += 1,
            0..0x20 | 0x7f => unprintable += 1,
            _ => printable += 1,
        }
    }
    // The end of a file, once upon a time.
    let unprintable = unprintable - usize::from(content.last() == Some(&0x1a));
    crlf && printable >> 7 >= unprintable
}

#[cfg(test)]
mod tests {
    use super::has_crlf;

    #[test]
    fn only_text_counts() {
        assert!(has_crlf(b"a\r\nb\n"));
        for content in [&b"a\nb\n"[..], b"", b"a\r\nb\rc", b"a\r\n\0", b"\x01\r\n", b"a\r\r\n"] {
            assert!(!has_crlf(content), "{content:?}");
        }
        assert!(has_crlf(b"a\r\n\x1a"));
    }
}
