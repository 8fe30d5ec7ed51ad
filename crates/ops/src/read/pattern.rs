//! Glob patterns over paths, by the convention of `.gitignore` and ripgrep's `-g`.
//!
//! `*` and `?` stay within a component and `**` does not. A pattern without a slash is for the last component at any
//! depth; with one it is for the path from where the search begins. A slash at the end means everything below.

use globset::{ErrorKind, GlobBuilder, GlobSet, GlobSetBuilder};
use jail::excerpt;

use crate::{Reason, ToolFailure};

/// A compiled pattern.
#[derive(Debug)]
pub(super) struct Pattern {
    matcher: GlobSet,
    names_hidden: bool,
}

impl Pattern {
    pub(super) fn compile(text: &str) -> Result<Self, ToolFailure> {
        let refused = |why: &str| {
            ToolFailure::new(
                Reason::InvalidArgument,
                format!("the glob pattern is not valid: {}", excerpt(why)),
            )
        };
        let given = text.strip_prefix("./").unwrap_or(text);
        let below = if given.ends_with('/') { "**" } else { "" };
        let anchored = given.trim_start_matches('/');
        if anchored.is_empty() {
            return Err(refused("it is empty"));
        }
        let any_depth = if given.contains('/') { "" } else { "**/" };
        let glob = GlobBuilder::new(&format!("{any_depth}{anchored}{below}"))
            .literal_separator(true)
            .backslash_escape(true)
            .build()
            .map_err(|error| refused(&error.kind().to_string()))?;
        // A set of one: a single matcher panics where a set answers that a pattern is too deep or too large.
        let matcher = GlobSetBuilder::new().add(glob).build().map_err(|error| match error.kind() {
            ErrorKind::Regex(_) => refused("it is too large, or its braces are nested too deeply"),
            kind => refused(&kind.to_string()),
        })?;
        let names_hidden = given.starts_with('.') || ["/.", "{.", ",."].iter().any(|dot| given.contains(dot));
        Ok(Self { matcher, names_hidden })
    }

    /// Whether the path, relative to where the search begins, matches.
    pub(super) fn matches(&self, path: &str) -> bool {
        self.matcher.is_match(path)
    }

    /// Whether it asks for names that begin with a dot, so that they are not to be left out.
    pub(super) const fn names_hidden(&self) -> bool {
        self.names_hidden
    }
}

#[cfg(test)]
mod property;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        for (pattern, path, expected) in [
            ("*.rs", "a.rs", true),
            ("*.rs", "src/deep/a.rs", true),
            ("src/*.rs", "src/a.rs", true),
            ("src/*.rs", "src/deep/a.rs", false),
            ("src/*.rs", "other/src/a.rs", false),
            ("src/**/*.rs", "src/a.rs", true),
            ("src/**/*.rs", "src/x/y/a.rs", true),
            ("**/a.rs", "a.rs", true),
            ("/a.rs", "a.rs", true),
            ("/a.rs", "src/a.rs", false),
            ("./src/a.rs", "src/a.rs", true),
            ("src/", "src/deep/a.rs", true),
            ("*.{rs,toml}", "x/Cargo.toml", true),
            ("[ab].rs", "b.rs", true),
            ("a?b", "a/b", false),
            ("*.rs", "a.RS", false),
        ] {
            assert_eq!(Pattern::compile(pattern).unwrap().matches(path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused_with_the_reason() {
        let deep = format!("{}a{}", "{".repeat(300), "}".repeat(300));
        for pattern in ["[a", "{a", "", "/", "a\\", &deep] {
            let failure = Pattern::compile(pattern).unwrap_err();
            assert_eq!(failure.reason, Reason::InvalidArgument, "{pattern}");
            assert!(failure.message.contains("not valid: "), "{failure:?}");
        }
    }

    #[test]
    fn a_dot_in_front_asks_for_hidden_names() {
        for (pattern, expected) in
            [(".github/*", true), ("a/.b", true), ("{.x,y}/z", true), ("*.rs", false), ("./a", false)]
        {
            assert_eq!(Pattern::compile(pattern).unwrap().names_hidden(), expected, "{pattern}");
        }
    }
}
