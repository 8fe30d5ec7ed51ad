//! A patch as the caller sent it: its text, and the paths that the text names.
//!
//! The gateway and the record need the paths before any file is opened. So the text is parsed once, when the operation is made, and every
//! [`Patch`] is well-formed. Parsing is pure, and bounded by the length of the text. The effects on files are in `write`.

mod envelope;
mod name;
mod reader;
mod script;
mod unified;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use jail::{SandboxPath, excerpt};
use serde_json::{Map, Value};

use crate::Malformed;

pub use script::{Action, FilePatch, Hunk, HunkPosition, Kind, Line};

/// Files that one patch may name: as many as an approval can be bound to.
const MAX_PATHS: usize = 256;

/// Change several files, all or none of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    change: PatchChange,
    files: Vec<FilePatch>,
    paths: Vec<SandboxPath>,
}

/// How the change is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PatchChange {
    /// A unified diff as `git diff` and `diff -u` write it, of one or several files.
    Unified(String),
    /// The `*** Begin Patch` envelope.
    Envelope(String),
    /// Changes to the front matter of one Markdown file.
    FrontMatter(FrontMatter),
}

/// Changes to the YAML front matter of one Markdown file. Its body stays as it is, byte for byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrontMatter {
    /// The file.
    pub path: SandboxPath,
    /// SHA-256 that the present content must have, lower-case hex, 64 digits.
    pub if_match_sha256: Option<String>,
    /// Added to the list `stepsCompleted`, those that are not in it.
    pub steps_completed_append: Vec<String>,
    /// Put into the mapping `variables`, over what has the same name there.
    pub variables_set: BTreeMap<String, Value>,
    /// Added to the list `decisionLog`.
    pub decision_log_append: Vec<Map<String, Value>>,
    /// Added to the list `artifacts`, those that are not in it.
    pub artifacts_append: Vec<String>,
    /// The new `currentNodeId`.
    pub current_node_id: Option<String>,
    /// The new `updatedAt`.
    pub updated_at: Option<String>,
}

impl FrontMatter {
    /// Changes nothing of the file.
    pub fn new(path: SandboxPath) -> Self {
        Self {
            path,
            if_match_sha256: None,
            steps_completed_append: Vec::new(),
            variables_set: BTreeMap::new(),
            decision_log_append: Vec::new(),
            artifacts_append: Vec::new(),
            current_node_id: None,
            updated_at: None,
        }
    }

    /// `variables_set` as the text of one JSON object; empty when there are none.
    pub fn variables_json(&self) -> String {
        if self.variables_set.is_empty() {
            return String::new();
        }
        Value::Object(self.variables_set.clone().into_iter().collect()).to_string()
    }

    /// `decision_log_append` as the texts of JSON objects.
    pub fn decisions_json(&self) -> Vec<String> {
        self.decision_log_append.iter().map(|decision| Value::Object(decision.clone()).to_string()).collect()
    }
}

impl Patch {
    /// Takes the text apart.
    pub fn new(change: PatchChange) -> Result<Self, Malformed> {
        let (field, files) = match &change {
            PatchChange::Unified(text) => (unified::FIELD, unified::parse(text)?),
            PatchChange::Envelope(text) => (envelope::FIELD, envelope::parse(text)?),
            PatchChange::FrontMatter(front_matter) => {
                let paths = vec![front_matter.path.clone()];
                return Ok(Self { change, files: Vec::new(), paths });
            }
        };
        let paths = paths(field, &files)?;
        Ok(Self { change, files, paths })
    }

    /// How the change is written.
    pub fn change(&self) -> &PatchChange {
        &self.change
    }

    /// The files that it names, old and new names of those that it moves; at least one, each once.
    pub fn paths(&self) -> &[SandboxPath] {
        &self.paths
    }

    /// What the text of a diff or an envelope says; nothing for front matter.
    pub fn files(&self) -> &[FilePatch] {
        &self.files
    }
}

/// All names, none of them twice, none of them beneath another: the order of the text must not matter.
fn paths(field: &str, files: &[FilePatch]) -> Result<Vec<SandboxPath>, Malformed> {
    let mut paths = Vec::new();
    let mut named = BTreeSet::new();
    for file in files {
        let moved_to = match &file.action {
            Action::Update { moved_to, .. } => moved_to.as_ref(),
            Action::Create { .. } | Action::Delete { .. } => None,
        };
        for path in std::iter::once(&file.path).chain(moved_to) {
            if !named.insert(path) {
                let message =
                    format!("{} is named twice: put all changes of a file into one part", path.excerpt());
                return Err(Malformed::new(field, message));
            }
            paths.push(path.clone());
        }
    }
    if paths.len() > MAX_PATHS {
        return Err(Malformed::new(field, format!("names more than {MAX_PATHS} files: split it")));
    }
    // A directory and what is beneath it are neighbours in this order.
    let mut texts: Vec<String> = paths.iter().map(|path| format!("{path}/")).collect();
    texts.sort_unstable();
    for pair in texts.windows(2) {
        if pair[1].starts_with(&pair[0]) {
            let [directory, file] = [&pair[0], &pair[1]].map(|text| excerpt(text.trim_end_matches('/')));
            let message =
                format!("{directory} would be a file and the directory of {file} at once: send two patches");
            return Err(Malformed::new(field, message));
        }
    }
    Ok(paths)
}
