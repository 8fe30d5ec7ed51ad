//! `list`: the entries of a directory.

use jail::SandboxPath;
use serde_json::{Value, json};
use wire::v1::{ListRequest, ListResult};

use super::check::{any_path_or_root, known, within};
use super::{Answer, Class, Describe, Effect, Lane, Request, Sketch};
use crate::{CommandLimits, EntryType, Malformed};

pub(super) const CLASS: Class = Class { name: "list", lane: Lane::Container, effect: Effect::Looks };

/// List a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List {
    /// The directory.
    pub path: SandboxPath,
    /// Levels to descend, 1 to 16.
    pub depth: u32,
    /// Include names that begin with a dot.
    pub include_hidden: bool,
    /// Include symbolic links.
    pub include_symlinks: bool,
    /// Most entries, 1 to 10,000.
    pub max_entries: u32,
}

impl List {
    /// Lists the direct children of a directory, with the defaults of the API.
    pub fn new(path: SandboxPath) -> Self {
        Self { path, depth: 1, include_hidden: false, include_symlinks: false, max_entries: 200 }
    }
}

impl Request for List {
    type Message = ListRequest;

    fn parse(message: ListRequest, _: CommandLimits) -> Result<Self, Malformed> {
        let ListRequest { path, depth, include_hidden, include_symlinks, max_entries } = message;
        Ok(Self {
            path: any_path_or_root("list.path", &path)?,
            depth: within("list.depth", depth, 1, 1, 16)?,
            include_hidden,
            include_symlinks,
            max_entries: within("list.max_entries", max_entries, 200, 1, 10_000)?,
        })
    }

    fn message(&self) -> ListRequest {
        ListRequest {
            path: self.path.to_string(),
            depth: Some(self.depth),
            include_hidden: self.include_hidden,
            include_symlinks: self.include_symlinks,
            max_entries: Some(self.max_entries),
        }
    }

    fn sketch(message: &ListRequest) -> Sketch {
        (CLASS.name, json!({ "path": message.path }))
    }
}

impl Describe for List {
    fn class(&self) -> Class {
        CLASS
    }

    fn paths(&self) -> Vec<&SandboxPath> {
        vec![&self.path]
    }

    /// A listing shows names only, of one directory.
    fn sought(&self) -> (Vec<&SandboxPath>, Option<&str>) {
        (Vec::new(), None)
    }
}

impl Answer for ListResult {
    fn check(&mut self) -> Result<(), Malformed> {
        known(self.entries.iter().all(|entry| entry.r#type() != EntryType::Unspecified), "list.entries.type")
    }

    fn facts(&self) -> Value {
        json!({ "path": self.path, "entries": self.entries.len(), "truncated": self.truncated })
    }
}
