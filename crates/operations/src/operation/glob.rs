//! `glob`: files by name.

use jail::SandboxPath;
use serde_json::{Value, json};
use wire::v1::{GlobRequest, GlobResult};

use super::check::{MAX_GLOB, searched, text, within};
use super::{Answer, Class, Describe, Effect, Lane, Request, Sketch};
use crate::{CommandLimits, Malformed};

pub(super) const CLASS: Class = Class { name: "glob", lane: Lane::Container, effect: Effect::Looks };

/// Find files by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob {
    /// Directory to search in.
    pub path: SandboxPath,
    /// Pattern, relative to `path` unless it begins at a mount's root; at most 1,024 bytes.
    pub pattern: String,
    /// Include hidden files, and files that ignore files exclude.
    pub include_ignored: bool,
    /// Most results, 1 to 10,000.
    pub max_results: u32,
}

impl Request for Glob {
    type Message = GlobRequest;

    fn parse(message: GlobRequest, _: CommandLimits) -> Result<Self, Malformed> {
        let GlobRequest { path, pattern, include_ignored, max_results } = message;
        text("glob.pattern", &pattern, 1, MAX_GLOB)?;
        Ok(Self {
            path: searched("glob.path", &path, &pattern)?,
            pattern,
            include_ignored,
            max_results: within("glob.max_results", max_results, 200, 1, 10_000)?,
        })
    }

    fn message(&self) -> GlobRequest {
        GlobRequest {
            path: self.path.to_string(),
            pattern: self.pattern.clone(),
            include_ignored: self.include_ignored,
            max_results: Some(self.max_results),
        }
    }

    fn sketch(message: &GlobRequest) -> Sketch {
        (CLASS.name, json!({ "path": message.path, "pattern": message.pattern }))
    }
}

impl Describe for Glob {
    fn class(&self) -> Class {
        CLASS
    }

    fn paths(&self) -> Vec<&SandboxPath> {
        vec![&self.path]
    }

    fn sought(&self) -> (Vec<&SandboxPath>, Option<&str>) {
        (self.paths(), Some(&self.pattern))
    }
}

impl Answer for GlobResult {
    fn facts(&self) -> Value {
        json!({ "paths": self.paths.len(), "truncated": self.truncated })
    }
}
