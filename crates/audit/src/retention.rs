//! Compresses old segments after some time, and removes them after a longer time or if they have too many bytes.
//!
//! ```text
//!  N.jsonl ──► new.gz, synced, read back ──► N.jsonl.gz ──► N.jsonl unlinked
//!
//!  oldest segments proved ──► record `segments_removed` ──► file `removed` ──► unlinked, the oldest first
//!                                (Writer::remove)                              (sweep)
//! ```
//!
//! Only records that a signed checkpoint covers are affected, and never the segment that is being written. Records that cannot be verified
//! are never removed, because damage is evidence. After a kill at any point the log is whole, and [`sweep`] cleans up.
//!
//! All functions here block on the disk. They need no lock of the writer, but must not run twice at the same time.

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

/// Number of checkpoint files that are kept. All checkpoints are also in the log.
const MOST_CHECKPOINTS: usize = 1000;
const TEMPORARY: &str = "new.gz";

/// Time for which segments are kept, and their form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Policy {
    /// Age of its last record at which a segment is compressed. `None` if it never is.
    pub compress_after: Option<Duration>,
    /// Age of its last record at which a segment is removed. `None` if it never is.
    pub remove_after: Option<Duration>,
    /// Size of all segments together above which the oldest are removed, in bytes. `None` for no limit.
    pub keep_bytes: Option<u64>,
}

/// Reason why old segments were not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RetentionError {
    /// The records to be removed cannot be verified. They remain, with all records after them.
    #[error("old segments are kept because the audit log is damaged: {0}")]
    Damaged(#[source] Break),
    #[error("cannot tidy the audit log")]
    Io(#[from] io::Error),
}

/// Called before each change of the disk. Tests simulate a crash there.
type Step<'a> = &'a mut dyn FnMut() -> io::Result<()>;

/// A segment that is no longer written.
struct Sealed {
    segment: Segment,
    last_sequence: u64,
    /// Time when the next segment began. No record in this one is younger.
    until: Option<Timestamp>,
}

impl Sealed {
    fn is_older(&self, age: Option<Duration>, now: Timestamp) -> bool {
        self.until.zip(age).is_some_and(|(until, age)| until.until(now) >= age)
    }
}

/// Returns the size of all segments together, in bytes.
pub fn disk_use(dir: &Path) -> io::Result<u64> {
    segment::list(dir)?.into_iter().map(|segment| Ok(segment.path(dir).metadata()?.len())).sum()
}

/// Compresses the oldest segment that is due and contains only the first `covered` records, and returns its name.
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
        return Err(io::Error::other("a compressed segment does not have the original content"));
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

/// Verifies the oldest segments that are due for removal and contain only the first `covered` records. Returns `None` if there are none.
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

/// Deletes segments whose removal is on record, and files that a kill left unfinished.
pub fn sweep(dir: &Path) -> io::Result<()> {
    sweep_step(dir, &mut || Ok(()))
}

fn sweep_step(dir: &Path, step: Step<'_>) -> io::Result<()> {
    let last = removed(dir)?.map_or(0, |removed| removed.last_sequence);
    for segment in segment::list(dir)? {
        let (plain, packed) = (segment.name.path(dir), segment.name.packed_path(dir));
        if segment.name.0 <= last {
            // The compressed file is deleted first, because the plain one takes precedence while it exists.
            for path in [packed, plain] {
                step()?;
                remove_if_there(&path)?;
            }
        } else if !segment.packed && packed.exists() {
            // The daemon was killed before the plain file was deleted. The segment is compressed again later.
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

/// Returns all segments except the one that is being written and those whose removal is on record.
fn sealed(dir: &Path) -> io::Result<Vec<Sealed>> {
    let gone = removed(dir)?.map_or(0, |removed| removed.last_sequence);
    let segments: Vec<_> = segment::list(dir)?.into_iter().filter(|s| s.name.0 > gone).collect();
    let pairs = segments.windows(2).map(|pair| {
        let (segment, next) = (pair[0], pair[1]);
        Ok(Sealed { segment, last_sequence: next.name.0 - 1, until: began(dir, next)? })
    });
    pairs.collect()
}

/// Returns the time of a segment's first record, or `None` if there is none yet or it cannot be read.
fn began(dir: &Path, segment: Segment) -> io::Result<Option<Timestamp>> {
    let mut start = [0; 256];
    let count = match segment.open(dir).and_then(|mut source| source.read_at(&mut start, 0)) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => return Ok(None),
        count => count?,
    };
    Ok(crate::canonical::time_of(&start[..count]))
}

/// Returns the ledger from which the log begins.
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
    if segment.packed && packed::length(File::open(segment.path(dir))?)?.is_none() {
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
