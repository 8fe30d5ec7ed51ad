//! The paths that requests may have.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Longest pattern, bytes.
const MOST: usize = 256;

/// A pattern for the path of a request, without its query: `/v1/*`. A `*` is any number of characters, also none, and also `/`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PathPattern(String);

impl PathPattern {
    /// Parses a pattern that at least one request could match.
    pub fn parse(text: &str) -> Result<Self, BadPath> {
        if !text.starts_with('/') {
            return Err(BadPath::Beginning);
        }
        if text.len() > MOST {
            return Err(BadPath::Long);
        }
        if let Some(other) = text.chars().find(|c| !c.is_ascii_graphic()) {
            return Err(BadPath::Character(other));
        }
        if text.contains(['?', '#']) {
            return Err(BadPath::Query);
        }
        if text.contains("**") {
            return Err(BadPath::Stars);
        }
        if !is_plain_path(&text.replace('*', "x")) {
            return Err(BadPath::Ambiguous);
        }
        Ok(Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true for a path, without its query, that the pattern has. A path that is not plain has no pattern.
    pub fn matches(&self, path: &str) -> bool {
        is_plain_path(path) && has_form(self.0.as_bytes(), path.as_bytes())
    }
}

/// Returns true for a path that all servers read in the same way.
///
/// Servers differ about `.` and `..`, encoded or not, an encoded or doubled slash, a backslash, NUL, parameters after `;`, a `%`
/// that is no escape, and an escape of an escape.
pub fn is_plain_path(path: &str) -> bool {
    let bytes = path.as_bytes();
    let is_refused = |byte: &u8| !byte.is_ascii_graphic() || matches!(byte, b'\\' | b';' | b'?' | b'#');
    if !path.starts_with('/') || bytes.iter().any(is_refused) || path.contains("//") {
        return false;
    }
    let mut escapes = path.split('%').skip(1);
    let is_escape = |after: &str| {
        let code = after.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        // A server that decodes twice sees an escape in `%252e`.
        let is_escaped_again =
            code == Some(b'%') && after.as_bytes().get(2).is_some_and(u8::is_ascii_hexdigit);
        // A sign would be read as a part of the number.
        !after.starts_with('+')
            && !is_escaped_again
            && code.is_some_and(|code| !matches!(code, 0 | b'/' | b'\\'))
    };
    escapes.all(is_escape) && !path.split('/').any(is_dots)
}

/// Returns true for a segment that some server reads as this directory or the one above.
fn is_dots(segment: &str) -> bool {
    // Longer segments cannot be dots in any spelling.
    segment.len() <= 6 && matches!(segment.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..")
}

/// Compares a text with a pattern. A failure goes back to the last star alone, so the time is bounded by the product of the lengths.
fn has_form(pattern: &[u8], text: &[u8]) -> bool {
    let (mut in_pattern, mut in_text) = (0, 0);
    let mut star = None;
    while let Some(byte) = text.get(in_text) {
        match pattern.get(in_pattern) {
            Some(b'*') => {
                star = Some((in_pattern, in_text));
                in_pattern += 1;
            }
            Some(expected) if expected == byte => {
                in_pattern += 1;
                in_text += 1;
            }
            _ => {
                let Some((at, from)) = star else { return false };
                star = Some((at, from + 1));
                in_pattern = at + 1;
                in_text = from + 1;
            }
        }
    }
    pattern.iter().skip(in_pattern).all(|byte| *byte == b'*')
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for PathPattern {
    type Error = BadPath;

    fn try_from(text: String) -> Result<Self, BadPath> {
        Self::parse(&text)
    }
}

impl From<PathPattern> for String {
    fn from(pattern: PathPattern) -> Self {
        pattern.0
    }
}

/// A text that is no pattern for paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadPath {
    #[error("a path begins with `/`, such as `/v1/*`")]
    Beginning,
    #[error("a path has at most {MOST} bytes")]
    Long,
    #[error("a path consists of visible ASCII characters; it has {0:?}")]
    Character(char),
    #[error("the query of a request is not compared; write the path alone")]
    Query,
    #[error("one `*` is any number of characters; write it once")]
    Stars,
    #[error(
        "servers read this path in different ways, so no request may have it: leave out `.` and `..`, `//`, `\\`, `;`, \
         `%2f`, `%5c`, `%00` and a `%` that is no escape"
    )]
    Ambiguous,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_star_is_any_number_of_characters_and_nothing_else_is_a_wildcard() {
        for (pattern, matched, other) in [
            ("/v1/*", &["/v1/", "/v1/a", "/v1/a/b"][..], &["/v1", "/v2/a", "/av1/a", "/V1/a"][..]),
            ("/v1", &["/v1"], &["/v1/", "/v1a", "/"]),
            ("/*/end", &["/a/end", "/a/b/end", "/end/end"], &["/end", "/a/end/b", "/a/ends"]),
            ("/a*b*c", &["/abc", "/axbxc", "/abbcc", "/abcbc"], &["/ab", "/acb", "/abcd"]),
            ("/*", &["/", "/a/b"], &["", "*", "a"]),
            ("/a.[b]", &["/a.[b]"], &["/axb", "/a.b"]),
            ("/a%20b", &["/a%20b"], &["/a b", "/a+b"]),
        ] {
            let parsed = PathPattern::parse(pattern).unwrap();
            assert!(matched.iter().all(|path| parsed.matches(path)), "{pattern}: {matched:?}");
            assert!(!other.iter().any(|path| parsed.matches(path)), "{pattern}: {other:?}");
        }
    }

    #[test]
    fn a_path_that_servers_read_in_different_ways_matches_nothing() {
        let every = PathPattern::parse("/*").unwrap();
        for path in [
            "/v1/../admin",
            "/v1/..",
            "/./v1",
            "/v1/%2e%2e/admin",
            "/v1/%2E./admin",
            "/v1/.%2e",
            "/v1/%2e",
            "/v1%2fadmin",
            "/v1%2Fadmin",
            "/v1%5cadmin",
            "/v1\\admin",
            "/v1//admin",
            "//v1",
            "/v1%00",
            "/v1/%252e%252e/admin",
            "/v1%252fadmin",
            "/v1;a=b",
            "/v1%",
            "/v1%2",
            "/v1%zz",
            "/v1%+1",
            "/v1%é0",
            "/v1/é",
            "/v1/ a",
            "/v1?a",
            "/v1#a",
            "/v1\0",
            "v1",
            "*",
            "",
        ] {
            assert!(!every.matches(path), "{path:?}");
        }
        for path in [
            "/v1/...",
            "/v1/.well-known",
            "/v1/a..b",
            "/v1/%2ea",
            "/a%20b",
            "/100%25",
            "/100%25/af",
            "/v1/a:b@c,d=e&f+g~!$'()",
        ] {
            assert!(every.matches(path), "{path:?}");
        }
    }

    #[test]
    fn patterns_that_no_request_could_match_are_refused() {
        for (text, error) in [
            ("", BadPath::Beginning),
            ("*", BadPath::Beginning),
            ("v1/*", BadPath::Beginning),
            ("https://example.org/", BadPath::Beginning),
            ("/a b", BadPath::Character(' ')),
            ("/é", BadPath::Character('é')),
            ("/a\n", BadPath::Character('\n')),
            ("/a?b=c", BadPath::Query),
            ("/a#b", BadPath::Query),
            ("/a/**", BadPath::Stars),
            ("/a/../*", BadPath::Ambiguous),
            ("/a//b", BadPath::Ambiguous),
            ("/a%2Fb", BadPath::Ambiguous),
            ("/a%2*", BadPath::Ambiguous),
            ("/a;b", BadPath::Ambiguous),
        ] {
            assert_eq!(PathPattern::parse(text), Err(error), "{text:?}");
        }
        assert_eq!(PathPattern::parse(&format!("/{}", "a".repeat(256))), Err(BadPath::Long));
        assert!(PathPattern::parse(&format!("/{}", "a".repeat(255))).is_ok());
    }

    #[test]
    fn many_stars_take_bounded_time() {
        let pattern = PathPattern::parse(&format!("/{}b", "*a".repeat(127))).unwrap();
        assert!(!pattern.matches(&format!("/{}", "a".repeat(100_000))));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5_000))]

        #[test]
        fn a_path_matches_only_if_all_servers_read_it_in_one_way(
            pattern in "/[a-c*/]{0,8}", path in "/[a-c/.%2eEfF5;\\\\]{0,10}",
        ) {
            let is_plain = is_plain_path(&path);
            let decoded = path.to_ascii_lowercase().replace("%2e", ".").replace("%2f", "/").replace("%5c", "\\");
            let is_read_otherwise = decoded.contains("//")
                || decoded.contains(['\\', ';'])
                || decoded.split('/').any(|segment| segment == "." || segment == "..");
            prop_assert!(!is_plain || !is_read_otherwise, "{}", path);
            if let Ok(parsed) = PathPattern::parse(&pattern) {
                prop_assert!(is_plain || !parsed.matches(&path));
                prop_assert_eq!(parsed.matches(&path), is_plain && is_of_form(&pattern, &path), "{} {}", pattern, path);
                prop_assert_eq!(PathPattern::parse(parsed.as_str()), Ok(parsed));
            }
        }
    }

    /// Compares a text with a pattern in the plainest way.
    fn is_of_form(pattern: &str, text: &str) -> bool {
        match pattern.split_at_checked(1) {
            None => text.is_empty(),
            Some(("*", rest)) => (0..=text.len()).any(|skipped| is_of_form(rest, &text[skipped..])),
            Some((first, rest)) => text.strip_prefix(first).is_some_and(|text| is_of_form(rest, text)),
        }
    }
}
