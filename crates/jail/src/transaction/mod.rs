//! Changing several files, all or none of them, in directories that somebody hostile writes in too.
//!
//! ```text
//! prepare: directories, a shadow beside each file (the new content under a temporary name)       ─┐ a death here
//! journal: which shadows there are, durable in the run's private directory                        │ or until the
//! apply:   exchange each file with its shadow; a file that goes is renamed to its shadow's name   │ commit: undone
//! sync:    every directory                                                                       ─┘
//! commit:  one rename in the private directory, durable                                          ─┐ a death from
//! clean:   remove the shadows, which hold the old contents by now, then the journal              ─┘ here on: completed
//! ```
//!
//! Nothing is copied and nothing is deleted before the commit, so undoing needs no space and no luck: it is the same
//! renames again. Each is a single atomic exchange, so that at no moment a name is missing that was there. What came out
//! of an exchange is compared with what was to be replaced, which also finds a change in the instant before it.
//!
//! Whether a step has been taken is told by the inode of the new file, which this process has made, and by nothing that
//! somebody else could have made look so. If a third party has changed a file meanwhile, its change stays, as
//! though it had come later, and the error says so. Needs a file system that can exchange names (`RENAME_EXCHANGE`), as
//! all local ones can.

mod error;
mod journal;
mod recover;
mod revert;
mod step;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;

use rustix::fs::{AtFlags, fsync, unlinkat};
use rustix::io::Errno;

use crate::error::{OpenError, OpenErrorKind, WriteError};
use crate::fill::Fill;
use crate::jail::{Jail, Writable};
use crate::meta::{Metadata, RegularFile};
use crate::path::SandboxPath;
use crate::rel::RelPath;
use crate::turn::Turn;
use crate::write::{Found, Parents, Target};

pub use error::{CommitError, Left, LeftState};
pub use recover::{PatchRecovery, Recovery};

use journal::Journal;
use step::Step;

#[derive(Debug)]
pub struct Change<'j> {
    place: Writable<'j>,
    target: Option<Target>,
    then: Then,
    held: Option<Held<'j>>,
}

/// Whether what was displaced is what was to be: a look at its content.
struct Held<'j>(Box<dyn Fn(RegularFile) -> io::Result<bool> + 'j>);

impl fmt::Debug for Held<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Held")
    }
}

/// What becomes of a file.
#[derive(Debug)]
pub enum Then {
    /// It has this content.
    Put {
        content: Vec<u8>,
        /// A file whose permissions a new one takes, because it is moved from there.
        like: Option<Metadata>,
    },
    /// It has the content that this writes, and these permission bits; `None`: those of the file that it replaces.
    Fill {
        fill: Fill,
        permissions: Option<u32>,
    },
    Gone,
}

impl<'j> Change<'j> {
    /// A change at `place`. `target` is what was seen there, and must be there still; `None` where not even the directory
    /// was.
    pub fn new(place: Writable<'j>, target: Option<Target>, then: Then) -> Self {
        Self { place, target, then, held: None }
    }

    /// Holds only if `is` says so of the file that was displaced, which has no other name by then: nobody who goes by its name
    /// changes it any more. Else the names are exchanged back.
    #[must_use]
    pub fn held(self, is: impl Fn(RegularFile) -> io::Result<bool> + 'j) -> Self {
        Self { held: Some(Held(Box::new(is))), ..self }
    }
}

/// What is about to be done, for tests that fail there or die there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Point {
    MakeDirectories,
    Prepare(usize),
    Journal,
    Apply(usize),
    Applied(usize),
    Sync,
    Commit,
    Committed,
    Clean(usize),
    Cleaned,
    Revert(usize),
}

type Hook<'h> = &'h mut dyn FnMut(Point) -> Result<(), Errno>;

impl Jail {
    /// Makes all of the changes, or none. The jail must have a private directory, and the operation no other transaction.
    /// Waits while another operation of the run makes changes.
    /// Directories on the way to new files are made, and are gone again if nothing comes of it.
    pub fn commit(&self, changes: Vec<Change<'_>>) -> Result<(), CommitError> {
        self.commit_with(changes, &mut |_| Ok(()))
    }

    fn commit_with(&self, changes: Vec<Change<'_>>, hook: Hook<'_>) -> Result<(), CommitError> {
        let private = self.private().ok_or_else(|| {
            CommitError::undone(unsupported(
                "several files cannot be changed at once here: there is no private directory",
            ))
        })?;
        let opened = Turn::of_changes(private).and_then(|turn| Ok((turn, Journal::open(private)?)));
        let (_turn, journal) = opened.map_err(|errno| {
            CommitError::undone(unsupported(&format!("the journal cannot be opened: {errno}")))
        })?;
        let mut transaction = Transaction { jail: self, made: Vec::new(), steps: Vec::new(), journal };
        let done = transaction.prepare(changes, hook).and_then(|()| transaction.apply(hook));
        if let Err(cause) = done {
            return Err(transaction.undo(cause, hook));
        }
        match transaction.make_final(hook) {
            Ok(()) => {
                transaction.clean(hook);
                Ok(())
            }
            Err(Final::No(cause)) => Err(transaction.undo(cause, hook)),
            Err(Final::Perhaps(cause)) => Err(CommitError::not_durable(cause)),
        }
    }
}

/// A commit that failed.
enum Final {
    /// It has not happened.
    No(WriteError),
    /// It has, but might not outlive a loss of power.
    Perhaps(WriteError),
}

struct Transaction<'t, 'j> {
    jail: &'t Jail,
    /// Directories that were missing, the upper ones first.
    made: Vec<SandboxPath>,
    steps: Vec<Step<'j>>,
    journal: Journal,
}

impl<'j> Transaction<'_, 'j> {
    fn prepare(&mut self, changes: Vec<Change<'j>>, hook: Hook<'_>) -> Result<(), WriteError> {
        point(hook, Point::MakeDirectories)?;
        let mut targets = Vec::new();
        for change in changes {
            let target = match change.target {
                Some(target) => target,
                None => self.make_way(change.place)?,
            };
            targets.push((target, change.then, change.held));
        }
        for (number, (target, then, held)) in targets.into_iter().enumerate() {
            point(hook, Point::Prepare(number))?;
            self.steps.push(Step::prepare(target, then, held)?);
        }
        Ok(())
    }

    /// Makes the directories that lead to a new file, and remembers which.
    fn make_way(&mut self, place: Writable<'j>) -> Result<Target, WriteError> {
        let (root, rel) = place.parts();
        let mut missing = Vec::new();
        let mut above = rel.parent();
        while let Some(directory) = above.filter(|directory| !directory.is_root()) {
            match root.dir(&directory) {
                Err(OpenErrorKind::NotFound) => {
                    missing.push(SandboxPath::new(root.mount(), directory.clone()));
                }
                _ => break,
            }
            above = directory.parent();
        }
        self.made.extend(missing.into_iter().rev());
        let target = place.target(Parents::Create)?;
        if target.found() == Found::Absent {
            Ok(target)
        } else {
            Err(WriteError::Changed { path: target.path() })
        }
    }

    fn apply(&mut self, hook: Hook<'_>) -> Result<(), WriteError> {
        point(hook, Point::Journal)?;
        self.journal.write(&self.steps, &self.made).map_err(|errno| fault("the patch's journal", errno))?;
        for (number, step) in self.steps.iter().enumerate() {
            point(hook, Point::Apply(number))?;
            step.apply()?;
            point(hook, Point::Applied(number))?;
        }
        point(hook, Point::Sync)?;
        let mut synced = Vec::new();
        for step in &self.steps {
            if !synced.contains(&step.directory()) {
                fsync(step.target().dir()).map_err(|errno| fault(&step.directory().excerpt(), errno))?;
                synced.push(step.directory());
            }
        }
        Ok(())
    }

    fn make_final(&mut self, hook: Hook<'_>) -> Result<(), Final> {
        point(hook, Point::Commit).map_err(Final::No)?;
        self.journal.commit().map_err(|errno| Final::No(fault("the patch's journal", errno)))?;
        point(hook, Point::Committed)
            .and_then(|()| self.journal.sync().map_err(|errno| fault("the patch's journal", errno)))
            .map_err(Final::Perhaps)
    }

    /// What cannot be removed now is removed by recovery, which the journal then waits for.
    fn clean(self, hook: Hook<'_>) {
        for (number, step) in self.steps.iter().enumerate() {
            if point(hook, Point::Clean(number)).is_err() || !step.remove_shadow() {
                return;
            }
        }
        if point(hook, Point::Cleaned).is_ok() {
            self.journal.remove();
        }
    }

    /// Takes back whatever has been done, in reverse.
    fn undo(self, cause: WriteError, hook: Hook<'_>) -> CommitError {
        let mut left = Vec::new();
        let mut clean = true;
        for (number, step) in self.steps.iter().enumerate().rev() {
            // The hook only dies here: undoing goes as far as it can.
            let _ = hook(Point::Revert(number));
            let (state, finished) = step.revert();
            clean &= finished;
            if let Some(state) = state {
                left.push(Left { path: step.path().excerpt(), state });
            }
        }
        for step in &self.steps {
            // What was undone holds without a sync after the death of a process; after a loss of power, recovery does it
            // again as long as the journal is there.
            clean &= fsync(step.target().dir()).is_ok();
        }
        remove_directories(self.jail, &self.made);
        if clean {
            self.journal.remove();
        }
        CommitError::new(cause, left)
    }
}

/// Removes directories that were made for nothing. One that somebody uses meanwhile stays.
fn remove_directories(jail: &Jail, made: &[SandboxPath]) {
    for directory in made.iter().rev() {
        let Some((above, name)) = directory.rel().split_last() else { continue };
        if let Ok(above) =
            jail.root(directory.mount()).map_err(drop).and_then(|root| root.dir(&above).map_err(drop))
        {
            let _ = unlinkat(&above, name.as_bytes(), AtFlags::REMOVEDIR);
        }
    }
}

fn point(hook: Hook<'_>, point: Point) -> Result<(), WriteError> {
    hook(point).map_err(|errno| fault("the patch", errno))
}

fn fault(path: &str, errno: Errno) -> WriteError {
    OpenError::new(path, errno).into()
}

fn unsupported(message: &str) -> WriteError {
    OpenError::new("the patch", OpenErrorKind::Io(io::Error::other(message.to_owned()))).into()
}

/// The file `name` in the directory `place`.
fn join(place: &SandboxPath, name: &crate::name::EntryName) -> SandboxPath {
    SandboxPath::new(place.mount(), place.rel().join(name).unwrap_or_else(RelPath::root))
}
