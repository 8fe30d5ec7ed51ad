//! `patch`: several files, all or none.
//!
//! ```text
//! look at every file ─► apply in memory, check bounds ─► copy what is deleted into the trash ─► one commit for all
//! ```
//!
//! No file is written before the whole patch fits. A patch of one file that keeps its name needs only a rename, as for `edit`. Several
//! files go through [`Jail::commit`].

mod apply;
mod front_matter;
mod locate;
mod mismatch;
mod plan;
mod report;

#[cfg(test)]
mod tests;

use std::io::Write as _;

use jail::{Change, Fill, Jail, Then, WriteMode};
use operations::{Binder, Bound, Bounds, OpResult, Outcome, Patch, Preview, ToolFailure, before_effect};
use plan::{Planned, plan};
use report::report;

use super::location::Location;
use super::trash::{self, TrashedFile};
use super::when::{Undone, when};

/// Applies the patch. A file that has changed since it was examined is examined again.
pub fn patch(jail: &Jail, patch: &Patch, bounds: &Bounds) -> Outcome {
    if bounds.held_to.is_none() {
        return when(|_| attempt(jail, patch, bounds), None);
    }
    attempt(jail, patch, bounds).map_err(|undone| match undone {
        Undone::Failed(failure) => failure,
        Undone::Stale => before_effect(bounds.held_to.as_ref(), Undone::Stale.failure()),
    })
}

fn attempt(jail: &Jail, patch: &Patch, bounds: &Bounds) -> Result<OpResult, Undone> {
    let held_to = bounds.held_to.as_ref();
    let mut planned = plan(jail, patch, bounds).map_err(|failure| before_effect(held_to, failure))?;
    if held_to.is_some() {
        bound(&planned)?.demand(held_to)?;
    }
    let mut result = report(&planned, bounds);
    let kept = keep(jail, &mut planned).map_err(|undone| match undone {
        Undone::Failed(failure) => Undone::Failed(before_effect(held_to, failure)),
        Undone::Stale => Undone::Stale,
    })?;
    for (file, kept) in result.files.iter_mut().zip(&kept) {
        file.trash_entry = kept.as_ref().map(TrashedFile::entry).unwrap_or_default();
    }
    if let Err(failure) = carry_out(jail, planned, held_to.is_some()) {
        kept.into_iter().flatten().for_each(TrashedFile::forget);
        return Err(failure);
    }
    Ok(OpResult::Patch(result))
}

/// Returns the result that [`patch()`] would have. Fails as [`patch()`] would, and changes nothing.
pub fn preview_patch(jail: &Jail, patch: &Patch, bounds: &Bounds) -> Result<Preview, ToolFailure> {
    let mut planned = plan(jail, patch, bounds)?;
    for file in planned.iter_mut().filter(|file| file.is_deletion()) {
        if let Some(found) = file.location.reopen()? {
            trash::foresee(jail, file.path, &found)?;
        }
    }
    Ok(Preview { result: OpResult::Patch(report(&planned, bounds)), bound: bound(&planned)? })
}

fn bound(planned: &[Planned<'_>]) -> Result<Bound, ToolFailure> {
    let mut binder = Binder::new("patch");
    for file in planned {
        file.location.bind(&mut binder)?;
        if let Some((_, to)) = &file.moved_to {
            to.bind(&mut binder)?;
        }
    }
    Ok(binder.finish())
}

/// Copies the files that are deleted into the trash. Returns one item for each file of the patch, `None` if it is not deleted.
fn keep(jail: &Jail, planned: &mut [Planned<'_>]) -> Result<Vec<Option<TrashedFile>>, Undone> {
    let mut all: Vec<Option<TrashedFile>> = Vec::new();
    for file in planned {
        let kept = if file.is_deletion() { keep_one(jail, file).map(Some) } else { Ok(None) };
        match kept {
            Ok(kept) => all.push(kept),
            Err(failure) => {
                all.into_iter().flatten().for_each(TrashedFile::forget);
                return Err(failure);
            }
        }
    }
    Ok(all)
}

fn change(location: Location<'_>, then: Then, held: bool) -> Change<'_> {
    if held { location.into_held_change(then) } else { location.into_change(then) }
}

fn keep_one(jail: &Jail, file: &mut Planned<'_>) -> Result<TrashedFile, Undone> {
    let seen = file.location.sha256_before();
    let found = file.location.reopen()?.ok_or(Undone::Stale)?;
    let kept = trash::keep(jail, file.path, &found).map_err(ToolFailure::from)?;
    if kept.record().sha256 == seen {
        return Ok(kept);
    }
    kept.forget();
    Err(Undone::Stale)
}

/// Makes the changes. With `held`, only if they displace the bound state.
fn carry_out(jail: &Jail, mut planned: Vec<Planned<'_>>, held: bool) -> Result<(), Undone> {
    planned.retain(|file| !file.is_unchanged());
    if !held
        && let [file] = &planned[..]
        && file.moved_to.is_none()
        && file.content.is_some()
    {
        let Some(file) = planned.pop() else { return Ok(()) };
        let content = file.content.unwrap_or_default();
        let mut whole = Fill::new(move |new| new.write_all(&content));
        return file.location.put(whole.filling(), None, WriteMode::ReplaceUnchanged, None);
    }
    let mut changes = Vec::new();
    for file in planned {
        let like = file.location.metadata();
        match (file.moved_to, file.content) {
            (Some((_, to)), Some(content)) => {
                changes.push(change(file.location, Then::Gone, held));
                changes.push(change(to, Then::Put { content, like }, held));
            }
            (None, Some(content)) => {
                changes.push(change(file.location, Then::Put { content, like: None }, held));
            }
            (_, None) => changes.push(file.location.into_change(Then::Gone)),
        }
    }
    match changes.is_empty() {
        true => Ok(()),
        // A consent covers one state of the files, and no other.
        false if held => Ok(jail.commit(changes).map_err(ToolFailure::from)?),
        false => Ok(jail.commit(changes)?),
    }
}
