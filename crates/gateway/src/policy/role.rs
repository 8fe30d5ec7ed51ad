//! Roles: which operations exist for an agent, and which of them need consent.

use std::collections::BTreeMap;

use ops::Operation;
use serde::Serialize;

use super::suggest::nearest;
use super::walk::At;

/// Roles that one role may inherit directly.
const MAX_PARENTS: usize = 16;

/// The part of `exec` that the read-only rule lets through. A role may be given this without `exec`.
pub const EXEC_READ_ONLY: &str = "exec.read_only";

/// How a role holds an operation. Ordered: the greater one wins when it is held twice, by inheritance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grant {
    /// As the profile says, but never without consent, unless the profile is `unattended`.
    Ask,
    /// As the profile says.
    AsProfile,
}

/// A role, with what it inherits resolved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Role {
    /// For people; may be missing.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Roles whose grants this one has, too.
    pub inherits: Vec<String>,
    /// Held as [`Grant::AsProfile`].
    pub allow: Vec<&'static str>,
    /// Held as [`Grant::Ask`].
    pub ask: Vec<&'static str>,
    #[serde(skip)]
    grants: BTreeMap<&'static str, Grant>,
}

impl Role {
    /// How the role holds `operation`; `None` is not at all. `read_only` says that it is a command of the read-only
    /// rule.
    pub fn grant(&self, operation: &str, read_only: bool) -> Option<Grant> {
        let own = self.grants.get(operation).copied();
        let part = read_only.then(|| self.grants.get(EXEC_READ_ONLY).copied()).flatten();
        own.max(part)
    }

    pub(super) fn read(at: &At<'_>) -> Self {
        let fields = at.fields(&["description", "inherits", "allow", "ask"]);
        let list = |key| fields.get(key).map_or_else(Vec::new, |at| operations(at));
        let (allow, ask) = (list("allow"), list("ask"));
        if let Some(twice) = allow.iter().find(|operation| ask.contains(operation)) {
            at.problem(format!("`{twice}` is under both `allow` and `ask`; keep one"));
        }
        if allow.is_empty() && ask.is_empty() && fields.get("inherits").is_none() {
            at.problem_hint(
                "the role can do nothing",
                Some("list operations under `allow` or `ask`, or inherit a role".to_owned()),
            );
        }
        let inherits = fields.get("inherits").map_or_else(Vec::new, |at| {
            let names = if at.is_text() { vec![at.clone()] } else { at.items() };
            if names.len() > MAX_PARENTS {
                at.problem(format!("a role may inherit at most {MAX_PARENTS} others"));
            }
            names.iter().take(MAX_PARENTS).filter_map(At::text).map(str::to_owned).collect()
        });
        Self { description: fields.text_or("description", ""), inherits, allow, ask, grants: BTreeMap::new() }
    }
}

/// A list of operation names, or `"*"` for all.
fn operations(at: &At<'_>) -> Vec<&'static str> {
    if at.is_text() {
        if at.text() == Some("*") {
            return Operation::NAMES.to_vec();
        }
        at.problem("must be a list of operations, or \"*\" for all");
        return Vec::new();
    }
    let known: Vec<&'static str> = Operation::NAMES.into_iter().chain([EXEC_READ_ONLY]).collect();
    let words: Vec<(&str, &'static str)> = known.iter().map(|name| (*name, *name)).collect();
    at.items().iter().filter_map(|item| item.one_of(&words)).collect()
}

/// Fills in what every role holds. `report` is called with a role's name, a message and a suggestion.
pub(super) fn resolve(
    roles: &mut BTreeMap<String, Role>,
    mut report: impl FnMut(&str, String, Option<String>),
) {
    let names: Vec<String> = roles.keys().cloned().collect();
    let mut resolved = BTreeMap::new();
    for name in &names {
        let mut grants = BTreeMap::new();
        match ancestry(roles, name) {
            Ok(line) => {
                for role in line.iter().filter_map(|ancestor| roles.get(*ancestor)) {
                    let held = role.allow.iter().map(|operation| (*operation, Grant::AsProfile));
                    for (operation, grant) in
                        held.chain(role.ask.iter().map(|operation| (*operation, Grant::Ask)))
                    {
                        let best = grants.entry(operation).or_insert(grant);
                        *best = grant.max(*best);
                    }
                }
            }
            Err(Lineage::Unknown(parent)) => {
                let known: Vec<&str> =
                    names.iter().map(String::as_str).filter(|known| known != name).collect();
                report(name, format!("inherits the unknown role `{parent}`"), Some(nearest(parent, &known)));
            }
            Err(Lineage::Cycle(path)) => report(name, format!("inherits itself: {}", path.join(" → ")), None),
        }
        resolved.insert(name.clone(), grants);
    }
    for (name, grants) in resolved {
        if let Some(role) = roles.get_mut(&name) {
            role.grants = grants;
        }
    }
}

enum Lineage<'r> {
    Unknown(&'r str),
    Cycle(Vec<&'r str>),
}

/// The role and all that it inherits, each once. An unknown role is reported where it is named; a cycle for each
/// role on it.
fn ancestry<'r>(roles: &'r BTreeMap<String, Role>, name: &'r str) -> Result<Vec<&'r str>, Lineage<'r>> {
    let mut line = Vec::new();
    let mut open = vec![vec![name]];
    while let Some(path) = open.pop() {
        let Some(last) = path.last().copied() else { continue };
        let Some(role) = roles.get(last) else { continue };
        if line.contains(&last) {
            continue;
        }
        line.push(last);
        for parent in &role.inherits {
            let parent = parent.as_str();
            if parent == name {
                return Err(Lineage::Cycle([&path[..], &[name]].concat()));
            }
            if last == name && !roles.contains_key(parent) {
                return Err(Lineage::Unknown(parent));
            }
            open.push([&path[..], &[parent]].concat());
        }
    }
    Ok(line)
}
