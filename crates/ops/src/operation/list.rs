//! `list`: the entries of a directory.

use jail::SandboxPath;
use wire::v1::ListRequest;

use super::check::{path_or_root, within};
use super::{Describe, Lane, Request, Sketch, Texts};
use crate::Malformed;

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
    /// At most so many entries, 1 to 10,000.
    pub max_entries: u32,
}

impl Request for List {
    type Message = ListRequest;

    fn parse(message: ListRequest) -> Result<Self, Malformed> {
        let ListRequest { path, depth, include_hidden, include_symlinks, max_entries } = message;
        Ok(Self {
            path: path_or_root("list.path", &path)?,
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

    fn sketch(message: &ListRequest) -> Sketch<'_> {
        Sketch("list", vec![("path", Texts::One(&message.path))])
    }
}

impl Describe for List {
    fn kind(&self) -> &'static str {
        "list"
    }

    fn lane(&self) -> Lane {
        Lane::Container
    }

    fn has_effect(&self) -> bool {
        false
    }

    fn paths(&self) -> Vec<&SandboxPath> {
        vec![&self.path]
    }
}
