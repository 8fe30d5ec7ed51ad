//! Quotes paths as git does: unusual ones in double quotes with C escapes, the others not at all.

/// Returns the path, quoted if it has control characters, quotes, backslashes or bytes beyond ASCII.
pub(crate) fn quoted(path: &[u8]) -> String {
    let is_usual = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    if path.iter().all(is_usual) {
        return String::from_utf8_lossy(path).into_owned();
    }
    let escaped: String = path.iter().copied().map(escape).collect();
    format!("\"{escaped}\"")
}

fn escape(byte: u8) -> String {
    match byte {
        b'\t' => "\\t".to_owned(),
        b'\n' => "\\n".to_owned(),
        b'\r' => "\\r".to_owned(),
        b'"' => "\\\"".to_owned(),
        b'\\' => "\\\\".to_owned(),
        b' '..=b'~' => char::from(byte).to_string(),
        _ => format!("\\{byte:03o}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusual_names_are_quoted_and_others_are_not() {
        for (path, shown) in [
            ("a/b.c", "a/b.c"),
            ("a b", "a b"),
            ("ä", "\"\\303\\244\""),
            ("a\tb\"\\\u{1}\n", "\"a\\tb\\\"\\\\\\001\\n\""),
        ] {
            assert_eq!(quoted(path.as_bytes()), shown);
        }
    }
}
