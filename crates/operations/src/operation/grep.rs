//! `grep`: text in files.

use jail::SandboxPath;
use serde_json::{Value, json};
use wire::v1::{GrepRequest, GrepResult};

use super::check::{MAX_GLOB, searched, text, within};
use super::{Answer, Class, Describe, Effect, Lane, Request, Sketch};
use crate::{CommandLimits, Malformed};

pub(super) const CLASS: Class = Class { name: "grep", lane: Lane::Container, effect: Effect::Reads };

const MAX_PATTERN: usize = 4_096;

/// Find text in files.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // as in the API: each flag is independent
pub struct Grep {
    /// Directory or file.
    pub path: SandboxPath,
    /// Literal text or regular expression, 1 to 4,096 bytes. The `/…/i` form has been resolved already.
    pub pattern: String,
    /// `pattern` is a regular expression.
    pub regex: bool,
    /// Ignore case.
    pub case_insensitive: bool,
    /// Lines of context before, 0 to 20.
    pub before: u32,
    /// Lines of context after, 0 to 20.
    pub after: u32,
    /// Only files whose path matches: relative to `path` unless the pattern begins at a mount's root.
    pub glob: Option<String>,
    /// Most matches, 1 to 1,000.
    pub max_matches: u32,
    /// Search hidden and ignored files, too.
    pub include_ignored: bool,
    /// Only the first match of each file; `max_matches` counts files.
    pub one_per_file: bool,
}

impl Grep {
    /// Searches a directory or file for literal text, with the defaults of the API.
    pub fn new(path: SandboxPath, pattern: impl Into<String>) -> Self {
        Self {
            path,
            pattern: pattern.into(),
            regex: false,
            case_insensitive: false,
            before: 1,
            after: 1,
            glob: None,
            max_matches: 50,
            include_ignored: false,
            one_per_file: false,
        }
    }
}

impl Request for Grep {
    type Message = GrepRequest;

    fn parse(message: GrepRequest, _: CommandLimits) -> Result<Self, Malformed> {
        text("grep.pattern", &message.pattern, 1, MAX_PATTERN)?;
        text("grep.glob", &message.glob, 0, MAX_GLOB)?;
        let (pattern, regex, case_insensitive) = match slashed(&message.pattern) {
            Some((inner, ignore_case)) if !message.regex => {
                (inner.to_owned(), true, ignore_case || message.case_insensitive)
            }
            _ => (message.pattern, message.regex, message.case_insensitive),
        };
        Ok(Self {
            path: searched("grep.path", &message.path, &message.glob)?,
            pattern,
            regex,
            case_insensitive,
            before: within("grep.before", message.before, 1, 0, 20)?,
            after: within("grep.after", message.after, 1, 0, 20)?,
            glob: Some(message.glob).filter(|glob| !glob.is_empty()),
            max_matches: within("grep.max_matches", message.max_matches, 50, 1, 1_000)?,
            include_ignored: message.include_ignored,
            one_per_file: message.one_per_file,
        })
    }

    fn message(&self) -> GrepRequest {
        GrepRequest {
            path: self.path.to_string(),
            pattern: self.pattern.clone(),
            regex: self.regex,
            case_insensitive: self.case_insensitive,
            before: Some(self.before),
            after: Some(self.after),
            glob: self.glob.clone().unwrap_or_default(),
            max_matches: Some(self.max_matches),
            include_ignored: self.include_ignored,
            one_per_file: self.one_per_file,
        }
    }

    fn sketch(message: &GrepRequest) -> Sketch {
        (CLASS.name, json!({ "path": message.path, "pattern": message.pattern }))
    }
}

impl Grep {
    /// Returns true for a pattern written as `/…/` or `/…/i`, which is a regular expression without the flag `regex`.
    ///
    /// With that flag a pattern keeps its slashes.
    pub fn is_slashed(pattern: &str) -> bool {
        slashed(pattern).is_some()
    }
}

/// Returns the text between the slashes of `/…/` or `/…/i`, and true if the `i` is there.
fn slashed(pattern: &str) -> Option<(&str, bool)> {
    let rest = pattern.strip_prefix('/')?;
    let (inner, ignore_case) = match rest.strip_suffix("/i") {
        Some(inner) => (inner, true),
        None => (rest.strip_suffix('/')?, false),
    };
    (!inner.is_empty()).then_some((inner, ignore_case))
}

impl Describe for Grep {
    fn class(&self) -> Class {
        CLASS
    }

    fn paths(&self) -> Vec<&SandboxPath> {
        vec![&self.path]
    }

    fn searches_beneath(&self) -> bool {
        true
    }

    fn sought(&self) -> (Vec<&SandboxPath>, Option<&str>) {
        (self.paths(), self.glob.as_deref())
    }
}

impl Answer for GrepResult {
    fn facts(&self) -> Value {
        json!({
            "matches": self.matches.len(), "files_searched": self.files_searched, "truncated": self.truncated,
        })
    }
}
