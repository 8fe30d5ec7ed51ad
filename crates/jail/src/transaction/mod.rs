//! Changes several files, all or none of them, in directories in which hostile processes write too.
//!
//! ```text
//! prepare: directories, a shadow beside each file (the new content under a temporary name)       ─┐ a death here
//! journal: the list of the shadows, durable in the run's private directory                        │ or until the
//! apply:   exchange each file with its shadow; a removed file is renamed to its shadow's name     │ commit: undone
//! sync:    every directory                                                                       ─┘
//! commit:  one rename in the private directory, durable                                          ─┐ a death from
//! clean:   remove the shadows, which now have the old contents, then the journal                 ─┘ here on: completed
//! ```
//!
//! Before the commit, no content is copied and no file is deleted. So undoing needs no space: it repeats the same
//! renames. Each is a single atomic exchange, so that an existing name is never missing. After an exchange, the
//! displaced file is compared with the file that should be replaced. This also detects a change in the instant before
//! the exchange.
//!
//! The inode of the new file, which this process has made, shows if a step has been taken. Another process could fake
//! other signs. If another process has changed a file meanwhile, its change stays, as if it had come later, and
//! the error reports it. This needs a file system that can exchange names (`RENAME_EXCHANGE`), as all local ones can.

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

/// Check of the displaced file's content: true if it is the file that should be replaced.
struct Held<'j>(Box<dyn Fn(RegularFile) -> io::Result<bool> + 'j>);

impl fmt::Debug for Held<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Held")
    }
}

/// Fate of a file.
#[derive(Debug)]
pub enum Then {
    /// The file gets this content.
    Put {
        content: Vec<u8>,
        /// The file from which a moved file comes. The new file takes its permissions.
        like: Option<Metadata>,
    },
    /// The file gets the content that `fill` writes, and these permission bits. `None` keeps those of the replaced
    /// file.
    Fill {
        fill: Fill,
        permissions: Option<u32>,
    },
    Gone,
}

impl<'j> Change<'j> {
    /// Makes a change at `place`.
    ///
    /// `target` is the file that the caller saw there, which must be unchanged. `None` if not even its directory
    /// existed.
    pub fn new(place: Writable<'j>, target: Option<Target>, then: Then) -> Self {
        Self { place, target, then, held: None }
    }

    /// Adds a check of the displaced file. If `is` returns false, the names are exchanged back.
    ///
    /// The displaced file then has no other name, so no process can change it by name.
    #[must_use]
    pub fn held(self, is: impl Fn(RegularFile) -> io::Result<bool> + 'j) -> Self {
        Self { held: Some(Held(Box::new(is))), ..self }
    }
}

/// The next action, for tests that fail or die there.
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
    /// Makes all of the changes, or none.
    ///
    /// The jail must have a private directory, and the operation no other transaction. This waits while another
    /// operation of the run makes changes. Directories for new files are made, and removed again if the transaction
    /// fails.
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

/// Reason why a commit failed.
enum Final {
    /// The commit has not happened.
    No(WriteError),
    /// The commit has happened, but may not survive a power loss.
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

    /// Makes the directories for a new file, and remembers them.
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

    /// Removes the shadows and the journal. If a shadow cannot be removed now, the journal stays for recovery.
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

    /// Undoes all steps in reverse.
    fn undo(self, cause: WriteError, hook: Hook<'_>) -> CommitError {
        let mut left = Vec::new();
        let mut clean = true;
        for (number, step) in self.steps.iter().enumerate().rev() {
            // The hook can only die here: undoing continues as far as it can.
            let _ = hook(Point::Revert(number));
            let (state, finished) = step.revert();
            clean &= finished;
            if let Some(state) = state {
                left.push(Left { path: step.path().excerpt(), state });
            }
        }
        for step in &self.steps {
            // An undone step survives the death of the process without a sync. After a power loss, recovery repeats it
            // as long as the journal exists.
            clean &= fsync(step.target().dir()).is_ok();
        }
        remove_directories(self.jail, &self.made);
        if clean {
            self.journal.remove();
        }
        CommitError::new(cause, left)
    }
}

/// Removes directories that were made in vain. A directory that another process uses meanwhile stays.
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

/// Returns the path of the file `name` in the directory `place`.
fn join(place: &SandboxPath, name: &crate::name::EntryName) -> SandboxPath {
    SandboxPath::new(place.mount(), place.rel().join(name).unwrap_or_else(RelPath::root))
}
