//! `delete`: one file or an empty directory, to the run's trash.
//!
//! ```text
//! look ─► if_match? ─► copy into the trash, on disk ─► still the same? ─► unlink ─► fsync of its directory
//! ```
//!
//! At every moment the content has its name or its entry in the trash. What fails on the way leaves the file, and no
//! entry; only a process that is killed between the copy and the end leaves both, or a copy that is no entry yet, which
//! goes with the next recovery.

use jail::{Jail, Removable, RemoveError, SandboxPath};

use super::trash::{self, Kept};
use crate::{Bounds, Delete, DeleteResult, EntryType, OpResult, Outcome, Reason, ToolFailure};

/// Removes it.
pub fn delete(jail: &Jail, delete: &Delete, _bounds: &Bounds) -> Outcome {
    let path = &delete.path;
    let removal = jail.writable(path)?.removal()?;
    let kept = match removal.what() {
        Removable::File(file) => trash::keep(jail, path, file)?,
        Removable::Directory(meta) => trash::keep_directory(jail, path, meta)?,
    };
    if let Err(failure) = demand(delete, &kept.record().sha256) {
        kept.forget();
        return Err(failure);
    }
    match removal.remove() {
        Ok(()) => Ok(OpResult::Delete(result(&kept))),
        // It is gone all the same.
        Err(error @ RemoveError::NotDurable { .. }) => {
            Err(ToolFailure::from(error).with("trash_entry", kept.entry()))
        }
        Err(error) => {
            kept.forget();
            Err(error.into())
        }
    }
}

/// What [`delete()`] would do. Fails as [`delete()`] would, and changes nothing.
pub fn preview_delete(jail: &Jail, delete: &Delete, _bounds: &Bounds) -> Outcome {
    let path = &delete.path;
    let removal = jail.writable(path)?.removal()?;
    let (entry_type, (size_bytes, sha256)) = match removal.what() {
        Removable::File(file) => (EntryType::File, trash::foresee(jail, path, file)?),
        Removable::Directory(_) => {
            trash::foresee_directory(jail, path)?;
            (EntryType::Directory, (0, String::new()))
        }
    };
    demand(delete, &sha256)?;
    let trash_entry = String::new();
    Ok(OpResult::Delete(DeleteResult { path: path.to_string(), entry_type, size_bytes, sha256, trash_entry }))
}

fn result(kept: &Kept) -> DeleteResult {
    let record = kept.record().clone();
    DeleteResult {
        path: record.path,
        entry_type: record.entry_type,
        size_bytes: record.size_bytes,
        sha256: record.sha256,
        trash_entry: kept.entry(),
    }
}

/// Demands that the content has the hash that was asked for; a directory has none.
fn demand(delete: &Delete, sha256: &str) -> Result<(), ToolFailure> {
    let Some(expected) = &delete.if_match_sha256 else { return Ok(()) };
    if sha256 == expected {
        return Ok(());
    }
    Err(differs(&delete.path, expected, sha256))
}

fn differs(path: &SandboxPath, expected: &str, sha256: &str) -> ToolFailure {
    let path = path.excerpt();
    let message = if sha256.is_empty() {
        format!(
            "{path} is a directory, but if_match_sha256 demands a content; leave it out to delete a directory"
        )
    } else {
        format!("{path} is not what if_match_sha256 demands; read it again, its SHA-256 is now {sha256}")
    };
    let failure = ToolFailure::new(Reason::PreconditionFailed, message).with("expected_sha256", expected);
    if sha256.is_empty() { failure } else { failure.with("sha256", sha256) }
}
