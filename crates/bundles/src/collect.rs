//! Reads the audit log once for a bundle, from the first record to the last.
//!
//! The run's records go to a file, and the hash of every record goes into the proof.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::Path;

use audit::bundle::{self, LARGEST, MOST_HASHES, MOST_RECORDS, Member, MemberWriter, Sealed};
use audit::{Checkpoint, Hash, Kind, LogId, Prover, ReadError, Reader, Record};
use operations::Reason;
use refusal::{Refusal, chain};

use super::location::Location;
use super::summary::Summary;

/// Records between two checks that the client still waits and that the disk has space.
const LOOK: u64 = 4_096;
/// Generous estimate of the bytes that an archive needs besides its members' contents.
const OVERHEAD: u64 = 256 * 1024;

/// Reason why a bundle cannot be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum CollectError {
    #[error("the audit log cannot be read")]
    Log(#[from] ReadError),
    #[error("the bundle's files cannot be written or read")]
    File(#[from] io::Error),
    #[error("the audit log does not match its checkpoint; verify it")]
    Inconsistent,
    #[error("the run has more records than a bundle may hold")]
    TooLarge,
    #[error("the disk has too little space for a bundle, because some of it is reserved for the audit log")]
    NoSpace,
    #[error("the client no longer waits for the bundle")]
    Left,
}

impl From<CollectError> for Refusal {
    fn from(error: CollectError) -> Self {
        let message = error.to_string();
        match error {
            CollectError::TooLarge => Self::new(
                Reason::PreconditionFailed,
                format!("{message} ({MOST_RECORDS} records, {LARGEST} bytes): export its records instead"),
            ),
            CollectError::NoSpace => Self::new(Reason::Overloaded, message),
            CollectError::Left => Self::new(Reason::Cancelled, message),
            CollectError::Log(_) | CollectError::File(_) | CollectError::Inconsistent => {
                Self::internal("making a bundle", &chain(&error))
            }
        }
    }
}

/// The run's records and their summary, and the log to read on from.
pub(super) struct Collected {
    pub(super) log: Log,
    pub(super) records: Member,
    pub(super) summary: Summary,
}

/// The audit log, read up to some record.
pub(super) struct Log {
    reader: Reader,
    prover: Prover,
    removed: u64,
    id: LogId,
}

/// Reads the log in `directory` up to the record `head`, and collects the run's records.
///
/// Another principal may have chosen the id for a run before, and deleted that run. `owner` is the only principal whose
/// run counts; `None` is all. Calls `tell` with the sequence number that the reading has reached. `tell` returns false if
/// the client no longer waits.
pub(super) fn read(
    directory: &Path,
    (run_id, owner): (&str, Option<&str>),
    head: u64,
    location: &Location,
    mut tell: impl FnMut(u64) -> bool,
) -> Result<Collected, CollectError> {
    let prover = Prover::of(directory)?;
    let (removed, reader) = (prover.size(), Reader::from(directory, prover.size()));
    let mut log = Opened { reader, prover };
    let mut records = MemberWriter::new(location.file()?);
    let mut summary = Summary::default();
    // Searches the bytes before it parses the line, because most records belong to other runs.
    let needle = memchr::memmem::Finder::new(run_id);
    let (mut id, mut is_owners) = (None, true);
    while log.prover.size() < head {
        let line = log.reader.next_line()?.ok_or(CollectError::Inconsistent)?;
        let hash = hash_of(line).ok_or(CollectError::Inconsistent)?;
        let mut is_ours = false;
        if id.is_none() || needle.find(line.as_bytes()).is_some() {
            let record = Record::from_line(line).map_err(|_| CollectError::Inconsistent)?;
            id.get_or_insert(record.log);
            let is_of_run = record.event.run_id.as_deref() == Some(run_id);
            if is_of_run && record.event.kind == Kind::RunCreated {
                is_owners = owner.is_none_or(|owner| record.event.principal.as_deref() == Some(owner));
            }
            if is_of_run && is_owners {
                is_ours = true;
                records.write_all(line.as_bytes())?;
                records.write_all(b"\n")?;
                summary.take(record);
            }
        }
        log.prover.push(hash, is_ours);
        if summary.records() > MOST_RECORDS as u64 || records.bytes() > LARGEST {
            return Err(CollectError::TooLarge);
        }
        let at = log.prover.size();
        if at.is_multiple_of(LOOK) || at == head {
            if !tell(at) {
                return Err(CollectError::Left);
            }
            if !location.has_space(LOOK * 1024)? {
                return Err(CollectError::NoSpace);
            }
        }
    }
    let id = id.ok_or(CollectError::Inconsistent)?;
    let Opened { reader, prover } = log;
    Ok(Collected { log: Log { reader, prover, removed, id }, records: records.finish()?, summary })
}

struct Opened {
    reader: Reader,
    prover: Prover,
}

impl Log {
    /// Returns the sequence number up to which records were removed from the log; 0 if none was removed.
    pub(super) fn removed(&self) -> u64 {
        self.removed
    }

    pub(super) fn id(&self) -> LogId {
        self.id
    }

    /// Reads on to the last record that the checkpoint covers.
    ///
    /// Returns the line of the record `seal`, and the proof of that record and of the run's records.
    pub(super) fn prove(
        &mut self,
        seal: u64,
        checkpoint: &Checkpoint,
    ) -> Result<(String, Vec<Hash>), CollectError> {
        let mut found = None;
        while self.prover.size() < checkpoint.size {
            let line = self.reader.next_line()?.ok_or(CollectError::Inconsistent)?;
            let hash = hash_of(line).ok_or(CollectError::Inconsistent)?;
            let is_seal = self.prover.size() + 1 == seal;
            if is_seal {
                found = Some(line.to_owned());
            }
            self.prover.push(hash, is_seal);
        }
        if self.prover.root() != Some(checkpoint.root) {
            return Err(CollectError::Inconsistent);
        }
        let proof = std::mem::take(&mut self.prover).into_proof();
        if proof.len() > MOST_HASHES {
            return Err(CollectError::TooLarge);
        }
        Ok((found.ok_or(CollectError::Inconsistent)?, proof))
    }
}

/// Writes the archive to a file.
pub(super) fn archive(
    location: &Location,
    manifest: &[u8],
    members: &BTreeMap<String, Member>,
    sealed: &Sealed<'_>,
) -> Result<Member, CollectError> {
    let contents: u64 = members.values().map(Member::bytes).sum();
    let bytes = contents + manifest.len() as u64 + sealed.proof.len() as u64 * 65 + OVERHEAD;
    if bytes > LARGEST {
        return Err(CollectError::TooLarge);
    }
    if !location.has_space(bytes)? {
        return Err(CollectError::NoSpace);
    }
    let mut archive = MemberWriter::new(location.file()?);
    bundle::write(&mut archive, manifest, members, sealed)?;
    Ok(archive.finish()?)
}

/// Returns the hash at the end of a record's line: `"hash":"…"}`.
fn hash_of(line: &str) -> Option<Hash> {
    line.strip_suffix("\"}")?.get(line.len() - 66..)?.parse().ok()
}
