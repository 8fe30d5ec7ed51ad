//! Compares the path of a request with the patterns of a rule.
//!
//! A server that reads a path in another way than this module would serve a resource that no pattern allows. So a path that servers
//! read in different ways matches nothing.

/// Returns true if every server reads this path alike. It is the path of a request's target, without the query.
///
/// Not plain are: a segment `.` or `..`, an empty segment but the last, an escaped `/`, `\`, `.` of such a segment or NUL, an escape of
/// an escape, `\`, `;`, `?`, `#`, a `%` that begins no escape, and bytes beyond visible ASCII.
pub(crate) fn is_plain(path: &str) -> bool {
    let Some(rest) = path.strip_prefix('/') else { return false };
    let is_visible = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'\\' | b';' | b'?' | b'#');
    path.bytes().all(is_visible) && !path.contains("//") && rest.split('/').all(is_plain_segment)
}

/// Returns true if a segment has only plain escapes, and is neither `.` nor `..` without them.
fn is_plain_segment(segment: &str) -> bool {
    let mut bytes = segment.bytes();
    let mut dots = 0;
    let mut length = 0;
    let mut is_after_percent = false;
    while let Some(byte) = bytes.next() {
        let is_escape = byte == b'%';
        let byte = if is_escape {
            let Some(decoded) = escaped(bytes.next(), bytes.next()) else { return false };
            decoded
        } else {
            byte
        };
        if is_escape && matches!(byte, b'/' | b'\\' | 0) {
            return false;
        }
        // A server that decodes twice sees an escape here.
        if is_after_percent && byte.is_ascii_hexdigit() {
            return false;
        }
        is_after_percent = is_escape && byte == b'%';
        length += 1;
        dots += usize::from(byte == b'.');
    }
    let is_relative = dots == length && matches!(length, 1 | 2);
    !is_relative
}

/// Decodes the two digits of an escape.
fn escaped(high: Option<u8>, low: Option<u8>) -> Option<u8> {
    let digit = |byte: Option<u8>| char::from(byte?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(high)? << 4 | digit(low)?)
}

/// Returns true if a path matches a pattern, in which `*` is any number of characters, also none and also `/`.
///
/// The time is at most the product of the two lengths.
pub(crate) fn matches(pattern: &str, path: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| path.strip_prefix(first)) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    // The first place of each part leaves the most for those after it.
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_of_interfaces_are_plain() {
        for path in [
            "/",
            "/v1/messages",
            "/v1/",
            "/v1/models/some.model-1.2:latest",
            "/a.b/..c/c../...",
            "/%7Euser/a%20b/%C3%A9",
            "/100%25",
            "/100%25/af",
            "/a%3Bb%3F%23",
            "/@scope%40x/!$&'()*+,=:",
        ] {
            assert!(is_plain(path), "{path}");
        }
    }

    #[test]
    fn paths_that_servers_read_in_different_ways_are_not_plain() {
        for path in [
            "",
            "*",
            "v1",
            "http://api.example.org/",
            "//",
            "//v1",
            "/v1//x",
            "/.",
            "/..",
            "/v1/./x",
            "/v1/../x",
            "/v1/..",
            "/v1/%2e",
            "/v1/%2E%2e/x",
            "/v1/.%2e",
            "/v1/%2e./x",
            "/v1%2fx",
            "/v1%2Fx",
            "/v1%5cx",
            "/v1%5Cx",
            "/v1\\x",
            "/v1/%00",
            "/v1;x=y",
            "/v1/..;/x",
            "/v1/%",
            "/v1/%2",
            "/v1/%zz",
            "/v1/%2/e",
            "/v1/%+1",
            "/v1?x",
            "/v1#x",
            "/v 1",
            "/v1\t",
            "/v1\n",
            "/v1\u{7f}",
            "/v1/é",
            "/v1/%252e%252e/x",
            "/v1/%252fx",
            "/v1/%25%32f",
        ] {
            assert!(!is_plain(path), "{path}");
        }
    }

    #[test]
    fn a_star_is_any_number_of_characters() {
        for (pattern, path, expected) in [
            ("/v1/*", "/v1/", true),
            ("/v1/*", "/v1/a/b", true),
            ("/v1/*", "/v1", false),
            ("/v1/*", "/v10/", false),
            ("/v1/*", "/V1/a", false),
            ("/v1/models", "/v1/models", true),
            ("/v1/models", "/v1/models/", false),
            ("/v1/models", "/v1/model", false),
            ("/*/info", "/a/b/info", true),
            ("/*/info", "/info", false),
            ("/*/info", "/a/info/x", false),
            ("/a*a", "/a", false),
            ("/a*a", "/aa", true),
            ("/*ab*ab", "/ab", false),
            ("/*ab*ab", "/abab", true),
            ("/**", "/", true),
            ("/*", "", false),
            ("/a?c", "/abc", false),
            ("/[ab]", "/a", false),
        ] {
            assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn a_hostile_pattern_takes_little_time() {
        let path = format!("/{}", "a".repeat(64 * 1024));
        let began = Instant::now();
        assert!(!matches(&format!("/{}b", "a*".repeat(127)), &path));
        assert!(!matches(&format!("/*{}b*", "a".repeat(250)), &path));
        assert!(began.elapsed() < Duration::from_secs(2));
    }

    /// Compares by trying every length of every `*`.
    fn matches_by_trying(pattern: &[u8], path: &[u8]) -> bool {
        match pattern.split_first() {
            None => path.is_empty(),
            Some((b'*', rest)) => (0..=path.len()).any(|taken| matches_by_trying(rest, &path[taken..])),
            Some((byte, rest)) => path
                .split_first()
                .is_some_and(|(first, after)| first == byte && matches_by_trying(rest, after)),
        }
    }

    proptest! {
        #[test]
        fn matching_is_the_same_as_trying_every_length(pattern in "[a/*]{0,8}", path in "[a/]{0,10}") {
            let expected = matches_by_trying(pattern.as_bytes(), path.as_bytes());
            prop_assert_eq!(matches(&pattern, &path), expected, "{} {}", pattern, path);
        }

        #[test]
        fn a_plain_path_stays_within_its_directory_when_it_is_decoded(path in "/[a./%25eEfF;\\\\]{0,12}") {
            if is_plain(&path) {
                for decoded in [path.clone(), decode(&path), decode(&decode(&path))] {
                    prop_assert!(decoded.split('/').all(|segment| segment != "." && segment != ".."), "{}", path);
                    prop_assert_eq!(decoded.matches('/').count(), path.matches('/').count());
                }
            }
        }
    }

    /// Decodes every escape, and leaves the rest as it is.
    fn decode(path: &str) -> String {
        let (mut decoded, mut rest) = (String::new(), path);
        while let Some(first) = rest.chars().next() {
            let escape = rest.strip_prefix('%').and_then(|after| after.get(..2));
            if let Some(byte) = escape.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
                decoded.push(char::from(byte));
                rest = &rest[3..];
            } else {
                decoded.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
        decoded
    }
}
