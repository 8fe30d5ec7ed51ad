//! A checkpoint as it is stored and shown.

use host_launch::TreeBounds;
use identity::{CheckpointId, RunId};
use operations::{AgentCheckpoint, Digest};
use redact::Redactor;
use refusal::Refusal;
use runs::Rules;
use runs::record::{Record, Spec, Workspace};
use serde::{Deserialize, Serialize};
use timestamp::Timestamp;
use wire::v1;
use wire::v1::checkpoint_part::Kind;

/// Most bytes of a label.
const LONGEST_LABEL: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Checkpoint {
    pub(crate) id: CheckpointId,
    pub(crate) run: RunId,
    /// Principal that owns the run.
    pub(crate) principal: String,
    pub(crate) made_by: String,
    /// Time at which the commands were frozen.
    pub(crate) created_at: Timestamp,
    pub(crate) frozen_us: u64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) label: String,
    /// The daemon made it by itself, or the agent did.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) automatic: bool,
    pub(crate) workspace: Workspace,
    pub(crate) image_id: String,
    pub(crate) parts: Vec<PartCopy>,
    /// Processes and sessions that ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) processes: Vec<String>,
    /// Time since which the directory that takes the changes of forks should be unchanged, by the clock of the file system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<(i64, u32)>,
    /// Settings for forks. The run may be deleted before its checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) inherited: Option<Inherited>,
    /// Request to fork the run for which it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) requested: Option<ForkRequest>,
}

/// Settings of a run that its forks inherit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Inherited {
    /// Settings without secrets and without a token.
    pub(crate) spec: Spec,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) narrowed: Vec<Rules>,
}

impl Inherited {
    pub(crate) fn of(run: &Record) -> Self {
        let spec = Spec {
            ttl: run.ttl(),
            token: None,
            secret_env: Vec::new(),
            forked_from: None,
            ..run.spec.clone()
        };
        Self { spec, narrowed: run.narrowed.clone() }
    }
}

/// A request to fork a live run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ForkRequest {
    /// Name of the principal, and the request id.
    pub(crate) id: String,
    /// Keyed digest of the content. It tells a repetition from another request.
    pub(crate) digest: Vec<u8>,
}

/// Copy of one directory of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PartCopy {
    pub(crate) part: Part,
    /// SHA-256 of the tree, hexadecimal.
    pub(crate) digest: String,
    /// Length of all files, bytes.
    pub(crate) bytes: u64,
    pub(crate) files: u64,
    /// Special files that were left out.
    pub(crate) left_out: u64,
}

impl PartCopy {
    /// Returns the bounds that its tree just fits.
    pub(crate) fn size(&self) -> TreeBounds {
        TreeBounds { bytes: self.bytes, files: self.files }
    }
}

/// Part of a run's changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Part {
    Workspace,
    State,
    /// The layer of a writable root. Its marks are attributes that only root can read.
    Root,
    /// The layer of the repository whose linked work tree the workspace is.
    Repository,
}

impl Part {
    /// Returns the name of its directory in a checkpoint.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Workspace => "workspace",
            Self::State => "state",
            Self::Root => "root",
            Self::Repository => "repository",
        }
    }

    fn kind(self) -> Kind {
        match self {
            Self::Workspace => Kind::Workspace,
            Self::State => Kind::State,
            Self::Root => Kind::Root,
            Self::Repository => Kind::Repository,
        }
    }
}

impl Checkpoint {
    /// Returns the length of all files, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.parts.iter().fold(0, |sum, part| part.bytes.saturating_add(sum))
    }

    /// Returns the number of all files, directories, links and deleted names.
    pub(crate) fn files(&self) -> u64 {
        self.parts.iter().fold(0, |sum, part| part.files.saturating_add(sum))
    }

    /// Returns the time since which the directory that takes the changes of forks should be unchanged.
    pub(crate) fn since(&self) -> (i64, u32) {
        // Before the copy began, for a record without it.
        self.since.unwrap_or((self.created_at.unix_seconds(), self.created_at.subsecond_nanos()))
    }

    /// Returns the SHA-256 over the names and digests of the parts, hexadecimal.
    pub(crate) fn digest(&self) -> String {
        let mut digest = Digest::default();
        for part in &self.parts {
            digest.update(format!("{} {}\n", part.part.name(), part.digest).as_bytes());
        }
        digest.hex()
    }

    /// Returns what the agent of the run may see.
    pub(crate) fn for_agent(&self) -> AgentCheckpoint {
        AgentCheckpoint {
            checkpoint_id: self.id.to_string(),
            label: self.label.clone(),
            created_at: self.created_at.to_string(),
            size_bytes: self.bytes(),
            files: self.files(),
        }
    }

    pub(crate) fn to_wire(&self) -> v1::RunCheckpoint {
        let part = |part: &PartCopy| v1::CheckpointPart {
            kind: part.part.kind().into(),
            digest: part.digest.clone(),
            size_bytes: part.bytes,
            files: part.files,
            left_out: part.left_out,
        };
        v1::RunCheckpoint {
            checkpoint_id: self.id.to_string(),
            run_id: self.run.to_string(),
            principal: self.principal.clone(),
            made_by: self.made_by.clone(),
            created_at: Some(self.created_at.to_wire()),
            frozen_us: self.frozen_us,
            label: self.label.clone(),
            digest: self.digest(),
            size_bytes: self.bytes(),
            parts: self.parts.iter().map(part).collect(),
            processes: self.processes.clone(),
            automatic: self.automatic,
        }
    }
}

/// Checks the label of a request. It is stored, shown and recorded.
pub(crate) fn label(label: String, redactor: &Redactor) -> Result<String, Refusal> {
    if label.len() > LONGEST_LABEL {
        return Err(Refusal::invalid("label", format!("is longer than {LONGEST_LABEL} bytes")));
    }
    if label.chars().any(char::is_control) {
        return Err(Refusal::invalid("label", "has a line break or another control character"));
    }
    if redactor.whole(&label).1 > 0 {
        let message =
            "contains what looks like a password or token, which would be stored and shown: leave it out";
        return Err(Refusal::invalid("label", message));
    }
    Ok(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_an_earlier_daemon_is_read_and_written_again_as_it_was() {
        let part =
            |part| serde_json::json!({ "part": part, "digest": "ab", "bytes": 1, "files": 2, "left_out": 3 });
        let written = serde_json::json!({
            "id": "0190b0c0-0000-7000-8000-000000000001", "run": "0190b0c0-0000-7000-8000-000000000002",
            "principal": "uid:1000", "made_by": "uid:0", "created_at": 1_700_000_000_000_000_001_i64,
            "frozen_us": 4, "label": "turn 1", "image_id": "sha256:00",
            "workspace": { "base": { "base": "0190b0c0-0000-7000-8000-000000000003" } },
            "parts": [part("workspace"), part("state"), part("root"), part("repository")], "processes": ["p"],
        });
        let checkpoint: Checkpoint = serde_json::from_value(written.clone()).unwrap();
        assert_eq!(serde_json::to_value(&checkpoint).unwrap(), written);
        let shown = checkpoint.to_wire();
        assert_eq!((shown.size_bytes, shown.parts.len(), checkpoint.files()), (4, 4, 8));
        assert_eq!(shown.parts[3].kind(), Kind::Repository);
        let mut other = checkpoint;
        other.parts[1].digest = "cd".to_owned();
        assert_ne!(other.digest(), shown.digest);
    }

    #[test]
    fn labels_are_short_lines_without_secrets() {
        let checked = |text: &str| label(text.to_owned(), &Redactor::default());
        assert_eq!(checked("turn 12").unwrap(), "turn 12");
        assert_eq!(checked("").unwrap(), "");
        assert!(
            checked(&"x".repeat(LONGEST_LABEL)).is_ok() && checked(&"x".repeat(LONGEST_LABEL + 1)).is_err()
        );
        assert!(checked("a\nb").is_err() && checked("\u{1b}[0m").is_err());
    }
}
