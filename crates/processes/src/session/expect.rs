//! Patterns that a client waits for in a session's output.

use std::ops::Range;

use operations::Malformed;
use regex::bytes::{Regex, RegexBuilder};

/// Most memory of one expression, and as much again for its search.
const MOST: usize = 1 << 20;

/// Regular expressions, which are searched in linear time.
#[derive(Debug)]
pub(crate) struct Expect(Vec<Regex>);

impl Expect {
    pub(crate) fn compile(field: &str, patterns: &[String]) -> Result<Self, Malformed> {
        let compiled = patterns.iter().enumerate().map(|(number, pattern)| {
            let built = RegexBuilder::new(pattern).size_limit(MOST).dfa_size_limit(MOST).build();
            built.map_err(|error| {
                let why = match error {
                    regex::Error::CompiledTooBig(_) => "is too large when it is compiled",
                    _ => "is not a supported regular expression (no look-around, no back references)",
                };
                Malformed::new(&format!("{field}[{number}]"), why)
            })
        });
        compiled.collect::<Result<_, _>>().map(Self)
    }

    /// Returns the match that begins first, with the number of its expression.
    pub(super) fn find(&self, bytes: &[u8]) -> Option<(u32, Range<usize>)> {
        let found = (0..).zip(&self.0).filter_map(|(which, one)| Some((which, one.find(bytes)?.range())));
        found.min_by_key(|(which, range)| (range.start, *which))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compile(patterns: &[&str]) -> Result<Expect, Malformed> {
        let patterns: Vec<String> = patterns.iter().map(|one| (*one).to_owned()).collect();
        Expect::compile("session.expect", &patterns)
    }

    #[test]
    fn the_first_match_counts() {
        let expect = compile(&["[$#] $", "password: "]).unwrap();
        assert_eq!(expect.find(b"password: # "), Some((1, 0..10)));
        assert_eq!(expect.find(b"\xff\xff$ "), Some((0, 2..4)));
        assert_eq!(expect.find(b"$"), None);
        assert_eq!(compile(&[]).unwrap().find(b"x"), None);
    }

    #[test]
    fn invalid_or_large_expression_is_refused_by_index() {
        assert_eq!(compile(&["a", "("]).unwrap_err().field, "session.expect[1]");
        assert_eq!(compile(&[r"(a)\1"]).unwrap_err().field, "session.expect[0]");
        assert!(compile(&["((a{1000}){1000}){1000}"]).is_err());
    }
}
