//! `delete`: one file or an empty directory, to the run's trash.
//!
//! ```text
//! look ─► if_match? ─► copy into the trash, on disk ─► still the same? ─► unlink ─► fsync of its directory
//! ```
//!
//! At every moment the content has its name or its entry in the trash. A failure on the way leaves the file and no entry. Only a process
//! that is killed between the copy and the end leaves both, or a copy that is not yet an entry. The next recovery removes such a copy.
//!
//! A full trash takes no copy, and a run that cannot delete cannot free space either. Then `delete` removes a file permanently, if a
//! reviewer was shown that and agreed. The consent is bound to it.

use jail::{Change, Jail, Metadata, Parents, Removable, Removal, RemoveError, SandboxPath, Then, Writable};
use operations::{
    Binder, Bound, Bounds, Delete, DeleteResult, EntryType, FileState, Held, OpResult, Outcome, Preview,
    Reason, ToolFailure, before_effect,
};

use super::location::{bind_lineage, bind_owner, is_still};
use super::trash::{self, NotTrashed, TrashedFile};
use super::when::{Undone, when};

/// File or directory that is about to be removed, after it was examined.
struct Going {
    size_bytes: u64,
    sha256: String,
    /// Copy in the trash; `None` if the trash has no space for one.
    kept: Option<TrashedFile>,
}

/// Removes the file or directory. If it has changed since it was examined, it is examined again.
pub fn delete(jail: &Jail, delete: &Delete, bounds: &Bounds) -> Outcome {
    when(|_| attempt(jail, delete, bounds), None)
}

fn attempt(jail: &Jail, delete: &Delete, bounds: &Bounds) -> Result<OpResult, Undone> {
    let held_to = bounds.held_to.as_ref();
    let look = || Ok(jail.writable(&delete.path)?).and_then(|writable| Ok((writable, writable.removal()?)));
    let (writable, removal) = look().map_err(|failure| before_effect(held_to, failure))?;
    let entry_type = entry_type(removal.what());
    let going = prepare(jail, &delete.path, removal.what(), held_to.is_some())
        .map_err(|failure| before_effect(held_to, failure))?;
    let gone = held(delete, &writable, removal.what(), &going, held_to)
        .map_err(Undone::from)
        .and_then(|change| remove(jail, removal, change, going.kept.is_none()));
    let trash_entry = going.kept.as_ref().map(TrashedFile::entry).unwrap_or_default();
    match gone {
        Ok(None) => {
            let Going { size_bytes, sha256, .. } = going;
            let (path, gone_for_good) = (delete.path.to_string(), trash_entry.is_empty());
            let result = DeleteResult {
                path,
                r#type: entry_type.into(),
                size_bytes,
                sha256,
                trash_entry,
                gone_for_good,
            };
            Ok(OpResult::Delete(result))
        }
        // It is removed all the same.
        Ok(Some(not_durable)) => Err(not_durable.with("trash_entry", trash_entry).into()),
        Err(undone) => {
            if let Some(kept) = going.kept {
                kept.forget();
            }
            Err(undone)
        }
    }
}

/// Unlinks the name. A failure after that only means that a power loss may bring the name back.
fn remove(
    jail: &Jail,
    removal: Removal,
    change: Option<Change<'_>>,
    for_good: bool,
) -> Result<Option<ToolFailure>, Undone> {
    if let Some(change) = change {
        match jail.commit(vec![change]).map_err(ToolFailure::from) {
            Ok(()) => return Ok(None),
            // The disk has no space for the journal of the change either, and the change has not begun. Freeing space must not need any.
            Err(failure) if for_good && failure.reason == Reason::WriteLimit => {}
            Err(failure) => return Err(failure.into()),
        }
    }
    match removal.remove() {
        Ok(()) => Ok(None),
        Err(error @ RemoveError::NotDurable { .. }) => Ok(Some(error.into())),
        Err(RemoveError::Changed { .. }) if !for_good => Err(Undone::Stale),
        Err(error) => Err(ToolFailure::from(error).into()),
    }
}

/// Copies the content into the trash.
///
/// If the trash has no space, the file may be removed without a copy, provided there is a consent (`consented`). A later
/// check finds out if the consent covers this.
fn prepare(jail: &Jail, path: &SandboxPath, what: &Removable, consented: bool) -> Result<Going, ToolFailure> {
    let kept = match what {
        Removable::File(file) => trash::keep(jail, path, file),
        Removable::Directory(meta) => trash::keep_directory(jail, path, meta),
    };
    match kept {
        Ok(kept) => {
            let record = kept.record();
            let (size_bytes, sha256) = (record.size_bytes, record.sha256.clone());
            Ok(Going { size_bytes, sha256, kept: Some(kept) })
        }
        Err(NotTrashed::NoSpace(_)) if consented => {
            let (size_bytes, sha256) = without_trash(path, what)?;
            Ok(Going { size_bytes, sha256, kept: None })
        }
        Err(not_kept) => Err(not_kept.into()),
    }
}

/// Returns size and hash of a file that the trash cannot take.
fn without_trash(path: &SandboxPath, what: &Removable) -> Result<(u64, String), ToolFailure> {
    match what {
        Removable::File(file) => trash::look(path, file),
        Removable::Directory(_) => Ok((0, String::new())),
    }
}

/// Compares the file with the request and the consent.
///
/// A consent has to hold at the moment at which the file loses its name, too. That needs a change that can be undone.
fn held<'j>(
    delete: &Delete,
    writable: &Writable<'j>,
    what: &Removable,
    going: &Going,
    held_to: Option<&Held>,
) -> Result<Option<Change<'j>>, ToolFailure> {
    let sha256 = &going.sha256;
    demand(delete, what, sha256).map_err(|failure| before_effect(held_to, failure))?;
    if held_to.is_none() {
        return Ok(None);
    }
    let is_kept = going.kept.is_some();
    let as_seen = bound(&delete.path, writable, what, sha256, !is_kept)?.demand(held_to);
    as_seen.or_else(|changed| {
        // The trash has space by now, so more is kept than the reviewer agreed to lose.
        if !is_kept {
            return Err(changed);
        }
        bound(&delete.path, writable, what, sha256, true)?.demand(held_to)
    })?;
    match what {
        // The consent is bound to attributes that no program can set, which are compared again when the name is removed.
        Removable::File(_) if sha256.is_empty() => Ok(None),
        Removable::File(file) => {
            let target = writable.target(Parents::MustExist)?;
            let change = Change::new(*writable, Some(target), Then::Gone);
            Ok(Some(change.held(is_still(sha256.clone(), file.meta))))
        }
        Removable::Directory(_) => Ok(None),
    }
}

/// Returns the result of [`delete()`] with a consent to exactly that. Fails as [`delete()`] would, and changes nothing.
pub fn preview_delete(jail: &Jail, delete: &Delete, _bounds: &Bounds) -> Result<Preview, ToolFailure> {
    let path = &delete.path;
    let writable = jail.writable(path)?;
    let removal = writable.removal()?;
    let foreseen = match removal.what() {
        Removable::File(file) => trash::foresee(jail, path, file),
        Removable::Directory(_) => trash::foresee_directory(jail, path).map(|()| (0, String::new())),
    };
    let ((size_bytes, sha256), gone_for_good) = match foreseen {
        Ok(foreseen) => (foreseen, false),
        Err(NotTrashed::NoSpace(_)) => (without_trash(path, removal.what())?, true),
        Err(not_kept) => return Err(not_kept.into()),
    };
    demand(delete, removal.what(), &sha256)?;
    let bound = bound(path, &writable, removal.what(), &sha256, gone_for_good)?;
    let (entry_type, trash_entry) = (entry_type(removal.what()), String::new());
    let path = path.to_string();
    let result =
        DeleteResult { path, r#type: entry_type.into(), size_bytes, sha256, trash_entry, gone_for_good };
    Ok(Preview { result: OpResult::Delete(result), bound })
}

fn entry_type(what: &Removable) -> EntryType {
    match what {
        Removable::File(_) => EntryType::File,
        Removable::Directory(_) => EntryType::Directory,
    }
}

/// Returns the state that a consent is bound to.
///
/// A file is bound by its content. A directory, and a file that is not read, are bound by their identity. Each is also bound by owner,
/// permissions, the directories that lead there, and whether it is removed permanently.
fn bound(
    path: &SandboxPath,
    writable: &Writable<'_>,
    what: &Removable,
    sha256: &str,
    gone_for_good: bool,
) -> Result<Bound, ToolFailure> {
    let mut binder = Binder::new(if gone_for_good { "delete for good" } else { "delete" });
    let (meta, target) = match what {
        Removable::File(file) if sha256.is_empty() => {
            binder.bytes(path.to_string().as_bytes());
            identify(&file.meta, &mut binder);
            (&file.meta, Some(writable.target(Parents::MustExist)?))
        }
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

/// Adds attributes that no program can reset to earlier values.
fn identify(meta: &Metadata, binder: &mut Binder) {
    let (seconds, nanoseconds) = meta.changed;
    for number in
        [meta.identity.0, meta.identity.1, meta.size, seconds.cast_unsigned(), u64::from(nanoseconds)]
    {
        binder.number(number);
    }
}

/// Demands that the content has the hash in the request; a directory has none.
fn demand(delete: &Delete, what: &Removable, sha256: &str) -> Result<(), ToolFailure> {
    let Some(expected) = &delete.if_match_sha256 else { return Ok(()) };
    if sha256 == expected {
        return Ok(());
    }
    let path = delete.path.excerpt();
    let message = match what {
        Removable::Directory(_) => {
            format!(
                "{path} is a directory, which has no SHA-256; leave the expected SHA-256 out to delete it"
            )
        }
        Removable::File(_) if sha256.is_empty() => {
            format!(
                "{path} is too large for its SHA-256 to be checked; leave the expected SHA-256 out to delete it"
            )
        }
        Removable::File(_) => {
            format!("{path} does not have the expected SHA-256; read it again, its SHA-256 is now {sha256}")
        }
    };
    let failure = ToolFailure::new(Reason::PreconditionFailed, message).with("expected_sha256", expected);
    Err(if sha256.is_empty() { failure } else { failure.with("sha256", sha256) })
}
