//! Project of each run whose quota the kernel enforces.
//!
//! The directories are the table: each has its project's number. So the daemon stores nothing else, and reads the table from them when it
//! starts. A number belongs to one run, and is used again when that run's directories are gone. A run that continues in the workspace of an
//! earlier run shares its project, because every file in it has that number already. Two live runs never share one, since a workspace has
//! at most one live run.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};

use containers::{Amount, ProjectId, ProjectQuotas, Quota};
use identity::RunId;
use parking_lot::Mutex;
use refusal::chain;
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, openat};
use rustix::io::Errno;

use crate::left::Left;

/// Numbers that are tried before a run has no project.
const TRIES: usize = 1_000;

/// Projects of the runs' directories.
pub struct Projects {
    /// Directories whose contents count. Each has one subdirectory for each run, named by the run's id.
    counted: Vec<PathBuf>,
    quotas: Option<ProjectQuotas>,
    table: Mutex<BTreeMap<RunId, ProjectId>>,
    /// Space of runs that have ended.
    pub left: Left,
}

impl Projects {
    /// Opens the project quotas of the state directory's file system, and reads the projects of all existing directories of runs, which are
    /// in the directories of `counted`.
    pub fn open(state: &Path, counted: Vec<PathBuf>) -> io::Result<Self> {
        let state = open(state)?;
        let quotas = ProjectQuotas::of(state.as_fd())?;
        let mut table = BTreeMap::new();
        if let Some(quotas) = &quotas {
            for parent in &counted {
                for (run, directory) in runs_in(parent)? {
                    if let Some(project) = quotas.project_of(directory.as_fd())? {
                        table.insert(run, project);
                    }
                }
            }
        }
        Ok(Self { counted, quotas, table: Mutex::new(table), left: Left::default() })
    }

    /// Returns true if the kernel can enforce the quotas of runs here.
    pub fn are_held(&self) -> bool {
        self.quotas.is_some()
    }

    /// Returns the mechanism that holds runs to their quotas here by default.
    pub fn quota(&self) -> Quota {
        if self.are_held() { Quota::Kernel } else { Quota::Measured }
    }

    /// Returns the mechanism that holds this run to its quota.
    pub fn quota_of(&self, run: RunId) -> Quota {
        if self.of(run).is_some() { Quota::Kernel } else { Quota::Measured }
    }

    /// Assigns a project with this quota to the directories of a new run. If that fails the run is measured.
    ///
    /// `continued` is the run whose workspace it continues in.
    pub fn allot(&self, run: RunId, continued: Option<RunId>, most: Amount) {
        if let Err(error) = self.try_allot(run, continued, most) {
            self.does_without(run, &error);
        }
    }

    fn try_allot(&self, run: RunId, continued: Option<RunId>, most: Amount) -> io::Result<()> {
        let Some(quotas) = &self.quotas else { return Ok(()) };
        let mut table = self.table.lock();
        let project = match continued {
            // A workspace that was made without a project gets none now, because every file in it would need one.
            Some(before) => table.get(&before).copied(),
            None => Some(free(quotas, run, &table)?),
        };
        if let Some(project) = project {
            quotas.limit(project, Some(most))?;
            table.insert(run, project);
        }
        Ok(())
    }

    /// Sets the quota of a run that an earlier daemon made.
    pub fn limit_again(&self, run: RunId, most: Amount) {
        let Some((quotas, project)) = self.of(run) else { return };
        if let Err(error) = quotas.limit(project, Some(most)) {
            tracing::error!(%run, error = %chain(&error), "a run's quota was not set");
        }
    }

    /// Assigns an empty directory to the run's project, if it has one.
    pub fn assign(&self, run: RunId, directory: BorrowedFd<'_>) {
        let Some((quotas, project)) = self.of(run) else { return };
        let assigned = quotas.assign(directory, project).and_then(|()| quotas.project_of(directory));
        match assigned {
            Ok(now) if now == Some(project) => {}
            Ok(_) => {
                self.does_without(run, &io::Error::other("the directory's quota project could not be set"));
            }
            Err(error) => self.does_without(run, &error),
        }
    }

    /// Assigns a directory that the daemon made before the run, with everything in it, to the run's project, if it has one.
    pub fn take_in(&self, run: RunId, directory: BorrowedFd<'_>) -> io::Result<()> {
        let Some((quotas, project)) = self.of(run) else { return Ok(()) };
        quotas.assign_tree(directory, project)?;
        if quotas.project_of(directory)? == Some(project) {
            return Ok(());
        }
        Err(io::Error::other("the directory's quota project could not be set"))
    }

    /// Removes the run's project, so that the run is measured.
    fn does_without(&self, run: RunId, error: &io::Error) {
        tracing::error!(%run, error = %chain(error), "the kernel does not enforce a run's quota: the daemon measures its use instead");
        self.table.lock().remove(&run);
    }

    /// Returns the kernel's count for the run. `None` if the kernel does not enforce the run's quota.
    pub fn used(&self, run: RunId) -> Option<io::Result<Amount>> {
        self.of(run).map(|(quotas, project)| quotas.used(project))
    }

    /// Updates the table after a removal. If the run has no directory left, its project becomes free, unless another run shares it.
    pub fn settle(&self, run: RunId) {
        self.left.expect(run, 0);
        let Some(quotas) = &self.quotas else { return };
        let left = self
            .counted
            .iter()
            .any(|parent| !matches!(rustix::fs::lstat(parent.join(run.to_string())), Err(Errno::NOENT)));
        let mut table = self.table.lock();
        if left {
            return;
        }
        let Some(project) = table.remove(&run) else { return };
        if table.values().any(|other| *other == project) {
            return;
        }
        if let Err(error) = quotas.limit(project, None) {
            tracing::warn!(%run, error = %chain(&error), "the project quota of a deleted run could not be cleared");
        }
    }

    fn of(&self, run: RunId) -> Option<(&ProjectQuotas, ProjectId)> {
        let project = self.table.lock().get(&run).copied()?;
        Some((self.quotas.as_ref()?, project))
    }
}

/// Returns a number that neither a run of this daemon nor another user of the file system has.
fn free(quotas: &ProjectQuotas, run: RunId, table: &BTreeMap<RunId, ProjectId>) -> io::Result<ProjectId> {
    let mut project = ProjectId::from_any(run.low_bits());
    for _ in 0..TRIES {
        if !table.values().any(|other| *other == project) && quotas.is_free(project)? {
            return Ok(project);
        }
        project = project.next();
    }
    Err(io::Error::other("no project is free"))
}

fn open(path: &Path) -> io::Result<rustix::fd::OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(CWD, path, flags, Mode::empty())?)
}

/// Opens the directories of runs in one of the daemon's directories.
fn runs_in(parent: &Path) -> io::Result<Vec<(RunId, rustix::fd::OwnedFd)>> {
    let parent = match open(parent) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        parent => parent?,
    };
    let mut found = Vec::new();
    for entry in Dir::read_from(&parent)? {
        let entry = entry?;
        let name = entry.file_name();
        let run = name.to_str().ok().and_then(|name| RunId::parse(name).ok());
        if let Some(run) =
            run.filter(|_| matches!(entry.file_type(), FileType::Directory | FileType::Unknown))
        {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            found.push((run, openat(&parent, name, flags, Mode::empty())?));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
