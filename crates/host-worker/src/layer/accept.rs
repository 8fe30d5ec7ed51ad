//! Applies the changes of a layer to the directory beneath.
//!
//! ```text
//! look at all changes ─► objections or obstacles? refuse ─► put new files ─► remove deleted ones
//! ```
//!
//! Each name is the old file or the new one at every moment. An end in the middle leaves some of the changes applied. The next
//! accept finds these applied and goes on with the others. New files are put before old ones are removed, so that a moved file is
//! always in at least one place.

use jail::{Dir, EntryName, FileKind, OpenError, excerpt};
use wire::v1::AcceptRunResponse;

use super::LayerFailure;
use super::judge::Kind;
use super::walk::{Change, Visitor, walk};
use crate::sys;
use host_launch::args::Since;

/// Most paths that a refusal names.
const NAMED: usize = 10;
/// Most paths that are named as left out.
const LEFT_OUT: usize = 1_000;
/// The mode that the owner needs to fill a directory.
const WRITABLE: u32 = 0o700;

/// Applies everything; with `force`, everything that can be applied.
pub(super) fn accept(
    changes: &Dir,
    beneath: &Dir,
    since: Since,
    force: bool,
) -> Result<AcceptRunResponse, LayerFailure> {
    let mut look = Look::default();
    walk(changes, beneath, since, &mut look)?;
    if !force && look.against > 0 {
        return Err(LayerFailure::Refused(look.words()));
    }
    let mut apply = Apply { step: Step::Put, applied: 0 };
    for step in [Step::Put, Step::Remove, Step::SetModes] {
        apply.step = step;
        walk(changes, beneath, since, &mut apply)
            .map_err(|error| LayerFailure::Interrupted { applied: apply.applied, error })?;
    }
    Ok(AcceptRunResponse { run: None, applied: apply.applied, left_out: look.left_out })
}

/// The objections and obstacles to applying the changes.
#[derive(Default)]
struct Look {
    against: u64,
    named: Vec<String>,
    left_out: Vec<String>,
}

impl Look {
    fn words(&self) -> String {
        let more = self.against - self.named.len() as u64;
        let more = if more > 0 { format!(", and {more} more") } else { String::new() };
        format!("{}{more}", self.named.join("; "))
    }
}

impl Visitor for Look {
    fn change(&mut self, change: &Change<'_>) -> Result<bool, OpenError> {
        let judgement = &change.judgement;
        if let Some(why) = judgement.obstacle.or(judgement.objection) {
            self.against += 1;
            if self.named.len() < NAMED {
                self.named.push(format!("{}: {why}", excerpt(&change.shown())));
            }
        }
        if judgement.obstacle.is_some() && self.left_out.len() < LEFT_OUT {
            self.left_out.push(change.shown());
        }
        Ok(judgement.obstacle.is_none())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Puts new and changed files.
    Put,
    Remove,
    /// Sets the modes of directories, which may keep their owner from writing in them.
    SetModes,
}

struct Apply {
    step: Step,
    applied: u64,
}

impl Apply {
    /// Applies one change in its step. Returns true if that counts as a change.
    fn put(&self, change: &Change<'_>, name: &EntryName, beneath: &Dir) -> Result<bool, OpenError> {
        let mode = change.meta.mode;
        match (self.step, change.kind, change.meta.kind) {
            (Step::Remove, Kind::Deleted, _) => beneath.remove(name)?,
            (Step::Put, Kind::Added | Kind::Modified, FileKind::File) => {
                let mut content = change.changes.open_file(name)?.file;
                beneath.put_file(name, &mut content, mode)?;
            }
            (Step::Put, Kind::Added | Kind::Modified, FileKind::Symlink) => {
                beneath.put_link(name, &change.changes.read_link(name)?)?;
            }
            (Step::Put, Kind::Added | Kind::Modified, FileKind::Directory) => {
                beneath.put_dir(name, mode | WRITABLE)?;
                beneath.open_dir(name)?.set_mode(mode | WRITABLE)?;
            }
            (Step::SetModes, Kind::Modified, FileKind::Directory) => {
                beneath.open_dir(name)?.set_mode(mode)?;
                return Ok(false);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl Visitor for Apply {
    fn change(&mut self, change: &Change<'_>) -> Result<bool, OpenError> {
        if change.judgement.obstacle.is_some() {
            return Ok(false);
        }
        if sys::is_abandoned() {
            // The next daemon may be about to do the same.
            sys::exit_now(1);
        }
        if let (Some(name), Some(beneath)) = (change.name(), change.beneath) {
            self.applied += u64::from(self.put(change, name, beneath)?);
        }
        Ok(true)
    }

    fn enter(&mut self, beneath: &Dir) -> Result<(), OpenError> {
        beneath.sweep()
    }

    fn leave(&mut self, beneath: &Dir) -> Result<(), OpenError> {
        beneath.sync()
    }
}
