//! Who inherits from whom: roles from roles, teams from teams.

use document::nearest;
use std::collections::BTreeMap;

/// One that may inherit from others of its kind.
pub(super) trait Heir {
    /// Of what kind it is, for messages.
    const KIND: &'static str;

    /// The names that it inherits from.
    fn parents(&self) -> &[String];
}

/// What is wrong with how one of them inherits.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Broken {
    pub(super) message: String,
    pub(super) suggestion: Option<String>,
}

enum Lineage<'r> {
    Unknown(&'r str),
    Cycle(Vec<&'r str>),
}

/// The one of this name and all that it inherits from, each once.
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

/// An unknown one is reported where it is named; a cycle for each on it.
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
