//! Requests to find files by name and text in files.

use super::Malformed;
use super::check::{path_or_root, text, within};
use crate::Operation;

const MAX_PATTERN: usize = 4_096;
const MAX_GLOB: usize = 1_024;

/// Becomes [`crate::Glob`].
#[derive(Debug, Clone, Default)]
pub struct Glob {
    /// Default `@project`.
    pub path: String,
    /// Required.
    pub pattern: String,
    /// Include hidden files and what ignore files exclude.
    pub include_ignored: bool,
    /// 1 to 10,000, default 200.
    pub max_results: Option<u32>,
}

impl Glob {
    /// Validates.
    pub fn into_operation(self) -> Result<Operation, Malformed> {
        text("glob.pattern", &self.pattern, 1, MAX_GLOB)?;
        Ok(Operation::Glob(crate::Glob {
            path: path_or_root("glob.path", &self.path)?,
            pattern: self.pattern,
            include_ignored: self.include_ignored,
            max_results: within("glob.max_results", self.max_results, 200, 1, 10_000)?,
        }))
    }
}

/// Becomes [`crate::Grep`].
#[derive(Debug, Clone, Default)]
pub struct Grep {
    /// Default `@project`.
    pub path: String,
    /// Required. `/…/` and `/…/i` are regular expressions, whatever `regex` says.
    pub pattern: String,
    /// `pattern` is a regular expression.
    pub regex: bool,
    /// Ignore case.
    pub case_insensitive: bool,
    /// 0 to 20, default 1.
    pub before: Option<u32>,
    /// 0 to 20, default 1.
    pub after: Option<u32>,
    /// Empty is every file.
    pub glob: String,
    /// 1 to 1,000, default 50.
    pub max_matches: Option<u32>,
    /// Search hidden and ignored files, too.
    pub include_ignored: bool,
}

impl Grep {
    /// Validates.
    pub fn into_operation(self) -> Result<Operation, Malformed> {
        text("grep.pattern", &self.pattern, 1, MAX_PATTERN)?;
        text("grep.glob", &self.glob, 0, MAX_GLOB)?;
        let (pattern, regex, case_insensitive) = match slashed(&self.pattern) {
            Some((inner, ignore_case)) => (inner.to_owned(), true, ignore_case || self.case_insensitive),
            None => (self.pattern, self.regex, self.case_insensitive),
        };
        Ok(Operation::Grep(crate::Grep {
            path: path_or_root("grep.path", &self.path)?,
            pattern,
            regex,
            case_insensitive,
            before: within("grep.before", self.before, 1, 0, 20)?,
            after: within("grep.after", self.after, 1, 0, 20)?,
            glob: Some(self.glob).filter(|glob| !glob.is_empty()),
            max_matches: within("grep.max_matches", self.max_matches, 50, 1, 1_000)?,
            include_ignored: self.include_ignored,
        }))
    }
}

/// What is between the slashes of `/…/` or `/…/i`, and whether the `i` is there.
fn slashed(pattern: &str) -> Option<(&str, bool)> {
    let rest = pattern.strip_prefix('/')?;
    let (inner, ignore_case) = match rest.strip_suffix("/i") {
        Some(inner) => (inner, true),
        None => (rest.strip_suffix('/')?, false),
    };
    (!inner.is_empty()).then_some((inner, ignore_case))
}
