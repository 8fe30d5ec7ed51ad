//! Inheritance: roles from roles, teams from teams.

use document::nearest;
use std::collections::BTreeMap;

/// A role or team, which may inherit from others of its kind.
pub(super) trait Heir {
    /// Name of the kind, for messages.
    const KIND: &'static str;

    /// Returns the names that it inherits from.
    fn parents(&self) -> &[String];
}

/// A mistake in the inheritance of one role or team.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Broken {
    pub(super) message: String,
    pub(super) suggestion: Option<String>,
}

enum Lineage<'r> {
    Unknown(&'r str),
    Cycle(Vec<&'r str>),
}

/// Returns the role or team of this name and all that it inherits from, each once.
pub(super) fn lineage<'r, T: Heir>(
    all: &'r BTreeMap<String, T>,
    name: &'r str,
) -> Result<Vec<&'r T>, Broken> {
    match ancestry(all, name) {
        Ok(line) => Ok(line.into_iter().filter_map(|ancestor| all.get(ancestor)).collect()),
        Err(Lineage::Unknown(parent)) => {
            let known: Vec<&str> = all.keys().map(String::as_str).filter(|known| *known != name).collect();
            Err(Broken {
                message: format!("inherits the unknown {} `{parent}`", T::KIND),
                suggestion: Some(nearest(parent, &known)),
            })
        }
        Err(Lineage::Cycle(path)) => {
            Err(Broken { message: format!("inherits itself: {}", path.join(" → ")), suggestion: None })
        }
    }
}

/// Returns the names of the lineage.
///
/// An unknown name is reported only where it is written, and a cycle for every name on it.
fn ancestry<'r, T: Heir>(all: &'r BTreeMap<String, T>, name: &'r str) -> Result<Vec<&'r str>, Lineage<'r>> {
    let mut line = Vec::new();
    let mut open = vec![vec![name]];
    while let Some(path) = open.pop() {
        let Some(last) = path.last().copied() else { continue };
        let Some(heir) = all.get(last) else { continue };
        if line.contains(&last) {
            continue;
        }
        line.push(last);
        for parent in heir.parents() {
            let parent = parent.as_str();
            if parent == name {
                return Err(Lineage::Cycle([&path[..], &[name]].concat()));
            }
            if last == name && !all.contains_key(parent) {
                return Err(Lineage::Unknown(parent));
            }
            open.push([&path[..], &[parent]].concat());
        }
    }
    Ok(line)
}
