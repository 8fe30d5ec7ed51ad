//! Names of refs, by the rules of git-check-ref-format(1), and the patterns that rules have for them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Most bytes of a name.
const MOST: usize = 1_024;

/// Full name of a ref, such as `refs/heads/main`.
///
/// Every name is one that git takes. Names with control characters, without UTF-8, or with only one part after `refs/` are
/// refused as well.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RefName(Box<str>);

impl RefName {
    /// Parses the bytes of a name.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadRefName> {
        if bytes.len() > MOST {
            return Err(BadRefName::TooLong);
        }
        let name = std::str::from_utf8(bytes).map_err(|_| BadRefName::NotUtf8)?;
        let is_bad = |sign: char| sign.is_control() || " ~^:?*[\\".contains(sign);
        if name.contains(is_bad) {
            return Err(BadRefName::Character);
        }
        if name.contains("..") || name.contains("@{") {
            return Err(BadRefName::Sequence);
        }
        if name.ends_with('.') {
            return Err(BadRefName::Dot);
        }
        let mut parts = 0;
        for part in name.split('/') {
            parts += 1;
            match part {
                "" => return Err(BadRefName::EmptyPart),
                part if part.starts_with('.') => return Err(BadRefName::Dot),
                part if part.as_bytes().ends_with(b".lock") => return Err(BadRefName::Lock),
                _ => {}
            }
        }
        if !name.starts_with("refs/") || parts < 3 {
            return Err(BadRefName::NotFull);
        }
        Ok(Self(name.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true for a branch, whose updates may be fast-forwards. An update of any other ref replaces it.
    pub fn is_branch(&self) -> bool {
        self.0.starts_with("refs/heads/")
    }
}

impl fmt::Display for RefName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Bytes that are no name of a ref.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadRefName {
    #[error("a name of a ref is longer than 1024 bytes")]
    TooLong,
    #[error("a name of a ref is not UTF-8")]
    NotUtf8,
    #[error("a name of a ref has a control character, a space, or one of ~^:?*[\\")]
    Character,
    #[error("a name of a ref has `..` or `@{{` in it")]
    Sequence,
    #[error("a part of a name of a ref begins with a dot, or the name ends with one")]
    Dot,
    #[error("a part of a name of a ref is empty")]
    EmptyPart,
    #[error("a part of a name of a ref ends with `.lock`")]
    Lock,
    #[error("a name of a ref is not full, as `refs/heads/main` is")]
    NotFull,
}

/// Pattern for names of refs, such as `refs/heads/agent/*`.
///
/// It has at most one `*`, which matches any number of characters, also none and `/`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RefPattern(String);

impl RefPattern {
    /// Parses a pattern.
    pub fn parse(text: &str) -> Result<Self, BadRefPattern> {
        if text.matches('*').count() > 1 {
            return Err(BadRefPattern::Stars);
        }
        // A pattern that no name can match is refused. A part on each side of a slash is the least that a star has to take.
        RefName::parse(text.replace('*', "x/x").as_bytes())?;
        Ok(Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn matches(&self, name: &RefName) -> bool {
        match self.0.split_once('*') {
            None => self.0 == name.as_str(),
            Some((begin, end)) => name.as_str().strip_prefix(begin).is_some_and(|rest| rest.ends_with(end)),
        }
    }
}

impl fmt::Display for RefPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for RefPattern {
    type Error = BadRefPattern;

    fn try_from(text: String) -> Result<Self, BadRefPattern> {
        Self::parse(&text)
    }
}

impl From<RefPattern> for String {
    fn from(pattern: RefPattern) -> Self {
        pattern.0
    }
}

/// A text that is no pattern for refs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadRefPattern {
    #[error("a pattern for refs has at most one `*`: `refs/heads/agent/*`")]
    Stars,
    #[error("no ref matches this pattern: {0}")]
    Name(#[from] BadRefName),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_git_takes_are_names() {
        for name in [
            "refs/heads/main",
            "refs/heads/agent/fix-1",
            "refs/tags/v1.0",
            "refs/heads/-dash",
            "refs/heads/@",
            "refs/heads/a@b",
            "refs/heads/{x}",
            "refs/heads/ünïcode",
            "refs/for/main%topic=x",
            "refs/heads/a.lock.b",
            "refs/heads/HEAD",
        ] {
            assert_eq!(RefName::parse(name.as_bytes()).unwrap().as_str(), name);
        }
    }

    #[test]
    fn other_names_are_refused() {
        for (name, fault) in [
            (&b""[..], BadRefName::EmptyPart),
            (b"HEAD", BadRefName::NotFull),
            (b"refs/stash", BadRefName::NotFull),
            (b"heads/main/x", BadRefName::NotFull),
            (b"Refs/heads/main", BadRefName::NotFull),
            (b"refs/heads/", BadRefName::EmptyPart),
            (b"refs//heads", BadRefName::EmptyPart),
            (b"/refs/heads/x", BadRefName::EmptyPart),
            (b"refs/heads/../tags/x", BadRefName::Sequence),
            (b"refs/heads/a..b", BadRefName::Sequence),
            (b"refs/heads/x@{1}", BadRefName::Sequence),
            (b"refs/heads/.x", BadRefName::Dot),
            (b"refs/heads/x/./y", BadRefName::Dot),
            (b"refs/heads/x.", BadRefName::Dot),
            (b"refs/heads/x.lock", BadRefName::Lock),
            (b"refs/heads/x.lock/y", BadRefName::Lock),
            (b"refs/heads/a b", BadRefName::Character),
            (b"refs/heads/a\nb", BadRefName::Character),
            (b"refs/heads/a\x7fb", BadRefName::Character),
            (b"refs/heads/a\xc2\x9bb", BadRefName::Character),
            (b"refs/heads/a\\b", BadRefName::Character),
            (b"refs/heads/*", BadRefName::Character),
            (b"refs/heads/main^{}", BadRefName::Character),
            (b"refs/heads/\xff", BadRefName::NotUtf8),
            (&[b'x'; MOST + 1], BadRefName::TooLong),
        ] {
            assert_eq!(RefName::parse(name), Err(fault), "{}", String::from_utf8_lossy(name));
        }
    }

    #[test]
    fn a_star_matches_any_characters() {
        for (pattern, matched, other) in [
            (
                "refs/heads/agent/*",
                &["refs/heads/agent/a", "refs/heads/agent/a/b"][..],
                &["refs/heads/agent", "refs/heads/agents/a", "refs/tags/agent/a"][..],
            ),
            ("refs/heads/main", &["refs/heads/main"], &["refs/heads/main2", "refs/heads/Main"]),
            ("refs/heads/a*a", &["refs/heads/aa", "refs/heads/aba"], &["refs/heads/a", "refs/heads/ab"]),
            ("refs/*", &["refs/heads/x", "refs/tags/y"], &[]),
        ] {
            let pattern = RefPattern::parse(pattern).unwrap();
            let matches = |name: &&str| pattern.matches(&RefName::parse(name.as_bytes()).unwrap());
            assert!(matched.iter().all(matches), "{pattern}");
            assert!(
                !other.iter().filter(|name| RefName::parse(name.as_bytes()).is_ok()).any(matches),
                "{pattern}"
            );
        }
    }

    #[test]
    fn patterns_that_match_no_ref_are_refused() {
        for (text, fault) in [
            ("*", BadRefPattern::Name(BadRefName::NotFull)),
            ("agent/*", BadRefPattern::Name(BadRefName::NotFull)),
            ("main", BadRefPattern::Name(BadRefName::NotFull)),
            ("refs/heads/*/*", BadRefPattern::Stars),
            ("refs/heads/.*", BadRefPattern::Name(BadRefName::Dot)),
            ("refs/heads/*.lock", BadRefPattern::Name(BadRefName::Lock)),
            ("refs/heads/", BadRefPattern::Name(BadRefName::EmptyPart)),
            ("refs/heads/a b", BadRefPattern::Name(BadRefName::Character)),
        ] {
            assert_eq!(RefPattern::parse(text), Err(fault), "{text}");
        }
    }
}
