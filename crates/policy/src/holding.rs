//! Operations that a role or team holds, and how: the common part of both.

use std::collections::{BTreeMap, BTreeSet};

use operations::Operation;

use crate::names::{self, EVERY_TOOL, covers, speaking};
use document::{At, Fields};

/// The part of `exec` that the read-only rule covers. A role may have this without `exec`.
pub const EXEC_READ_ONLY: &str = "exec.read_only";

/// Most roles or teams that one may inherit from directly.
const MAX_PARENTS: usize = 16;

/// Way in which an operation is held. Ordered: by inheritance the greater one wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grant {
    /// The profile decides, but the call always needs consent, unless the profile is `unattended`.
    Ask,
    /// The profile decides.
    AsProfile,
}

/// Operations that are held, including inherited ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Holding {
    grants: BTreeMap<String, Grant>,
    denied: BTreeSet<String>,
}

impl Holding {
    pub(super) fn add(&mut self, lists: &Lists) {
        for (operations, grant) in [(&lists.allow, Grant::AsProfile), (&lists.ask, Grant::Ask)] {
            for operation in operations {
                let best = self.grants.entry(operation.clone()).or_insert(grant);
                *best = grant.max(*best);
            }
        }
        self.denied.extend(lists.deny.iter().cloned());
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (operation, grant) in &other.grants {
            let best = self.grants.entry(operation.clone()).or_insert(*grant);
            *best = (*grant).max(*best);
        }
        self.denied.extend(other.denied.iter().cloned());
    }

    /// Returns how `operation` is held. `read_only` says that the read-only rule covers the command.
    pub(super) fn grant(&self, operation: &str, read_only: bool) -> Option<Grant> {
        let own = speaking(&self.grants, operation).map(|(_, grant)| *grant);
        let part = read_only.then(|| self.grants.get(EXEC_READ_ONLY).copied()).flatten();
        own.max(part).filter(|_| !self.denies(operation, read_only))
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.grants.keys().map(String::as_str)
    }

    /// Returns true if the operation is denied, even if another entry grants it.
    pub(super) fn denies(&self, operation: &str, read_only: bool) -> bool {
        self.denied.contains(operation)
            || operation.starts_with("mcp.") && self.denied.iter().any(|key| covers(key, operation))
            || read_only && self.denied.contains(EXEC_READ_ONLY)
    }
}

/// The lists of operations as they are written in the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Lists {
    pub(super) allow: Vec<String>,
    pub(super) ask: Vec<String>,
    pub(super) deny: Vec<String>,
}

impl Lists {
    pub(super) fn read(at: &At<'_>, fields: &Fields<'_>) -> Self {
        let list = |key| fields.get(key).map_or_else(Vec::new, operations);
        let lists = Self { allow: list("allow"), ask: list("ask"), deny: list("deny") };
        for (one, other, names) in [
            (&lists.allow, &lists.ask, "`allow` and `ask`"),
            (&lists.allow, &lists.deny, "`allow` and `deny`"),
            (&lists.ask, &lists.deny, "`ask` and `deny`"),
        ] {
            if let Some(twice) = one.iter().find(|operation| other.contains(operation)) {
                at.problem(format!("`{twice}` is under both {names}; keep one"));
            }
        }
        lists
    }

    pub(super) fn is_empty(&self) -> bool {
        self.allow.is_empty() && self.ask.is_empty() && self.deny.is_empty()
    }
}

/// Reads a list of operation names, or `"*"` for all.
pub(super) fn operations(at: &At<'_>) -> Vec<String> {
    if at.is_text() {
        if at.text() == Some("*") {
            return Operation::NAMES.into_iter().chain([EVERY_TOOL]).map(str::to_owned).collect();
        }
        at.problem("must be a list of operations, or \"*\" for all");
        return Vec::new();
    }
    at.items().iter().filter_map(|item| names::key(item, item.text()?, &[EXEC_READ_ONLY])).collect()
}

/// Reads `inherits`: one name, or a list of names, of the same kind.
pub(super) fn parents(fields: &Fields<'_>, kind: &str) -> Vec<String> {
    fields.get("inherits").map_or_else(Vec::new, |at| {
        let names = at.one_or_more();
        if names.len() > MAX_PARENTS {
            at.problem(format!("a {kind} may inherit at most {MAX_PARENTS} others"));
        }
        names.iter().take(MAX_PARENTS).filter_map(At::text).map(str::to_owned).collect()
    })
}
