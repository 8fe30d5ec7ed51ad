//! A patch as it was asked for: its text, and the paths that the text names.
//!
//! Who decides on a call, and who records it, asks for its paths before anything is opened. So the text is taken apart
//! once when the operation is made: a [`Patch`] that exists can be read. Pure, and bounded by the length of the text.
//! What the text does to files is in `write`.

use std::collections::BTreeMap;

use jail::SandboxPath;
use serde_json::{Map, Value};

use crate::Malformed;

/// Change several files, all or none of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    change: PatchChange,
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
        Ok(Self { paths: paths(&change)?, change })
    }

    /// How the change is written.
    pub fn change(&self) -> &PatchChange {
        &self.change
    }

    /// The files that it names, old and new names of those that it moves; at least one, each once.
    pub fn paths(&self) -> &[SandboxPath] {
        &self.paths
    }
}

fn paths(change: &PatchChange) -> Result<Vec<SandboxPath>, Malformed> {
    match change {
        PatchChange::Unified(_) => Err(Malformed::new("patch.unified_diff", "is not available")),
        PatchChange::Envelope(_) => Err(Malformed::new("patch.envelope", "is not available")),
        PatchChange::FrontMatter(change) => Ok(vec![change.path.clone()]),
    }
}
