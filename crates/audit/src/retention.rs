//! Old segments: compressed after a time, and removed after a longer one or if there are too many bytes.
//!
//! ```text
//!  N.jsonl ──► new.gz, synced, read back ──► N.jsonl.gz ──► N.jsonl unlinked
//!
//!  oldest segments proved ──► record `segments_removed` ──► file `removed` ──► unlinked, the oldest first
//!                                (Writer::remove)                              (sweep)
//! ```
//!
//! Only records that a signed checkpoint covers are touched, and never the segment that is being written. Records
//! that do not verify are never removed: damage is evidence. After a kill at any point the log is whole, and
//! [`sweep`] cleans up. Everything here blocks on the disk, needs no lock of the writer's, and must not run twice at
//! a time.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use timestamp::Timestamp;

use crate::chain::{Break, Damage};
use crate::checkpoint::{self, DIRECTORY};
use crate::hash::Hash;
use crate::ledger::Ledger;
use crate::lines::{Lines, Next, ReadAt, retry};
use crate::packed::{self, Unpacked};
use crate::removal::{self, Removal, Removed};
use crate::segment::{self, Segment, SegmentName};
use crate::storage;

/// Checkpoint files that are kept; all of them are in the log, too.
const MOST_CHECKPOINTS: usize = 1000;
const TEMPORARY: &str = "new.gz";

/// How long segments are kept, and in which form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Policy {
    /// Compressed when the last record is older. `None`: never.
    pub compress_after: Option<Duration>,
    /// Removed when the last record is older. `None`: never.
    pub remove_after: Option<Duration>,
    /// Bytes of all segments together, beyond which the oldest are removed. `None`: as many as there are.
    pub keep_bytes: Option<u64>,
}

/// Why old segments stay as they are.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RetentionError {
    /// The records to remove do not verify; they stay, and so does everything after them.
    #[error("old segments stay, for the audit log is damaged: {0}")]
    Damaged(#[source] Break),
    #[error("cannot tidy the audit log")]
    Io(#[from] io::Error),
}

/// Called before each change of the disk; tests die there.
type Step<'a> = &'a mut dyn FnMut() -> io::Result<()>;

/// A segment that is no longer written.
struct Sealed {
    segment: Segment,
    last_sequence: u64,
    /// When the next segment began: no record in this one is younger.
    until: Option<Timestamp>,
}

impl Sealed {
    fn is_older(&self, age: Option<Duration>, now: Timestamp) -> bool {
        self.until.zip(age).is_some_and(|(until, age)| until.until(now) >= age)
    }
}

/// Bytes of all segments together.
pub fn disk_use(dir: &Path) -> io::Result<u64> {
    segment::list(dir)?.into_iter().map(|segment| Ok(segment.path(dir).metadata()?.len())).sum()
}

/// Compresses the oldest segment that is due, of those that hold only the first `covered` records, and names it.
pub fn compress_next(dir: &Path, policy: &Policy, covered: u64) -> Result<Option<String>, RetentionError> {
    let now = Timestamp::now();
    let due = |sealed: &Sealed| {
        !sealed.segment.packed
            && sealed.last_sequence <= covered
            && sealed.is_older(policy.compress_after, now)
    };
    let Some(sealed) = sealed(dir)?.into_iter().find(due) else { return Ok(None) };
    compress(dir, sealed.segment.name, &mut || Ok(()))?;
    Ok(Some(sealed.segment.name.to_string()))
}

fn compress(dir: &Path, name: SegmentName, step: Step<'_>) -> io::Result<()> {
    let temporary = dir.join(TEMPORARY);
    step()?;
    let mut options = OpenOptions::new();
    let mut to = options.read(true).write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    let mut from = File::open(name.path(dir))?;
    step()?;
    packed::pack(&mut from, &mut to)?;
    step()?;
    to.sync_all()?;
    if hash_of(from)? != hash_of(Unpacked::new(to)?)? {
        return Err(io::Error::other("a segment that was compressed does not read as it was"));
    }
    step()?;
    fs::rename(&temporary, name.packed_path(dir))?;
    File::open(dir)?.sync_all()?;
    step()?;
    fs::remove_file(name.path(dir))?;
    step()?;
    File::open(dir)?.sync_all()
}

fn hash_of(mut source: impl ReadAt) -> io::Result<Hash> {
    use sha2::Digest as _;
    let (mut sha, mut buffer, mut offset) = (sha2::Sha256::new(), vec![0; 64 * 1024], 0);
    loop {
        let count = retry(|| source.read_at(&mut buffer, offset))?;
        if count == 0 {
            return Ok(Hash::from_bytes(sha.finalize().into()));
        }
        sha.update(&buffer[..count]);
        offset += count as u64;
    }
}

/// Proves the oldest segments that are to go, of those that hold only the first `covered` records. `None`: none is to.
pub fn removal(dir: &Path, policy: &Policy, covered: u64) -> Result<Option<Removal>, RetentionError> {
    let now = Timestamp::now();
    let mut bytes = disk_use(dir)?;
    let mut due = Vec::new();
    for sealed in sealed(dir)? {
        let too_much = policy.keep_bytes.is_some_and(|keep| bytes > keep);
        if sealed.last_sequence > covered || !(too_much || sealed.is_older(policy.remove_after, now)) {
            break;
        }
        bytes = bytes.saturating_sub(sealed.segment.path(dir).metadata()?.len());
        due.push(sealed);
    }
    let (Some(first), false) = (due.first(), due.is_empty()) else { return Ok(None) };
    let first_sequence = first.segment.name.0;
    let mut ledger = start(dir)?;
    for sealed in &due {
        prove(dir, sealed.segment, &mut ledger)?;
    }
    Ok(ledger.frontier().map(|frontier| Removal { frontier, first_sequence, segments: due.len() }))
}

/// Removes what is on record as removed, and whatever a kill left half done.
pub fn sweep(dir: &Path) -> io::Result<()> {
    sweep_step(dir, &mut || Ok(()))
}

fn sweep_step(dir: &Path, step: Step<'_>) -> io::Result<()> {
    let last = removed(dir)?.map_or(0, |removed| removed.last_sequence);
    for segment in segment::list(dir)? {
        let (plain, packed) = (segment.name.path(dir), segment.name.packed_path(dir));
        if segment.name.0 <= last {
            // The packed one first: while the plain one is there it counts.
            for path in [packed, plain] {
                step()?;
                remove_if_there(&path)?;
            }
        } else if !segment.packed && packed.exists() {
            // Killed before the plain one went: it is compressed again.
            step()?;
            fs::remove_file(packed)?;
        }
    }
    step()?;
    remove_if_there(&dir.join(TEMPORARY))?;
    prune_checkpoints(dir, last)?;
    File::open(dir)?.sync_all()
}

fn prune_checkpoints(dir: &Path, removed: u64) -> io::Result<()> {
    let entries = match fs::read_dir(dir.join(DIRECTORY)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry?;
        files.extend(
            entry.file_name().to_str().and_then(checkpoint::size_of).map(|size| (size, entry.path())),
        );
    }
    files.sort_unstable();
    let surplus = files.len().saturating_sub(MOST_CHECKPOINTS);
    for (at, (size, path)) in files.into_iter().enumerate() {
        if at < surplus || size < removed {
            remove_if_there(&path)?;
        }
    }
    Ok(())
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn removed(dir: &Path) -> io::Result<Option<Removed>> {
    Ok(storage::load(dir, removal::FILE)?.as_deref().and_then(Removed::parse))
}

/// All segments but the one that is being written, without what is on record as removed.
fn sealed(dir: &Path) -> io::Result<Vec<Sealed>> {
    let gone = removed(dir)?.map_or(0, |removed| removed.last_sequence);
    let segments: Vec<_> = segment::list(dir)?.into_iter().filter(|s| s.name.0 > gone).collect();
    let pairs = segments.windows(2).map(|pair| {
        let (segment, next) = (pair[0], pair[1]);
        Ok(Sealed { segment, last_sequence: next.name.0 - 1, until: began(dir, next)? })
    });
    pairs.collect()
}

/// The time of a segment's first record. `None`: it has none yet, or none that can be read.
fn began(dir: &Path, segment: Segment) -> io::Result<Option<Timestamp>> {
    let mut start = [0; 256];
    let count = match segment.open(dir).and_then(|mut source| source.read_at(&mut start, 0)) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => return Ok(None),
        count => count?,
    };
    Ok(crate::canonical::time_of(&start[..count]))
}

/// Where the log begins.
fn start(dir: &Path) -> Result<Ledger, RetentionError> {
    match storage::load(dir, removal::FILE)? {
        None => Ok(Ledger::genesis()),
        Some(file) => match Removed::parse(&file) {
            Some(removed) => Ok(removed.ledger),
            None => Err(RetentionError::Damaged(Break {
                sequence: 1,
                segment: removal::FILE.to_owned(),
                offset: 0,
                damage: Damage::Removal,
            })),
        },
    }
}

fn prove(dir: &Path, segment: Segment, ledger: &mut Ledger) -> Result<(), RetentionError> {
    let damaged = |sequence, offset, damage| {
        Err(RetentionError::Damaged(Break { sequence, segment: segment.to_string(), offset, damage }))
    };
    if segment.packed && packed::length(&segment.path(dir))?.is_none() {
        return damaged(segment.name.0, 0, Damage::Packed);
    }
    if segment.name.0 != ledger.chain.next() {
        return damaged(ledger.chain.next(), 0, Damage::Missing);
    }
    let mut lines = Lines::new(segment.open(dir)?, 0);
    loop {
        match lines.next()? {
            Next::Line { offset, at } => {
                if let Err(damage) = ledger.accept(lines.bytes(&at)) {
                    return damaged(ledger.chain.next(), offset, damage);
                }
            }
            Next::TooLong { offset } | Next::Unfinished { offset, .. } => {
                return damaged(ledger.chain.next(), offset, Damage::Malformed);
            }
            Next::End => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
