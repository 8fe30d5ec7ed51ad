//! Copies files into the run's trash before they are removed.
//!
//! The trash is in the run's private directory: outside of every workspace, invisible in the container, and kept until the run is deleted.
//! It is another mount than the workspace, so files cannot be renamed into it. The content is copied and synced before the file loses its
//! name.
//!
//! Called by `delete`, and by `patch` for the files that it deletes. Either may find afterwards that the file has to stay, and then
//! removes the copy. A full trash refuses the copy. Only `delete` continues then, and only with a consent that says so.

mod allowance;
mod store;
mod sweep;

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;

use jail::{Jail, Keeps, Metadata, RegularFile, SandboxPath};
use operations::{Digest, EntryType, Reason, ToolFailure, TrashEntry, TrashRecord};

use allowance::Allowance;
pub(super) use sweep::sweep;

/// Largest file that the trash takes: as large as any file that the host lane can write.
const MAX_FILE: u64 = 256 * 1024 * 1024;
const BLOCK: usize = 128 * 1024;
/// Advice for a full trash.
const FOR_GOOD: &str = "`delete` can delete it permanently, with an approval that says so";

/// Entry in the trash, synced to disk.
#[derive(Debug)]
pub(super) struct TrashedFile {
    trash: OwnedFd,
    entry: TrashEntry,
    record: TrashRecord,
}

impl TrashedFile {
    /// Returns the entry's name.
    pub(super) fn entry(&self) -> String {
        self.entry.to_string()
    }

    /// Returns the description of the removed file.
    pub(super) fn record(&self) -> &TrashRecord {
        &self.record
    }

    /// Removes the entry again, because the original stays.
    pub(super) fn forget(self) {
        store::remove(&self.trash, self.entry);
    }
}

/// Reason for which a file is not in the trash.
#[derive(Debug)]
pub(super) enum NotTrashed {
    /// The trash has no space for it.
    NoSpace(ToolFailure),
    /// Something else failed.
    Failed(ToolFailure),
}

impl From<NotTrashed> for ToolFailure {
    fn from(not_kept: NotTrashed) -> Self {
        match not_kept {
            NotTrashed::NoSpace(failure) | NotTrashed::Failed(failure) => failure,
        }
    }
}

/// Copies a file from its first byte to its present size, whatever its position is.
pub(super) fn keep(jail: &Jail, path: &SandboxPath, file: &RegularFile) -> Result<TrashedFile, NotTrashed> {
    let size = file.meta.size;
    within_reach(path, size)?;
    let (trash, entry) = begin(jail, path, size)?;
    let kept = copy(&trash, entry, file).and_then(|(size_bytes, sha256)| {
        let record = record(path, EntryType::File, &file.meta);
        let record = TrashRecord { size_bytes, sha256, ..record };
        store::describe(&trash, entry, &record)?;
        Ok(record)
    });
    finish(path, trash, entry, kept)
}

/// Records an empty directory.
pub(super) fn keep_directory(
    jail: &Jail,
    path: &SandboxPath,
    meta: &Metadata,
) -> Result<TrashedFile, NotTrashed> {
    let (trash, entry) = begin(jail, path, 0)?;
    let record = record(path, EntryType::Directory, meta);
    let kept = store::describe(&trash, entry, &record).map(|()| record);
    finish(path, trash, entry, kept)
}

/// Refuses a file that is too large for any trash.
fn within_reach(path: &SandboxPath, size: u64) -> Result<(), NotTrashed> {
    if size <= MAX_FILE {
        return Ok(());
    }
    let failure = ToolFailure::new(
        Reason::WriteLimit,
        format!(
            "{} has {size} bytes, more than the {MAX_FILE} that the run's trash takes for one file, so it was not deleted: {FOR_GOOD}",
            path.excerpt()
        ),
    );
    Err(NotTrashed::NoSpace(
        failure.with("size_bytes", size.to_string()).with("max_bytes", MAX_FILE.to_string()),
    ))
}

/// Returns size and hash of a file, as [`keep`] would find them, or an error if it would not fit.
pub(super) fn foresee(
    jail: &Jail,
    path: &SandboxPath,
    file: &RegularFile,
) -> Result<(u64, String), NotTrashed> {
    within_reach(path, file.meta.size)?;
    open(jail, path, file.meta.size)?;
    blocks(file, |_| Ok(())).map_err(|error| failure(path, &error))
}

/// Returns size and hash of a file that the trash cannot take. A file that is too large for any trash is not read, and has no hash.
pub(super) fn look(path: &SandboxPath, file: &RegularFile) -> Result<(u64, String), ToolFailure> {
    if file.meta.size > MAX_FILE {
        return Ok((file.meta.size, String::new()));
    }
    Ok(blocks(file, |_| Ok(())).map_err(|error| failure(path, &error))?)
}

/// Checks that an empty directory would fit.
pub(super) fn foresee_directory(jail: &Jail, path: &SandboxPath) -> Result<(), NotTrashed> {
    open(jail, path, 0).map(drop)
}

fn begin(jail: &Jail, path: &SandboxPath, size: u64) -> Result<(OwnedFd, TrashEntry), NotTrashed> {
    let (trash, job) = open(jail, path, size)?;
    let entry = store::claim(&trash, job).map_err(|error| failure(path, &error))?;
    Ok((trash, entry))
}

/// Opens the trash, if it has space, and returns the number of the operation that uses it.
fn open(jail: &Jail, path: &SandboxPath, size: u64) -> Result<(OwnedFd, u64), NotTrashed> {
    let private = jail.private().ok_or_else(|| {
        let why = "this run has no trash, so that nothing can be deleted in it";
        NotTrashed::Failed(ToolFailure::new(Reason::Internal, why))
    })?;
    let trash = private.directory(Keeps::Trash).map_err(|error| failure(path, &error))?;
    Allowance::of(&trash).map_err(|error| failure(path, &error))?.take(size).map_err(NotTrashed::NoSpace)?;
    Ok((trash, private.job()))
}

fn finish(
    path: &SandboxPath,
    trash: OwnedFd,
    entry: TrashEntry,
    kept: io::Result<TrashRecord>,
) -> Result<TrashedFile, NotTrashed> {
    match kept.and_then(|record| rustix::fs::fsync(&trash).map(|()| record).map_err(Into::into)) {
        Ok(record) => Ok(TrashedFile { trash, entry, record }),
        Err(error) => {
            store::remove(&trash, entry);
            Err(failure(path, &error))
        }
    }
}

fn record(path: &SandboxPath, entry_type: EntryType, meta: &Metadata) -> TrashRecord {
    let path = path.to_string();
    TrashRecord { path, entry_type, size_bytes: 0, sha256: String::new(), mode: meta.mode }
}

fn copy(trash: &OwnedFd, entry: TrashEntry, file: &RegularFile) -> io::Result<(u64, String)> {
    let copy = File::from(store::content(trash, entry)?);
    let mut at = 0;
    let measured = blocks(file, |block| {
        copy.write_all_at(block, at)?;
        at += block.len() as u64;
        Ok(())
    })?;
    copy.sync_all()?;
    Ok(measured)
}

/// Reads a file block by block, to its size when it was opened, and returns its length and its hash.
fn blocks(file: &RegularFile, mut each: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<(u64, String)> {
    let (mut digest, mut at, mut block) = (Digest::default(), 0, vec![0; BLOCK]);
    while at < file.meta.size {
        let most = usize::try_from(file.meta.size - at).unwrap_or(BLOCK).min(BLOCK);
        let read = match file.file.read_at(&mut block[..most], at) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        digest.update(&block[..read]);
        each(&block[..read])?;
        at += read as u64;
    }
    Ok((at, digest.hex()))
}

fn failure(path: &SandboxPath, error: &io::Error) -> NotTrashed {
    let path = path.excerpt();
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            NotTrashed::NoSpace(ToolFailure::new(
                Reason::WriteLimit,
                format!("{path}: the disk of the run's trash is full, so it was not deleted: {FOR_GOOD}"),
            ))
        }
        _ => NotTrashed::Failed(ToolFailure::new(
            Reason::Internal,
            format!("{path}: cannot be put into the run's trash, so it was not deleted: {error}"),
        )),
    }
}
