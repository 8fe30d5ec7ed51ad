//! A base as it is stored and shown.

use std::path::PathBuf;

use identity::{BaseId, CheckpointId, RunId};
use redact::Redactor;
use refusal::Refusal;
use serde::{Deserialize, Serialize};
use timestamp::Timestamp;
use wire::v1;

use crate::asked::Asked;

/// Most requests that a base remembers.
const REQUESTS: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Base {
    pub(crate) id: BaseId,
    /// Principal that made it.
    pub(crate) principal: String,
    pub(crate) created_at: Timestamp,
    /// Time at which the last run began on it, or at which it was made.
    pub(crate) used_at: Timestamp,
    pub(crate) source: Source,
    /// Repository, revision and tags of a clone, by which it is found again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) clone_of: Option<String>,
    /// SHA-256 of the tree, hexadecimal.
    pub(crate) digest: String,
    /// Length of all files, bytes.
    pub(crate) bytes: u64,
    pub(crate) files: u64,
    /// Special files of the source that were left out.
    pub(crate) left_out: u64,
    /// The host has changed its files, as VerifyBase found last.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) changed: bool,
    /// Requests with an id that this base answered, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) requests: Vec<Asked>,
}

/// Source of a base, as requested; for a copy, the base of another daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Source {
    Directory { path: PathBuf },
    Clone { repository: PathBuf, revision: Option<String> },
    Checkpoint { checkpoint: CheckpointId },
    Copy { origin: BaseId },
}

impl Source {
    /// Parses the source of a request.
    pub(crate) fn parse(source: Option<v1::BaseSource>, redactor: &Redactor) -> Result<Self, Refusal> {
        use v1::base_source::Source as Asked;
        let missing = || Refusal::invalid("source", "is missing: a directory, a clone or a checkpoint");
        let source = match source.and_then(|source| source.source).ok_or_else(missing)? {
            Asked::Directory(directory) => {
                runs::has_no_password("source.directory.path", &directory.path, redactor)?;
                Self::Directory { path: runs::absolute("source.directory.path", directory.path)? }
            }
            Asked::Clone(clone) => {
                runs::has_no_password("source.clone.repository", &clone.repository, redactor)?;
                runs::has_no_password("source.clone.revision", &clone.revision, redactor)?;
                if !clone.url.is_empty() || clone.depth != 0 {
                    let message = "is for a run, whose profile's `egress` lets it out: create a run with that clone and a \
                                   checkpoint of it, and make the base of the checkpoint";
                    return Err(Refusal::invalid("source.clone.url", message));
                }
                Self::Clone {
                    repository: runs::absolute("source.clone.repository", clone.repository)?,
                    revision: runs::revision("source.clone.revision", clone.revision)?,
                }
            }
            Asked::Copy(_) => return Err(only_imported()),
            Asked::Checkpoint(checkpoint) => {
                let field = "source.checkpoint.checkpoint_id";
                let id = CheckpointId::parse(&checkpoint.checkpoint_id);
                Self::Checkpoint { checkpoint: id.map_err(|_| Refusal::invalid(field, "is not a UUID"))? }
            }
        };
        Ok(source)
    }

    fn to_wire(&self) -> v1::BaseSource {
        use v1::base_source::Source as Shown;
        let source = match self {
            Self::Directory { path } => {
                Shown::Directory(v1::DirectorySource { path: path.to_string_lossy().into_owned() })
            }
            Self::Clone { repository, revision } => Shown::Clone(v1::CloneWorkspace {
                repository: repository.to_string_lossy().into_owned(),
                revision: revision.clone().unwrap_or_default(),
                ..v1::CloneWorkspace::default()
            }),
            Self::Copy { origin } => Shown::Copy(v1::BaseCopy { origin: origin.to_string() }),
            Self::Checkpoint { checkpoint } => {
                Shown::Checkpoint(v1::CheckpointWorkspace { checkpoint_id: checkpoint.to_string() })
            }
        };
        v1::BaseSource { source: Some(source) }
    }
}

/// Returns the refusal of a request to make a base of a base of another daemon.
pub(crate) fn only_imported() -> Refusal {
    Refusal::invalid(
        "source.copy",
        "is only of an answer: `coffer base push` brings a base of another daemon",
    )
}

impl Base {
    /// Notes a request that this base answers. The oldest ones are forgotten.
    pub(crate) fn remember(&mut self, asked: Option<Asked>) {
        let Some(asked) = asked.filter(|asked| !self.requests.contains(asked)) else { return };
        if self.requests.len() >= REQUESTS {
            self.requests.remove(0);
        }
        self.requests.push(asked);
    }

    pub(crate) fn to_wire(&self, used_by: &[RunId]) -> v1::Base {
        v1::Base {
            base_id: self.id.to_string(),
            principal: self.principal.clone(),
            created_at: Some(self.created_at.to_wire()),
            used_at: Some(self.used_at.to_wire()),
            source: Some(self.source.to_wire()),
            digest: self.digest.clone(),
            size_bytes: self.bytes,
            files: self.files,
            left_out: self.left_out,
            used_by: used_by.iter().map(RunId::to_string).collect(),
            changed: self.changed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(source: v1::base_source::Source) -> Result<Source, Refusal> {
        Source::parse(Some(v1::BaseSource { source: Some(source) }), &Redactor::default())
    }

    fn clone(repository: &str, revision: &str) -> Result<Source, Refusal> {
        let (repository, revision) = (repository.to_owned(), revision.to_owned());
        let clone = v1::CloneWorkspace { repository, revision, ..v1::CloneWorkspace::default() };
        parse(v1::base_source::Source::Clone(clone))
    }

    #[test]
    fn sources_are_absolute_paths_and_plain_revisions() {
        assert!(Source::parse(None, &Redactor::default()).is_err());
        let directory = |path: &str| {
            parse(v1::base_source::Source::Directory(v1::DirectorySource { path: path.to_owned() }))
        };
        assert_eq!(directory("/srv/a").unwrap(), Source::Directory { path: "/srv/a".into() });
        assert!(directory("srv/a").is_err() && directory("").is_err());
        let head = Source::Clone { repository: "/srv/r".into(), revision: None };
        assert_eq!(clone("/srv/r", "").unwrap(), head);
        for revision in ["-q", "a b", "a\n"] {
            assert!(clone("/srv/r", revision).is_err(), "{revision:?}");
        }
        let url = "https://git.example.org/org/app".to_owned();
        let of_url = v1::CloneWorkspace { url, ..v1::CloneWorkspace::default() };
        assert!(parse(v1::base_source::Source::Clone(of_url)).unwrap_err().message.contains("checkpoint"));
        let id = CheckpointId::new();
        for (text, parsed) in
            [(id.to_string(), Some(Source::Checkpoint { checkpoint: id })), ("../x".to_owned(), None)]
        {
            let checkpoint = v1::CheckpointWorkspace { checkpoint_id: text };
            assert_eq!(parse(v1::base_source::Source::Checkpoint(checkpoint)).ok(), parsed);
        }
    }

    #[test]
    fn a_copy_is_shown_with_its_origin_and_not_asked_for() {
        let origin = BaseId::new();
        let source = Source::Copy { origin };
        let written = serde_json::to_value(&source).unwrap();
        assert_eq!(written, serde_json::json!({ "copy": { "origin": origin.to_string() } }));
        assert_eq!(serde_json::from_value::<Source>(written).unwrap(), source);
        let shown = source.to_wire().source.unwrap();
        let copy = v1::base_source::Source::Copy(v1::BaseCopy { origin: origin.to_string() });
        assert_eq!(shown, copy);
        assert!(parse(copy).unwrap_err().message.contains("base push"));
    }

    #[test]
    fn a_record_of_an_earlier_daemon_is_read_and_written_again_as_it_was() {
        let written = serde_json::json!({
            "id": "0190b0c0-0000-7000-8000-000000000001", "principal": "uid:1000",
            "created_at": 1_700_000_000_000_000_001_i64, "used_at": 1_700_000_000_000_000_002_i64,
            "source": { "clone": { "repository": "/srv/r", "revision": "main" } }, "clone_of": "1:2:ab",
            "digest": "ab", "bytes": 1, "files": 2, "left_out": 3,
        });
        let base: Base = serde_json::from_value(written.clone()).unwrap();
        assert_eq!(serde_json::to_value(&base).unwrap(), written);
        let shown = base.to_wire(&[]);
        assert_eq!((shown.size_bytes, shown.files, shown.left_out), (1, 2, 3));
        assert!(!shown.changed && base.requests.is_empty());
    }

    #[test]
    fn a_base_remembers_its_latest_requests_once_each() {
        let mut base: Base = serde_json::from_value(serde_json::json!({
            "id": "0190b0c0-0000-7000-8000-000000000001", "principal": "uid:1000", "created_at": 1, "used_at": 2,
            "source": { "directory": { "path": "/srv/a" } }, "digest": "ab", "bytes": 1, "files": 2, "left_out": 3,
        }))
        .unwrap();
        let asked = |number: usize| Asked::of(format!("id-{number}"), &"content").unwrap();
        base.remember(None);
        for number in 0..=REQUESTS {
            base.remember(asked(number));
            base.remember(asked(number));
        }
        assert_eq!(base.requests.len(), REQUESTS);
        assert!(
            base.requests.first() == asked(1).as_ref() && base.requests.last() == asked(REQUESTS).as_ref()
        );
        let written = serde_json::to_string(&base).unwrap();
        assert_eq!(serde_json::from_str::<Base>(&written).unwrap(), base);
    }
}
