//! Patterns of paths: `src/**`, `@state/*.md`, `/etc/**`.

use std::fmt;

use globset::{GlobBuilder, GlobSet};
use jail::{Mount, SandboxPath};
use serde::{Deserialize, Serialize};

/// Longest pattern, bytes.
const MAX_BYTES: usize = 1_024;

/// Pattern of paths in a run, in alias form.
///
/// A pattern that names no mount is beneath `@project`. `*` and `?` stop at `/`, `**` does not; `[…]` and `{…,…}` work as in most shells. A
/// pattern that begins with `/` is for the container's own files, or for the mount that the container has at that path.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PathPattern {
    text: String,
    matcher: GlobSet,
    /// Directory above all paths that the pattern can match.
    base: String,
}

/// Error of a text that is not a pattern of paths.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadPattern(String);

impl PathPattern {
    pub fn parse(text: &str) -> Result<Self, BadPattern> {
        let bad = |message: &str| Err(BadPattern(message.to_owned()));
        if text.is_empty() || text.len() > MAX_BYTES {
            return bad("must have 1 to 1024 bytes");
        }
        if text.chars().any(char::is_control) || text.contains('\\') {
            return bad("must not have `\\` and control characters");
        }
        let names = text.strip_prefix('/').unwrap_or(text);
        if names.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return bad("must not have empty parts, `.` or `..`");
        }
        let text = match text.strip_prefix('@') {
            None if text.starts_with('/') => absolute(text)?,
            None => format!("@project/{text}"),
            Some(rest) if matches!(rest.split('/').next(), Some("project" | "pkg" | "state")) => {
                text.to_owned()
            }
            Some(_) => return bad("begins with an unknown mount; there are @project, @pkg and @state"),
        };
        let matcher = compile(&text)?;
        let parts = text.split('/');
        let literal = parts.take_while(|part| !part.contains(['*', '?', '[', '{']));
        let base = literal.collect::<Vec<_>>().join("/");
        Ok(Self { text, matcher, base })
    }

    /// Returns the pattern as it is stored and shown.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns true if the pattern matches this path.
    pub fn matches(&self, path: &SandboxPath) -> bool {
        self.matches_text(&path.to_string())
    }

    /// Returns true if the pattern matches a path in alias form.
    pub(crate) fn matches_text(&self, path: &str) -> bool {
        self.matcher.is_match(path)
    }

    /// Returns true if the pattern matches a path in alias form, or everything beneath it.
    pub(crate) fn takes_in(&self, path: &str) -> bool {
        self.matches_text(path) || self.text.strip_suffix("/**") == Some(path)
    }

    /// Returns true if a path beneath this directory may match, or a path beneath such a path.
    pub fn may_be_beneath(&self, directory: &SandboxPath) -> bool {
        let directory = directory.to_string();
        within(&self.base, &directory) || within(&directory, &self.base)
    }
}

/// Converts a pattern to the form of paths. A pattern over mounts and other directories would match only one of their two forms.
fn absolute(text: &str) -> Result<String, BadPattern> {
    let (first, _) = text[1..].split_once('/').unwrap_or((&text[1..], ""));
    if first.contains(['*', '?', '[', '{', '@']) {
        return Err(BadPattern(
            "the first name of an absolute pattern must be plain, such as /etc/**".to_owned(),
        ));
    }
    let top = &text[..=first.len()];
    let mount = Mount::ALL.into_iter().find(|mount| mount.container_path() == top);
    Ok(mount.map_or_else(|| text.to_owned(), |mount| format!("{mount}{}", &text[top.len()..])))
}

/// Returns true if `inner` is `outer` or beneath it.
pub(crate) fn within(inner: &str, outer: &str) -> bool {
    if outer == "/" {
        return inner.starts_with('/');
    }
    inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn compile(text: &str) -> Result<GlobSet, BadPattern> {
    let built = GlobBuilder::new(text).literal_separator(true).backslash_escape(false).build();
    // A set, because compiling a set returns an error where compiling a single pattern panics.
    built
        .and_then(|glob| GlobSet::builder().add(glob).build())
        .map_err(|error| BadPattern(format!("is no pattern: {}", error.kind())))
}

impl TryFrom<String> for PathPattern {
    type Error = BadPattern;

    fn try_from(text: String) -> Result<Self, BadPattern> {
        Self::parse(&text)
    }
}

impl From<PathPattern> for String {
    fn from(pattern: PathPattern) -> Self {
        pattern.text
    }
}

impl PartialEq for PathPattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for PathPattern {}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
