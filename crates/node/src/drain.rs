//! The drain of a node, and the file in which it outlives the daemon.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use timestamp::Timestamp;

/// Name of the file in the state directory.
const FILE: &str = "node.json";
/// Longest file, bytes.
const LONGEST: u64 = 64 << 10;
/// Version of the file. A daemon that cannot read it makes no runs until it is undrained.
pub const FORMAT: u32 = 1;
/// Longest reason, bytes.
pub(crate) const MAX_REASON: usize = 512;
/// Longest time until the deadline.
pub(crate) const MAX_DEADLINE: Duration = Duration::from_secs(30 * 86_400);

/// A node that makes no runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drain {
    /// Begin of the drain.
    pub since: Timestamp,
    /// Reason, as the operator gave it.
    pub reason: String,
    /// Operator that gave the reason.
    pub principal: String,
    /// Moment from which its runs are stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
}

impl Drain {
    /// Returns the time until its runs are stopped. `None`: they go on.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.deadline.map(|deadline| Timestamp::now().until(deadline))
    }
}

/// Returns true if a text can be the reason of a drain, which clients and the log of the daemon show.
pub(crate) fn is_reason(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_REASON && !text.chars().any(char::is_control)
}

/// Returns true if a text can be the name of a principal, which clients show.
fn is_principal(name: &str) -> bool {
    !name.is_empty() && identity::check_principal_name("principal", name).is_ok()
}

/// Content of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    drain: Option<Drain>,
}

/// The file of one daemon.
#[derive(Debug, Clone)]
pub(crate) struct DrainFile(PathBuf);

impl DrainFile {
    pub(crate) fn of(state_dir: &Path) -> Self {
        Self(state_dir.join(FILE))
    }

    /// Reads the drain. A file that cannot be read is a drain: an operator wrote it to keep runs away.
    pub(crate) fn read(&self) -> Option<Drain> {
        self.try_read().unwrap_or_else(|error| {
            tracing::error!(
                %error,
                file = %self.0.display(),
                "the drain of this node cannot be read: it makes no runs until `coffer node undrain`"
            );
            Some(Drain {
                since: Timestamp::now(),
                reason: "the daemon cannot read whether its operator has drained the node".to_owned(),
                principal: "cofferd".to_owned(),
                deadline: None,
            })
        })
    }

    fn try_read(&self) -> io::Result<Option<Drain>> {
        let file = match File::open(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut text = Vec::new();
        file.take(LONGEST).read_to_end(&mut text)?;
        match serde_json::from_slice(&text)? {
            // The file may come from a backup, and so from another host.
            Stored { version: FORMAT, drain: Some(drain) } if !is_reason(&drain.reason) => {
                Err(io::Error::other("its reason is none that an operator could give"))
            }
            Stored { version: FORMAT, drain: Some(drain) } if !is_principal(&drain.principal) => {
                Err(io::Error::other("its principal has no name that an operator could have"))
            }
            Stored { version: FORMAT, drain } => Ok(drain),
            Stored { version, .. } => Err(io::Error::other(format!("its version {version} is not {FORMAT}"))),
        }
    }

    /// Replaces the drain. Blocks on the disk.
    pub(crate) fn write(&self, drain: Option<&Drain>) -> io::Result<()> {
        let text = serde_json::to_vec(&Stored { version: FORMAT, drain: drain.cloned() })
            .map_err(io::Error::other)?;
        atomic_file::replace(&self.0, |file| file.write_all(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(deadline: Option<Timestamp>) -> Drain {
        Drain { since: Timestamp::now(), reason: "a new kernel".into(), principal: "uid:0".into(), deadline }
    }

    #[test]
    fn a_drain_outlives_its_daemon_and_ends_with_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let file = DrainFile::of(directory.path());
        assert_eq!(file.read(), None);
        for drain in [drain(None), drain(Some(Timestamp::now()))] {
            file.write(Some(&drain)).unwrap();
            assert_eq!(DrainFile::of(directory.path()).read(), Some(drain));
        }
        file.write(None).unwrap();
        assert_eq!(file.read(), None);
    }

    #[test]
    fn a_file_that_cannot_be_read_keeps_runs_away() {
        let directory = tempfile::tempdir().unwrap();
        let file = DrainFile::of(directory.path());
        let stored = |drain| serde_json::to_string(&Stored { version: FORMAT, drain: Some(drain) }).unwrap();
        let drained = |reason: &str| stored(Drain { reason: reason.into(), ..drain(None) });
        let by = |principal: &str| stored(Drain { principal: principal.into(), ..drain(None) });
        for text in [
            "",
            "{",
            "{}",
            "[]",
            r#"{ "version": 2 }"#,
            r#"{ "version": 1, "drain": { "reason": "x" } }"#,
            &drained(""),
            &drained("a\u{1b}[31mb"),
            &drained(&"x".repeat(MAX_REASON + 1)),
            &by(""),
            &by("uid:0\n"),
            &by(&"x".repeat(513)),
        ] {
            std::fs::write(directory.path().join(FILE), text).unwrap();
            let drain = file.read().unwrap();
            assert_eq!((drain.principal.as_str(), drain.left()), ("cofferd", None), "{text}");
        }
        file.write(None).unwrap();
        assert_eq!(file.read(), None);
    }

    #[test]
    fn a_deadline_that_has_passed_leaves_no_time() {
        assert_eq!(drain(Some(Timestamp::now())).left(), Some(Duration::ZERO));
        let left = drain(Some(Timestamp::now().after(Duration::from_secs(60)))).left().unwrap();
        assert!((50..=60).contains(&left.as_secs()), "{left:?}");
        assert_eq!(drain(None).left(), None);
    }
}
