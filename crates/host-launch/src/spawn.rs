//! Starts host workers, clones and trials of the jail, for the daemon.
//!
//! These calls block only briefly; `cofferd` makes them from a blocking thread. Directories are passed as handles that the caller
//! has opened and verified: no path is looked up again.

use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Gid, Mode, OFlags, Uid, open};
use rustix::process::{Pid, PidfdFlags, getegid, geteuid, pidfd_open};
use thiserror::Error;

use crate::args::{Args, JailMount, Task, TreeBounds, WeakerForm};
use crate::report::Report;
use crate::{PROGRAM, handles, numbered};

/// Most bytes that are read of a host worker's last words.
const LAST_WORDS: u64 = 4096;
/// Longest time that a trial of the jail may take.
const TRIAL: Duration = Duration::from_secs(10);

/// The directories that one run's host worker can see, and the identity that it takes.
#[derive(Debug)]
pub struct HostWorkerSpec {
    /// `@project`, read and write.
    pub workspace: OwnedFd,
    /// `@state`, read and write.
    pub state: Option<OwnedFd>,
    /// The mount `@pkg`, which is read only.
    pub pkg: Option<OwnedFd>,
    /// Directory of the run's private data, which the container must not see.
    ///
    /// It belongs to the owner, and is the same for every host worker of the run. Without it no file can be deleted or patched, and
    /// a killed write leaves its temporary file.
    pub private: Option<OwnedFd>,
    /// The repository whose linked work tree is the workspace.
    pub linked: Option<LinkedSpec>,
    /// Owner of the workspace. 0 is allowed.
    pub owner_uid: u32,
    pub owner_gid: u32,
}

/// The repository of a linked work tree. The caller has verified that repository and work tree name each other.
#[derive(Debug)]
pub struct LinkedSpec {
    /// Read only, but for the parts that git writes for this work tree.
    pub repository: OwnedFd,
    /// Name of the work tree in it.
    pub work_tree: String,
}

impl HostWorkerSpec {
    fn mounts(&self) -> Vec<(JailMount, BorrowedFd<'_>)> {
        let mounts = [
            (JailMount::Workspace, Some(self.workspace.as_fd())),
            (JailMount::State, self.state.as_ref().map(AsFd::as_fd)),
            (JailMount::Pkg, self.pkg.as_ref().map(AsFd::as_fd)),
            (JailMount::Private, self.private.as_ref().map(AsFd::as_fd)),
        ];
        mounts.into_iter().filter_map(|(jail_mount, handle)| Some((jail_mount, handle?))).collect()
    }
}

/// A local repository to clone.
#[derive(Debug)]
pub struct CloneSpec {
    /// The target: an empty directory that the owner may write.
    pub workspace: OwnedFd,
    /// The repository, bare or not, read only. It must belong to the owner.
    pub source: OwnedFd,
    /// Branch, tag or commit; empty is the source's HEAD.
    pub revision: String,
    /// Name of the linked work tree to clone, if the source is its repository; empty otherwise.
    pub work_tree: String,
    /// Most that the clone may have: its repository and its files.
    pub most: TreeBounds,
    /// User that reads the source and owns the clone.
    pub owner_uid: u32,
    pub owner_gid: u32,
}

/// A started worker. It ends when the channel is closed; [`Self::end`] or [`Self::wait`] reaps it.
#[derive(Debug)]
pub struct WorkerProcess {
    /// The stream of frames. The worker is ready when it answers the first one.
    pub channel: UnixStream,
    /// The end over which [`numbered::send`](crate::numbered::send) passes handles to a host worker that serves.
    pub handles: Option<OwnedFd>,
    pub(crate) child: Child,
}

impl WorkerProcess {
    /// Returns its process id on the host.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills the worker with all of its processes, and returns its last words, such as why it could not set up the jail.
    ///
    /// They are empty if it wrote none, and are for the operator, not for an agent.
    pub fn end(mut self) -> io::Result<String> {
        drop(self.channel);
        self.child.kill()?;
        self.child.wait()?;
        last_words(&mut self.child)
    }

    /// Waits up to `timeout` for it to end by itself, then kills it. Returns its last words.
    pub fn wait(mut self, timeout: Duration) -> io::Result<String> {
        drop(self.channel);
        finish(&mut self.child, timeout).map(|(_, words)| words)
    }
}

/// The error of a clone. The workspace may have a part of it.
#[derive(Debug, Error)]
pub enum CloneError {
    /// The host worker's reason, fit for a client.
    #[error("{0}")]
    Refused(String),
    /// The excess over the bounds, in words fit for a client.
    #[error("{0}")]
    Excess(String),
    /// The jail could not be set up.
    #[error("{0}")]
    Jail(String),
    /// A timeout.
    #[error("cloning did not end within {} s", .0.as_secs())]
    TimedOut(Duration),
    /// The process could not be started.
    #[error("cannot start coffer-host-worker: {0}")]
    Start(#[from] io::Error),
}

/// The error of a recovery.
#[derive(Debug, Error)]
pub enum RecoverError {
    /// The jail could not be set up, or a step of the recovery failed.
    #[error("{0}")]
    Failed(String),
    /// A timeout.
    #[error("the recovery did not end within {} s", .0.as_secs())]
    TimedOut(Duration),
    /// The process could not be started.
    #[error("cannot start coffer-host-worker: {0}")]
    Start(#[from] io::Error),
}

/// The error of a host on which the jail cannot be set up.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// A step of it failed; says which one, and what may help.
    #[error("{0}")]
    Jail(String),
    /// The process could not be started, or hung.
    #[error("cannot start coffer-host-worker: {0}")]
    Start(#[from] io::Error),
}

#[derive(Debug, Clone)]
pub struct Launcher {
    program: PathBuf,
    accepts: Option<WeakerForm>,
}

impl Launcher {
    pub fn of(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), accepts: None }
    }

    /// Starts an open file as the program. The file must stay open while processes are started.
    pub fn opened(program: BorrowedFd<'_>) -> Self {
        Self::of(format!("/proc/self/fd/{}", program.as_raw_fd()))
    }

    /// Accepts this weaker form if the kernel allows the daemon no full jail; `None` accepts none.
    #[must_use]
    pub fn accepting(self, accepts: Option<WeakerForm>) -> Self {
        Self { accepts, ..self }
    }

    /// Starts a run's host worker. It begins by recovering an earlier one's leftovers.
    pub fn serve(&self, spec: &HostWorkerSpec) -> io::Result<WorkerProcess> {
        let mut mounts = spec.mounts();
        let mut work_tree = String::new();
        if let Some(linked) = &spec.linked {
            mounts.push((JailMount::Repository, linked.repository.as_fd()));
            work_tree.clone_from(&linked.work_tree);
        }
        let task = Task::Serve { work_tree };
        let (ours, further) = numbered::pair()?;
        let owner = (spec.owner_uid, spec.owner_gid);
        let (channel, child) = self.start_with(&mounts, Some(further.as_fd()), owner, task)?;
        Ok(WorkerProcess { channel, handles: Some(ours), child })
    }

    /// Recovers the leftovers of a run's host workers that were killed together with their daemon, within `timeout`.
    ///
    /// No host worker of the run may live. Returns what it did, for the operator's log; empty if there was nothing.
    pub fn recover(&self, spec: &HostWorkerSpec, timeout: Duration) -> Result<String, RecoverError> {
        let (_channel, mut child) =
            self.start(&spec.mounts(), spec.owner_uid, spec.owner_gid, Task::Recover)?;
        match finish(&mut child, timeout)? {
            (Some(status), words) if status.success() => Ok(words),
            (Some(_), words) => Err(RecoverError::Failed(words)),
            (None, _) => Err(RecoverError::TimedOut(timeout)),
        }
    }

    /// Clones a local repository into an empty workspace, within `timeout`.
    ///
    /// The clone has the requested branch (or a detached HEAD at a tag or commit), all tags, and no remote: it contains no host
    /// path.
    pub fn clone_repository(&self, spec: &CloneSpec, timeout: Duration) -> Result<(), CloneError> {
        let mounts =
            [(JailMount::Workspace, spec.workspace.as_fd()), (JailMount::Source, spec.source.as_fd())];
        let task = Task::Clone {
            revision: spec.revision.clone(),
            work_tree: spec.work_tree.clone(),
            most: spec.most,
        };
        let (_channel, mut child) = self.start(&mounts, spec.owner_uid, spec.owner_gid, task)?;
        match finish(&mut child, timeout)? {
            (Some(status), _) if status.success() => Ok(()),
            (Some(status), words) if status.code() == Some(4) => Err(CloneError::Refused(words)),
            (Some(status), words) if status.code() == Some(5) => Err(CloneError::Excess(words)),
            (Some(_), words) => Err(CloneError::Jail(words)),
            (None, _) => Err(CloneError::TimedOut(timeout)),
        }
    }

    /// Tries the whole set-up once, in a scratch directory: for start-up and `doctor`.
    pub fn probe(&self) -> Result<Report, ProbeError> {
        let scratch = tempfile::tempdir()?;
        let workspace =
            open(scratch.path(), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
                .map_err(io::Error::from)?;
        let mounts = [(JailMount::Workspace, workspace.as_fd())];
        let (_channel, mut child) =
            self.start(&mounts, geteuid().as_raw(), getegid().as_raw(), Task::Report)?;
        match finish(&mut child, TRIAL)? {
            (Some(status), words) if status.success() => Report::parse(&words).ok_or(ProbeError::Jail(words)),
            (Some(_), words) => Err(ProbeError::Jail(words)),
            (None, _) => Err(ProbeError::Start(io::ErrorKind::TimedOut.into())),
        }
    }

    pub(crate) fn start(
        &self,
        mounts: &[(JailMount, BorrowedFd<'_>)],
        uid: u32,
        gid: u32,
        task: Task,
    ) -> io::Result<(UnixStream, Child)> {
        self.start_with(mounts, None, (uid, gid), task)
    }

    /// Starts a host worker with one more handle after those of its mounts.
    fn start_with(
        &self,
        mounts: &[(JailMount, BorrowedFd<'_>)],
        further: Option<BorrowedFd<'_>>,
        (uid, gid): (u32, u32),
        task: Task,
    ) -> io::Result<(UnixStream, Child)> {
        let jail_mounts = mounts.iter().map(|(jail_mount, _)| *jail_mount).collect();
        let args = Args {
            uid: Uid::from_raw(uid),
            gid: Gid::from_raw(gid),
            jail_mounts,
            accepts: self.accepts,
            task,
        };
        let (channel, theirs) = UnixStream::pair()?;
        // Sent before there is a reader: a socket keeps one byte and its handles until then.
        let mounted = mounts.iter().map(|(_, handle)| *handle);
        handles::send(&channel, &mounted.chain(further).collect::<Vec<_>>())?;
        let child = Command::new(&self.program)
            .arg0(PROGRAM)
            .args(args.to_command_line())
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        Ok((channel, child))
    }
}

/// Waits for the end, or kills the process. Returns its status, `None` if it was killed, and its line on standard error.
pub(crate) fn finish(child: &mut Child, timeout: Duration) -> io::Result<(Option<ExitStatus>, String)> {
    let in_time = wait_until(child, timeout)?;
    if !in_time {
        child.kill()?;
    }
    let status = child.wait()?;
    Ok((in_time.then_some(status), last_words(child)?))
}

fn wait_until(child: &Child, timeout: Duration) -> io::Result<bool> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let seconds = timeout.as_secs().try_into().unwrap_or(i64::MAX);
    let timeout = Timespec { tv_sec: seconds, tv_nsec: timeout.subsec_nanos().into() };
    let mut polled = [PollFd::new(&process, PollFlags::IN)];
    Ok(rustix::io::retry_on_intr(|| poll(&mut polled, Some(&timeout)))? > 0)
}

fn last_words(child: &mut Child) -> io::Result<String> {
    let mut words = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        stderr.take(LAST_WORDS).read_to_end(&mut words)?;
    }
    Ok(String::from_utf8_lossy(&words).trim_end().replace('\n', "; "))
}
