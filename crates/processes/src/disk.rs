//! Stores a process on the daemon's disk: `state_dir/processes/RUN/PROCESS`, 0700, with its sealed record and its output.

#![expect(clippy::disallowed_methods, reason = "the daemon's own files, which no run sees")]

use std::fs::DirBuilder;
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use identity::{CallId, RunId};
use prost::Message as _;
use seal::StreamKey;
use serde::{Deserialize, Serialize};
use wire::v1;

use crate::cut::cut;

/// Most bytes of a process's record.
///
/// A record needs a hundredth of that. Earlier daemons stored the arguments whole and wrote up to 10 MiB, four bytes for each
/// byte.
const MOST: u64 = 12 << 20;

/// Version of the records of processes. A daemon ends a process whose record it cannot read.
pub const FORMAT: u32 = 1;

/// The record of a process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Known {
    /// A [`v1::Process`], encoded.
    process: Vec<u8>,
    pub(crate) principal: String,
    pub(crate) agent: String,
    /// The time at which it times out, milliseconds since 1970.
    pub(crate) until_ms: Option<u64>,
    /// Most bytes that are kept of each stream.
    pub(crate) most: u64,
}

impl Known {
    pub(crate) fn new(
        process: &v1::Process,
        principal: &str,
        agent: &str,
        until_ms: Option<u64>,
        most: u64,
    ) -> Self {
        let (principal, agent) = (principal.to_owned(), agent.to_owned());
        Self { process: process.encode_to_vec(), principal, agent, until_ms, most }
    }

    pub(crate) fn process(&self) -> io::Result<v1::Process> {
        v1::Process::decode(self.process.as_slice()).map_err(io::Error::other)
    }

    /// Cuts the long request in a record of an earlier daemon.
    fn cut(self) -> io::Result<Self> {
        let mut process = self.process()?;
        if let Some(request) = &mut process.request {
            let is_cut;
            (*request, is_cut) = cut(request);
            process.request_cut |= is_cut;
        }
        Ok(self.with(&process))
    }

    #[must_use]
    pub(crate) fn with(&self, process: &v1::Process) -> Self {
        Self { process: process.encode_to_vec(), ..self.clone() }
    }
}

/// The directory of one process.
#[derive(Debug, Clone)]
pub(crate) struct ProcessFiles {
    pub(crate) run: RunId,
    pub(crate) id: CallId,
    directory: PathBuf,
}

/// The two records of a process: while it lives, and after its end. Each is written only once under its part of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Edition {
    Living,
    Ended,
}

impl Edition {
    fn name(self) -> &'static str {
        match self {
            Self::Living => "living",
            Self::Ended => "ended",
        }
    }
}

impl ProcessFiles {
    pub(crate) fn new(root: &Path, run: RunId, id: CallId) -> Self {
        Self { run, id, directory: root.join(run.to_string()).join(id.to_string()) }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn make(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)
    }

    pub(crate) fn remove(&self) -> io::Result<()> {
        std::fs::remove_dir_all(&self.directory)
    }

    /// Writes a record. It is durable when this returns.
    pub(crate) fn write(&self, key: &StreamKey, edition: Edition, known: &Known) -> io::Result<()> {
        let bytes = serde_json::to_vec(known)?;
        if seal::sealed_length(bytes.len() as u64) > MOST {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let sealed = key.seal_whole(&self.name(edition), &bytes)?;
        atomic_file::replace(&self.file(edition), |file| file.write_all(&sealed))
    }

    /// Returns true if the process was begun, and no record says that it has ended.
    pub(crate) fn may_live(&self) -> bool {
        self.file(Edition::Living).exists() && !self.file(Edition::Ended).exists()
    }

    /// Reads the newest record.
    pub(crate) fn read(&self, key: &StreamKey) -> io::Result<(Edition, Known)> {
        let edition = if self.file(Edition::Ended).exists() { Edition::Ended } else { Edition::Living };
        let path = self.file(edition);
        if std::fs::metadata(&path)?.len() > MOST {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let bytes = key.unseal_whole(&self.name(edition), &std::fs::read(path)?);
        let bytes = bytes.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let known: Known = serde_json::from_slice(&bytes)?;
        Ok((edition, known.cut()?))
    }

    /// Name under which an edition is sealed.
    fn name(&self, edition: Edition) -> String {
        format!("{} {} {}", self.run, self.id, edition.name())
    }

    fn file(&self, edition: Edition) -> PathBuf {
        self.directory.join(format!("{}.sealed", edition.name()))
    }
}

/// Lists the processes of all runs.
pub(crate) fn all(root: &Path) -> io::Result<Vec<ProcessFiles>> {
    let mut all_files = Vec::new();
    let listed = match std::fs::read_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(all_files),
        listed => listed?,
    };
    for entry in listed {
        let entry = entry?;
        let Some(run) = entry.file_name().to_str().and_then(|name| RunId::parse(name).ok()) else { continue };
        for entry in std::fs::read_dir(entry.path())? {
            let name = entry?.file_name();
            let id = name.to_str().and_then(|name| CallId::parse(name).ok());
            all_files.extend(id.map(|id| ProcessFiles::new(root, run, id)));
        }
    }
    Ok(all_files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_record_is_sealed_and_reads_back() {
        let root = tempfile::tempdir().unwrap();
        let key = StreamKey::from_bytes([7; 32]);
        let files = ProcessFiles::new(root.path(), RunId::new(), CallId::new());
        files.make().unwrap();
        let request = v1::ProcessRequest { command: "canary".into(), ..Default::default() };
        let living = v1::Process { request: Some(request), ..Default::default() };
        let known = Known::new(&living, "uid:1", "alice", Some(7), 10);
        files.write(&key, Edition::Living, &known).unwrap();
        let (edition, read) = files.read(&key).unwrap();
        assert_eq!(
            (edition, read.process().unwrap(), read.until_ms),
            (Edition::Living, living.clone(), Some(7))
        );
        let raw = std::fs::read(files.file(Edition::Living)).unwrap();
        assert!(!raw.windows(6).any(|part| part == b"canary"));

        let ended = v1::Process { failure: "x".into(), ..living };
        files.write(&key, Edition::Ended, &known.with(&ended)).unwrap();
        let (edition, read) = files.read(&key).unwrap();
        assert_eq!((edition, read.process().unwrap()), (Edition::Ended, ended));
        assert_eq!(all(root.path()).unwrap().len(), 1);
        files.remove().unwrap();
        assert!(files.read(&key).is_err());
    }

    #[test]
    fn longest_stored_request_is_read_and_cut() {
        let root = tempfile::tempdir().unwrap();
        let key = StreamKey::from_bytes([7; 32]);
        let files = ProcessFiles::new(root.path(), RunId::new(), CallId::new());
        files.make().unwrap();
        // Each of these bytes takes four in the file.
        let args = vec!["\u{7f}".repeat(32); 65_536];
        let request = v1::ProcessRequest { command: "true".into(), args, ..Default::default() };
        let living = v1::Process { request: Some(request), ..Default::default() };
        files.write(&key, Edition::Living, &Known::new(&living, "uid:1", "alice", None, 10)).unwrap();
        assert!(std::fs::metadata(files.file(Edition::Living)).unwrap().len() > 8 << 20);
        let (_, read) = files.read(&key).unwrap();
        let read = read.process().unwrap();
        assert!(read.request_cut && read.encoded_len() < 5_000, "{}", read.encoded_len());
        assert_eq!(read.request.unwrap().command, "true");
    }

    #[test]
    fn oversized_record_is_not_written() {
        let root = tempfile::tempdir().unwrap();
        let key = StreamKey::from_bytes([7; 32]);
        let files = ProcessFiles::new(root.path(), RunId::new(), CallId::new());
        files.make().unwrap();
        let living = v1::Process { failure: "x".repeat(4 << 20), ..Default::default() };
        let known = Known::new(&living, "uid:1", "alice", None, 10);
        assert_eq!(
            files.write(&key, Edition::Living, &known).unwrap_err().kind(),
            io::ErrorKind::FileTooLarge
        );
        assert!(!files.file(Edition::Living).exists());
    }
}
