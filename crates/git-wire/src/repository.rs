//! Paths of repositories on a server.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Most bytes of a path.
const MOST: usize = 512;
/// Most parts of a path.
const MOST_PARTS: usize = 16;

/// Path of a repository on its server, without a slash at its begin and without `.git` at its end.
///
/// `org/app` and `org/app.git` are the same repository. A path that servers could read in two ways is refused.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Repository(String);

impl Repository {
    /// Parses a path such as `org/app` or `org/app.git`.
    pub fn parse(path: &str) -> Result<Self, BadRepository> {
        normal(path, |_| false).map(Self)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the path without `.git`. `is_allowed` accepts parts that a path of a repository does not have.
fn normal(path: &str, is_allowed: impl Fn(&str) -> bool) -> Result<String, BadRepository> {
    if path.len() > MOST || path.split('/').count() > MOST_PARTS {
        return Err(BadRepository::TooLong);
    }
    let path = path.strip_suffix(".git").unwrap_or(path);
    for part in path.split('/').filter(|part| !is_allowed(part)) {
        check(part)?;
    }
    Ok(path.to_owned())
}

fn check(part: &str) -> Result<(), BadRepository> {
    let is_plain = |sign: u8| sign.is_ascii_alphanumeric() || b"-._~+@=".contains(&sign);
    if part.is_empty() {
        return Err(BadRepository::EmptyPart);
    }
    if !part.bytes().all(is_plain) {
        return Err(BadRepository::Character);
    }
    if part.starts_with('.') || part.ends_with('.') {
        return Err(BadRepository::Dot);
    }
    let lower = part.to_ascii_lowercase();
    let is_service = lower.starts_with("git-upload-") || lower.starts_with("git-receive-");
    if lower.as_bytes().ends_with(b".git") || is_service {
        return Err(BadRepository::Ambiguous);
    }
    Ok(())
}

/// A text that is no path of a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadRepository {
    #[error("a path of a repository has more than 512 bytes or more than 16 parts")]
    TooLong,
    #[error("a part of the path of a repository is empty; write it as `org/app`")]
    EmptyPart,
    #[error("a path of a repository has a character other than letters, digits, and -._~+@=/")]
    Character,
    #[error("a part of the path of a repository begins or ends with a dot")]
    Dot,
    #[error("a part of the path of a repository ends with `.git`, or has the name of a service of git")]
    Ambiguous,
}

/// Pattern for paths of repositories: `org/app`, or `org/*` for each repository that is directly below `org`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RepositoryPattern(String);

impl RepositoryPattern {
    /// Parses a pattern. A `*` is a whole part of the path, and matches exactly one part.
    pub fn parse(text: &str) -> Result<Self, BadRepository> {
        normal(text, |part| part == "*").map(Self)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn matches(&self, repository: &Repository) -> bool {
        let (mut pattern, mut path) = (self.0.split('/'), repository.0.split('/'));
        loop {
            match (pattern.next(), path.next()) {
                (None, None) => return true,
                (Some(one), Some(two)) if one == "*" || one == two => {}
                _ => return false,
            }
        }
    }
}

impl fmt::Display for RepositoryPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for RepositoryPattern {
    type Error = BadRepository;

    fn try_from(text: String) -> Result<Self, BadRepository> {
        Self::parse(&text)
    }
}

impl From<RepositoryPattern> for String {
    fn from(pattern: RepositoryPattern) -> Self {
        pattern.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_one_form() {
        for (path, form) in [
            ("org/app", "org/app"),
            ("org/app.git", "org/app"),
            ("app", "app"),
            ("git/group/sub-group/app_2.x.git", "git/group/sub-group/app_2.x"),
            ("~user/app", "~user/app"),
        ] {
            assert_eq!(Repository::parse(path).unwrap().as_str(), form);
        }
    }

    #[test]
    fn paths_that_could_be_read_in_two_ways_are_refused() {
        for (path, fault) in [
            ("", BadRepository::EmptyPart),
            ("/org/app", BadRepository::EmptyPart),
            ("org//app", BadRepository::EmptyPart),
            ("org/app/", BadRepository::EmptyPart),
            ("org/.git", BadRepository::EmptyPart),
            ("org/../app", BadRepository::Dot),
            ("org/./app", BadRepository::Dot),
            ("org/.hidden", BadRepository::Dot),
            ("org/app.", BadRepository::Dot),
            ("org/%61pp", BadRepository::Character),
            ("org/%2e%2e/app", BadRepository::Character),
            ("org\\app", BadRepository::Character),
            ("org/app;x", BadRepository::Character),
            ("org/äpp", BadRepository::Character),
            ("org/a pp", BadRepository::Character),
            ("org/app\0", BadRepository::Character),
            ("org/*", BadRepository::Character),
            ("org/app.git.git", BadRepository::Ambiguous),
            ("org/app.GIT", BadRepository::Ambiguous),
            ("org/secret.git/app", BadRepository::Ambiguous),
            ("org/app/git-receive-pack", BadRepository::Ambiguous),
            (&"x".repeat(MOST + 1), BadRepository::TooLong),
            (&["x"; MOST_PARTS + 1].join("/"), BadRepository::TooLong),
        ] {
            assert_eq!(Repository::parse(path), Err(fault), "{path}");
        }
    }

    #[test]
    fn a_pattern_matches_whole_parts() {
        for (pattern, matched, other) in [
            ("org/app", &["org/app", "org/app.git"][..], &["org/app2", "org/App", "x/org/app", "org"][..]),
            ("org/app.git", &["org/app"], &["org/app/wiki"]),
            ("org/*", &["org/app", "org/b.git"], &["org", "org/a/b", "orgs/a"]),
            ("*/app", &["org/app"], &["app", "org/sub/app"]),
        ] {
            let pattern = RepositoryPattern::parse(pattern).unwrap();
            let matches = |path: &&str| pattern.matches(&Repository::parse(path).unwrap());
            assert!(matched.iter().all(matches), "{pattern}");
            assert!(!other.iter().any(matches), "{pattern}");
        }
    }

    #[test]
    fn a_star_is_a_whole_part() {
        for text in ["org/a*", "**", "org/**", "*.git/x"] {
            assert!(RepositoryPattern::parse(text).is_err(), "{text}");
        }
    }
}
