//! Reads and applies an overlay's changes for the daemon, measures a workspace, and copies and digests trees.
//!
//! These calls block for as long as the disk takes, bounded by a timeout. The answer of the jailed process is hostile: the process
//! has read files of an agent. The answer is capped and must decode; its strings are for people, who see them escaped.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use prost::Message;
use thiserror::Error;
use wire::v1::{AcceptRunResponse, Base, CloneWorkspace, DiffRunResponse, KeptWorkspace};

use crate::ancestry;
use crate::answer::answered;
use crate::args::{JailMount, Marks, Since, Task, TreeBounds};
use crate::spawn::Launcher;

/// A directory, and the changes that an overlay keeps of it.
#[derive(Debug)]
pub struct LayerSpec {
    pub beneath: OwnedFd,
    /// The overlay's upper directory.
    pub changes: OwnedFd,
    /// The time at which the overlay was created, by the clock of the file system: seconds since 1970, and nanoseconds.
    pub since: (i64, u32),
    /// True if some of the changes may have been applied already.
    pub resumed: bool,
    /// Owner of the directory beneath.
    pub owner_uid: u32,
    pub owner_gid: u32,
}

/// The error of changes that were not read, or not all applied.
#[derive(Debug, Error)]
pub enum LayerError {
    /// The host worker's reason, fit for a client.
    #[error("{0}")]
    Refused(String),
    /// The jail could not be set up, or its process failed.
    #[error("{0}")]
    Jail(String),
    /// A timeout. Some changes may be applied.
    #[error("it did not end within {} s", .0.as_secs())]
    TimedOut(Duration),
    /// An unreadable answer.
    #[error("the answer of coffer-host-worker cannot be read")]
    Answer,
    /// The process could not be started.
    #[error("cannot start coffer-host-worker: {0}")]
    Start(#[from] io::Error),
}

impl Launcher {
    /// Returns the changes, with a unified diff of at most `most` bytes.
    pub fn diff(
        &self,
        layer: &LayerSpec,
        most: u32,
        timeout: Duration,
    ) -> Result<DiffRunResponse, LayerError> {
        let mounts =
            [(JailMount::Source, layer.beneath.as_fd()), (JailMount::Changes, layer.changes.as_fd())];
        self.ask(&mounts, (layer.owner_uid, layer.owner_gid), Task::Diff(layer.since(), most), timeout)
    }

    /// Applies the changes to the directory beneath. No other process may be using the changes.
    pub fn accept(
        &self,
        layer: &LayerSpec,
        force: bool,
        timeout: Duration,
    ) -> Result<AcceptRunResponse, LayerError> {
        let mounts =
            [(JailMount::Workspace, layer.beneath.as_fd()), (JailMount::Changes, layer.changes.as_fd())];
        self.ask(&mounts, (layer.owner_uid, layer.owner_gid), Task::Accept(layer.since(), force), timeout)
    }

    /// Returns the length of all files in a directory in bytes, as far as `owner` (user and group) can see them.
    pub fn measure(
        &self,
        directory: BorrowedFd<'_>,
        owner: (u32, u32),
        timeout: Duration,
    ) -> Result<u64, LayerError> {
        let measured: KeptWorkspace =
            self.ask(&[(JailMount::Source, directory)], owner, Task::Measure, timeout)?;
        measured.size_bytes.ok_or(LayerError::Answer)
    }

    /// Copies `from` into the empty directory `into`, as `owner`, to whom `into` belongs.
    ///
    /// Returns the copy's digest and size, and the number of files that were left out. After an error `into` has a part of the copy.
    pub fn copy(
        &self,
        from: BorrowedFd<'_>,
        into: BorrowedFd<'_>,
        owner: (u32, u32),
        most: TreeBounds,
        timeout: Duration,
    ) -> Result<Base, LayerError> {
        self.ask(&[(JailMount::Source, from), (JailMount::Workspace, into)], owner, Task::Copy(most), timeout)
    }

    /// Copies `from` into `files` of the empty directory `into`, as `owner`, to whom both belong.
    ///
    /// Lists an overlay's marks in `marks` of `into`. Returns the same as [`Self::copy`]. After an error `into` has a part of the copy.
    pub fn save(
        &self,
        (from, into): (BorrowedFd<'_>, BorrowedFd<'_>),
        owner: (u32, u32),
        (most, marks): (TreeBounds, Marks),
        timeout: Duration,
    ) -> Result<Base, LayerError> {
        let mounts = [(JailMount::Source, from), (JailMount::Workspace, into)];
        self.ask(&mounts, owner, Task::Save(most, marks), timeout)
    }

    /// Puts a tree that [`Self::save`] made into `into`, as `owner`, as whose files both appear. No other process may be using `into`.
    pub fn fill(
        &self,
        from: BorrowedFd<'_>,
        into: BorrowedFd<'_>,
        owner: (u32, u32),
        timeout: Duration,
    ) -> Result<(), LayerError> {
        self.ask(&[(JailMount::Source, from), (JailMount::Workspace, into)], owner, Task::Fill, timeout)
    }

    /// Makes `into` what it was when [`Self::save`] made `from` of it, as `owner`, as whose files all appear.
    ///
    /// For an overlay, `layer` has the directory beneath, and a tree that names what is changed now. No other process may be using `into`.
    /// After an error, the same can be asked again.
    pub fn restore(
        &self,
        (from, into): (BorrowedFd<'_>, BorrowedFd<'_>),
        layer: Option<(BorrowedFd<'_>, BorrowedFd<'_>)>,
        owner: (u32, u32),
        timeout: Duration,
    ) -> Result<(), LayerError> {
        let mut mounts = vec![(JailMount::Source, from), (JailMount::Workspace, into)];
        if let Some((beneath, before)) = layer {
            mounts.extend([(JailMount::Beneath, beneath), (JailMount::Before, before)]);
        }
        self.ask(&mounts, owner, Task::Restore { is_layer: layer.is_some() }, timeout)
    }

    /// Returns the digest and the size of a tree, read as `owner`.
    pub fn digest(
        &self,
        tree: BorrowedFd<'_>,
        owner: (u32, u32),
        most: TreeBounds,
        timeout: Duration,
    ) -> Result<Base, LayerError> {
        self.ask(&[(JailMount::Source, tree)], owner, Task::Digest(most), timeout)
    }

    /// Sends a tree over `stream`, read as `owner`. Returns its digest and size, which the reader of the stream has to compare.
    pub fn export(
        &self,
        (tree, stream): (BorrowedFd<'_>, OwnedFd),
        owner: (u32, u32),
        most: TreeBounds,
        timeout: Duration,
    ) -> Result<Base, LayerError> {
        self.ask_with(&[(JailMount::Source, tree)], Some(stream), owner, Task::Export(most), timeout)
    }

    /// Fills the empty directory `into` with the tree that comes over `stream`, as `owner`, to whom `into` belongs.
    ///
    /// Returns the tree's digest and size. After an error `into` has a part of the tree.
    pub fn import(
        &self,
        (into, stream): (BorrowedFd<'_>, OwnedFd),
        owner: (u32, u32),
        most: TreeBounds,
        timeout: Duration,
    ) -> Result<Base, LayerError> {
        self.ask_with(&[(JailMount::Workspace, into)], Some(stream), owner, Task::Import(most), timeout)
    }

    /// Returns a digest of all that determines a clone of a repository, which is read as `owner`.
    ///
    /// `work_tree` is the name of the linked work tree to clone, if the source is its repository; empty otherwise.
    pub fn identify(
        &self,
        source: BorrowedFd<'_>,
        (revision, work_tree): (&str, &str),
        owner: (u32, u32),
        timeout: Duration,
    ) -> Result<String, LayerError> {
        let task = Task::Identify { revision: revision.to_owned(), work_tree: work_tree.to_owned() };
        let found: CloneWorkspace = self.ask(&[(JailMount::Source, source)], owner, task, timeout)?;
        Ok(found.revision)
    }

    /// Returns for each pair of commits, an old and a new one, if the first is an ancestor of the second; `None` if that is not known.
    ///
    /// `repository` is a work tree or a git directory, which is read as `owner`. There may be [`ancestry::MOST_PAIRS`] pairs.
    pub fn ancestry(
        &self,
        repository: BorrowedFd<'_>,
        pairs: Vec<(String, String)>,
        owner: (u32, u32),
        timeout: Duration,
    ) -> Result<Vec<Option<bool>>, LayerError> {
        let (count, task) = (pairs.len(), Task::Ancestry(pairs));
        let answer: Vec<u8> = self.ask(&[(JailMount::Source, repository)], owner, task, timeout)?;
        let answers = ancestry::answers(&answer);
        if answers.len() == count { Ok(answers) } else { Err(LayerError::Answer) }
    }

    /// Returns the content of the small file at this relative path beneath a directory. Reads as `owner` and follows no link.
    pub fn read(
        &self,
        directory: BorrowedFd<'_>,
        path: &str,
        owner: (u32, u32),
        timeout: Duration,
    ) -> Result<Vec<u8>, LayerError> {
        self.ask(&[(JailMount::Source, directory)], owner, Task::Read(path.to_owned()), timeout)
    }

    /// Creates the directory for reflogs in a git directory, if it is missing, as its owner.
    pub fn make_logs(
        &self,
        directory: BorrowedFd<'_>,
        owner: (u32, u32),
        timeout: Duration,
    ) -> Result<(), LayerError> {
        self.ask(&[(JailMount::Workspace, directory)], owner, Task::MakeLogs, timeout)
    }

    pub(crate) fn ask<T: Message + Default>(
        &self,
        mounts: &[(JailMount, BorrowedFd<'_>)],
        owner: (u32, u32),
        task: Task,
        timeout: Duration,
    ) -> Result<T, LayerError> {
        self.ask_with(mounts, None, owner, task, timeout)
    }

    fn ask_with<T: Message + Default>(
        &self,
        mounts: &[(JailMount, BorrowedFd<'_>)],
        further: Option<OwnedFd>,
        owner: (u32, u32),
        task: Task,
        timeout: Duration,
    ) -> Result<T, LayerError> {
        let deadline = Instant::now() + timeout;
        let started = self.start_with(mounts, further.as_ref().map(AsFd::as_fd), owner, task);
        // The process alone has it, so that the other end sees when the process has ended.
        drop(further);
        let (channel, mut child) = started?;
        let done = answered(&channel, &mut child, deadline)?;
        match done.status {
            Some(status) if status.success() => {
                let answer = done.answer.map_err(|_| LayerError::Answer)?;
                T::decode(answer.as_slice()).map_err(|_| LayerError::Answer)
            }
            Some(status) if status.code() == Some(4) => Err(LayerError::Refused(done.words)),
            Some(_) => Err(LayerError::Jail(done.words)),
            None if done.is_too_large() => Err(LayerError::Answer),
            None => Err(LayerError::TimedOut(timeout)),
        }
    }
}

impl LayerSpec {
    fn since(&self) -> Since {
        Since { time: self.since, resumed: self.resumed }
    }
}
