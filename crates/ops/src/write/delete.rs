//! `delete`: one file or an empty directory, to the run's trash.
//!
//! ```text
//! look ─► if_match? ─► copy into the trash, on disk ─► still the same? ─► unlink ─► fsync of its directory
//! ```
//!
//! At every moment the content has its name or its entry in the trash. What fails on the way leaves the file, and no
//! entry; only a process that is killed between the copy and the end leaves both, or a copy that is no entry yet, which
//! goes with the next recovery.

use jail::{Change, Jail, Parents, Removable, RemoveError, SandboxPath, Then, Writable};

use super::place::{bind_lineage, bind_owner, is_still};
use super::trash::{self, Kept};
use crate::{
    Binder, Bound, Bounds, Delete, DeleteResult, EntryType, FileState, Held, OpResult, Outcome, Preview,
    Reason, ToolFailure, before_effect,
};

/// Removes it.
pub fn delete(jail: &Jail, delete: &Delete, bounds: &Bounds) -> Outcome {
    let held_to = bounds.held_to.as_ref();
    let look = || Ok(jail.writable(&delete.path)?).and_then(|writable| Ok((writable, writable.removal()?)));
    let (writable, removal) = look().map_err(|failure| before_effect(held_to, failure))?;
    let kept = match removal.what() {
        Removable::File(file) => trash::keep(jail, &delete.path, file),
        Removable::Directory(meta) => trash::keep_directory(jail, &delete.path, meta),
    };
    let kept = kept.map_err(|failure| before_effect(held_to, failure))?;
    match held(delete, &writable, removal.what(), &kept, held_to) {
        Err(failure) => {
            kept.forget();
            Err(failure)
        }
        Ok(Some(change)) => match jail.commit(vec![change]) {
            Ok(()) => Ok(OpResult::Delete(result(&kept))),
            Err(error) => {
                kept.forget();
                Err(error.into())
            }
        },
        Ok(None) => match removal.remove() {
            Ok(()) => Ok(OpResult::Delete(result(&kept))),
            // It is gone all the same.
            Err(error @ RemoveError::NotDurable { .. }) => {
                Err(ToolFailure::from(error).with("trash_entry", kept.entry()))
            }
            Err(error) => {
                kept.forget();
                Err(error.into())
            }
        },
    }
}

/// Holds what is to go against what was asked for and consented to. What a consent says of a file holds in the moment in which
/// it loses its name, too: that takes a change which can be taken back.
fn held<'j>(
    delete: &Delete,
    writable: &Writable<'j>,
    what: &Removable,
    kept: &Kept,
    held_to: Option<&Held>,
) -> Result<Option<Change<'j>>, ToolFailure> {
    let sha256 = &kept.record().sha256;
    demand(delete, sha256).map_err(|failure| before_effect(held_to, failure))?;
    if held_to.is_none() {
        return Ok(None);
    }
    bound(&delete.path, writable, what, sha256)?.demand(held_to)?;
    let Removable::File(file) = what else { return Ok(None) };
    let target = writable.target(Parents::MustExist)?;
    let change = Change::new(*writable, Some(target), Then::Gone);
    Ok(Some(change.held(is_still(sha256.clone(), file.meta))))
}

/// What [`delete()`] would do. Fails as [`delete()`] would, and changes nothing.
pub fn preview_delete(jail: &Jail, delete: &Delete, _bounds: &Bounds) -> Result<Preview, ToolFailure> {
    let path = &delete.path;
    let writable = jail.writable(path)?;
    let removal = writable.removal()?;
    let (entry_type, (size_bytes, sha256)) = match removal.what() {
        Removable::File(file) => (EntryType::File, trash::foresee(jail, path, file)?),
        Removable::Directory(_) => {
            trash::foresee_directory(jail, path)?;
            (EntryType::Directory, (0, String::new()))
        }
    };
    demand(delete, &sha256)?;
    let bound = bound(path, &writable, removal.what(), &sha256)?;
    let trash_entry = String::new();
    let result = DeleteResult { path: path.to_string(), entry_type, size_bytes, sha256, trash_entry };
    Ok(Preview { result: OpResult::Delete(result), bound })
}

/// A file by its content, a directory by its identity, both by owner, permissions and the directories that lead there.
fn bound(
    path: &SandboxPath,
    writable: &Writable<'_>,
    what: &Removable,
    sha256: &str,
) -> Result<Bound, ToolFailure> {
    let mut binder = Binder::new("delete");
    let (meta, target) = match what {
        Removable::File(file) => {
            binder.file(path, FileState::Sha256(sha256.to_owned()));
            (&file.meta, Some(writable.target(Parents::MustExist)?))
        }
        Removable::Directory(meta) => {
            binder.number(meta.identity.0);
            binder.number(meta.identity.1);
            (meta, None)
        }
    };
    bind_owner(meta, &mut binder);
    bind_lineage(writable, target.as_ref(), &mut binder)?;
    Ok(binder.finish())
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
