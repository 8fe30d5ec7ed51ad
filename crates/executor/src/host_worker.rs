//! The host lane: `coffer-host-worker`. It is started when a run first needs it and again after a loss, and ends with the run.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use host_launch::{
    CloneError, CloneSpec, HostWorkerSpec, LinkedSpec, TreeBounds, WorkerProcess, dialing,
};
use jail::Private;
use operations::Reason;
use parking_lot::RwLock;
use refusal::{Refusal, chain};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;
use tokio::net::UnixStream;
use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use worker_protocol::client::{CallSpec, Client, CloseReason, ConnectOptions, Finished, Go, LaneError};
use worker_protocol::convert::Reply;

use crate::directory::{Directory, LinkedRepository};
use crate::launcher::launcher;
use crate::way_out::{Handles, WayOut, give_streams};

/// Time limit of a clone.
const CLONE: Duration = Duration::from_secs(120);
/// Time that a host worker has to exit and clean up after its channel was closed.
const GOODBYE: Duration = Duration::from_secs(5);
/// Time for the recovery after a host worker was killed.
const RECOVERY: Duration = Duration::from_secs(30);
/// Time limit of the walk from commits to their ancestors.
const ANCESTRY: Duration = Duration::from_secs(10);
/// Number of lost host workers that can wait to be recorded.
const LOSSES: usize = 8;

/// The directories that a host worker may see.
struct Directories {
    workspace: OwnedFd,
    state: OwnedFd,
    pkg: Option<OwnedFd>,
    private: OwnedFd,
    /// Repository if the workspace is a linked work tree, and the tree's name in it.
    repository: Option<(OwnedFd, String)>,
    owner_uid: u32,
    owner_gid: u32,
}

struct Serving {
    client: Client,
    process: WorkerProcess,
    handles: Arc<Handles>,
}

enum State {
    /// Not needed so far, or lost.
    Absent,
    Serves(Serving),
    /// The run is over. A late call finds no host worker and starts none.
    Ended,
}

pub struct HostWorkerLane {
    directories: Directories,
    state: Mutex<State>,
    /// Reasons why host workers were lost, for the record.
    losses: (mpsc::Sender<CloseReason>, Mutex<mpsc::Receiver<CloseReason>>),
    /// Held during a walk from commits to their ancestors: a run has one at a time. True if the log has a walk of the run that failed.
    walk: Mutex<bool>,
    way_out: RwLock<Option<Arc<dyn WayOut>>>,
}

impl HostWorkerLane {
    pub fn new(
        workspace: &Directory,
        state: &Directory,
        pkg: Option<&Directory>,
        private: &Directory,
        linked: Option<&LinkedRepository>,
    ) -> std::io::Result<Self> {
        let directories = Directories {
            workspace: workspace.handle.try_clone()?,
            state: state.handle.try_clone()?,
            pkg: pkg.map(|pkg| pkg.handle.try_clone()).transpose()?,
            private: private.handle.try_clone()?,
            repository: linked
                .map(|linked| {
                    Ok::<_, std::io::Error>((linked.directory.handle.try_clone()?, linked.work_tree.clone()))
                })
                .transpose()?,
            owner_uid: workspace.owner.uid,
            owner_gid: workspace.owner.gid,
        };
        let (sender, receiver) = mpsc::channel(LOSSES);
        let losses = (sender, Mutex::new(receiver));
        Ok(Self {
            directories,
            state: Mutex::new(State::Absent),
            losses,
            walk: Mutex::default(),
            way_out: RwLock::default(),
        })
    }

    /// Lets calls reach servers through the run's egress from now on.
    pub fn set_way_out(&self, way_out: Arc<dyn WayOut>) {
        *self.way_out.write() = Some(way_out);
    }

    /// Executes an operation of the call with this id.
    pub(crate) async fn call(
        &self,
        call: &str,
        spec: CallSpec<'_>,
        go: Option<Go>,
        cancel: CancellationToken,
    ) -> Result<Finished, LaneError> {
        let (client, handles) = self.client().await?;
        let ended = match go {
            go if spec.operation.uses_network() => {
                self.call_with_way_out(call, spec, go, (&client, &handles), cancel).await
            }
            Some(go) => client.call_after(spec, go, cancel).await,
            None => client.call(spec, None, cancel).await,
        };
        if matches!(ended, Err(LaneError::Lost(_))) {
            // Ensures that the next caller finds files that are old or new. After the lane's end its own recovery has come first.
            let mut state = self.state.lock().await;
            self.clear(&mut state).await;
        }
        ended.map(|finished| finished.and_then(Reply::result))
    }

    /// Executes an operation that reaches servers, and gives it streams meanwhile.
    async fn call_with_way_out(
        &self,
        call: &str,
        spec: CallSpec<'_>,
        go: Option<Go>,
        (client, handles): (&Client, &Handles),
        cancel: CancellationToken,
    ) -> Result<Finished<Reply>, LaneError> {
        let not_placed = |error: std::io::Error| {
            tracing::error!(call, %error, "a call of the host lane got no socket for its streams to servers");
            LaneError::NotPlaced("the way to servers could not be prepared".to_owned())
        };
        let (ours, theirs) = dialing::pair().map_err(not_placed)?;
        let number = handles.send(theirs).await.map_err(not_placed)?;
        let way_out = self.way_out.read().clone();
        let streams = AbortOnDropHandle::new(tokio::spawn(give_streams(ours, way_out, call.to_owned())));
        let ended = client.call_with_way_out(spec, go, number, cancel).await;
        drop(streams);
        ended
    }

    /// Returns for each pair of commits of the run's repository, an old and a new one, if the first is an ancestor of the second.
    ///
    /// `None` is an unknown answer, also of a repository that cannot be read. The walk has its own jail.
    pub async fn ancestry(&self, pairs: Vec<(String, String)>) -> Vec<Option<bool>> {
        let count = pairs.len();
        let mut is_logged = self.walk.lock().await;
        self.walk(pairs).await.unwrap_or_else(|why| {
            // An agent can make each of its pushes fail here.
            if !std::mem::replace(&mut *is_logged, true) {
                tracing::warn!(
                    why,
                    "it is not known if commits of a run are ancestors of others; further failures of this run are not logged"
                );
            }
            vec![None; count]
        })
    }

    async fn walk(&self, pairs: Vec<(String, String)>) -> Result<Vec<Option<bool>>, String> {
        let Directories { workspace, repository, owner_uid, owner_gid, .. } = &self.directories;
        // A linked work tree has no objects.
        let repository = repository.as_ref().map_or(workspace, |(repository, _)| repository);
        let (repository, owner) =
            (repository.try_clone().map_err(|error| chain(&error))?, (*owner_uid, *owner_gid));
        let walk = move || launcher().ancestry(repository.as_fd(), pairs, owner, ANCESTRY);
        let walked = tokio::task::spawn_blocking(walk).await;
        walked.map_err(|error| chain(&error))?.map_err(|error| chain(&error))
    }

    /// Waits until a host worker is lost, and returns the reason. One that was not needed so far does not count as lost.
    pub async fn lost(&self) -> CloseReason {
        match self.losses.1.lock().await.recv().await {
            Some(why) => why,
            // Unreachable, because `self` holds the other end.
            None => std::future::pending().await,
        }
    }

    pub(crate) async fn shutdown(&self) {
        // Held to the end, so that a call which the shutdown ends is answered only after all its effects are settled.
        let mut state = self.state.lock().await;
        if let State::Serves(serving) = std::mem::replace(&mut *state, State::Ended) {
            serving.client.shutdown().await;
            let _ = tokio::task::spawn_blocking(move || serving.process.wait(GOODBYE)).await;
        }
        self.put_right().await;
    }

    /// Waits until a lost host worker is gone, and repairs its unfinished operations.
    async fn clear(&self, state: &mut State) {
        let is_lost = |state: &State| matches!(state, State::Serves(host_worker) if host_worker.client.closed().now_or_never().is_some());
        if is_lost(state)
            && let State::Serves(lost) = std::mem::replace(state, State::Absent)
        {
            tracing::warn!(
                "the host worker of a run was lost; the next operation that needs it starts another"
            );
            let _ = tokio::task::spawn_blocking(move || lost.process.wait(GOODBYE)).await;
            self.put_right().await;
        }
    }

    async fn put_right(&self) {
        match self.recover().await {
            Ok(words) if words.is_empty() => {}
            Ok(words) => tracing::warn!(words, "unfinished operations of a killed host worker were repaired"),
            Err(why) => {
                tracing::error!(
                    why,
                    "temporary files of a host worker stay until the next host worker or daemon starts"
                );
            }
        }
    }

    /// Repairs the operations that a killed host worker left unfinished, and returns a description. No host worker may be running.
    pub async fn recover(&self) -> Result<String, String> {
        if self.left_nothing().map_err(|error| chain(&error))? {
            return Ok(String::new());
        }
        let spec = self.spec().map_err(|error| chain(&error))?;
        let recovered = tokio::task::spawn_blocking(move || launcher().recover(&spec, RECOVERY)).await;
        recovered.map_err(|error| chain(&error))?.map_err(|error| chain(&error))
    }

    /// Returns true if no unfinished operation is noted, and no process is left that could note one.
    ///
    /// A killed process may still be in its last system call when its parent is gone, and holds the lock until then.
    fn left_nothing(&self) -> std::io::Result<bool> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // Opened anew, because locks belong to open file descriptions.
        let private = openat(&self.directories.private, ".", flags, Mode::empty())?;
        match flock(&private, FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK) => return Ok(false),
            locked => locked?,
        }
        Private::of(private, 0).is_clean()
    }

    fn spec(&self) -> std::io::Result<HostWorkerSpec> {
        Ok(HostWorkerSpec {
            workspace: self.directories.workspace.try_clone()?,
            state: Some(self.directories.state.try_clone()?),
            pkg: self.directories.pkg.as_ref().map(OwnedFd::try_clone).transpose()?,
            private: Some(self.directories.private.try_clone()?),
            linked: match &self.directories.repository {
                Some((repository, work_tree)) => {
                    Some(LinkedSpec { repository: repository.try_clone()?, work_tree: work_tree.clone() })
                }
                None => None,
            },
            owner_uid: self.directories.owner_uid,
            owner_gid: self.directories.owner_gid,
        })
    }

    async fn client(&self) -> Result<(Client, Arc<Handles>), LaneError> {
        let mut state = self.state.lock().await;
        self.clear(&mut state).await;
        match &*state {
            State::Ended => return Err(LaneError::Cancelled),
            State::Serves(serving) => return Ok((serving.client.clone(), serving.handles.clone())),
            State::Absent => {}
        }
        let started = self.start().await.map_err(|error| {
            tracing::error!(error = %error, "the host worker did not start");
            LaneError::NotPlaced("the host lane did not start".to_owned())
        })?;
        let parts = (started.client.clone(), started.handles.clone());
        *state = State::Serves(started);
        Ok(parts)
    }

    async fn start(&self) -> Result<Serving, String> {
        let text = |error: &dyn std::error::Error| chain(error);
        let spec = self.spec().map_err(|error| text(&error))?;
        let started = tokio::task::spawn_blocking(move || launcher().serve(&spec)).await;
        let mut process = started.map_err(|error| text(&error))?.map_err(|error| text(&error))?;
        let handles = process.handles.take().ok_or("the host worker has no socket for handles")?;
        let handles = Arc::new(Handles::new(handles));
        let channel = process.channel.try_clone().map_err(|error| text(&error))?;
        channel.set_nonblocking(true).map_err(|error| text(&error))?;
        let (input, output) = UnixStream::from_std(channel).map_err(|error| text(&error))?.into_split();
        match Client::connect(output, input, ConnectOptions::default()).await {
            Ok((client, _)) => {
                let (closed, losses) = (client.closed(), self.losses.0.clone());
                // Ends with the host worker, or with the lane.
                tokio::spawn(async move {
                    match closed.await {
                        CloseReason::Shutdown => {}
                        why => drop(losses.send(why).await),
                    }
                });
                Ok(Serving { client, process, handles })
            }
            Err(error) => {
                let words = tokio::task::spawn_blocking(move || process.end()).await;
                let words = words.map_or_else(|error| error.to_string(), Result::unwrap_or_default);
                Err(format!("{}: {}", text(&error), words.trim()))
            }
        }
    }
}

/// Most that a clone may have.
#[derive(Debug, Clone, Copy)]
pub struct CloneBounds {
    pub most: TreeBounds,
    /// Name of the limit in a refusal.
    pub limit: &'static str,
    /// Settings that are the limit, for a person.
    pub settings: &'static str,
}

/// Clones a local repository into a new workspace, in a jail that sees only these two.
///
/// `work_tree` is the name of the linked work tree to clone, if the source is its repository. A clone that would exceed its bounds is
/// refused before it is written.
pub async fn clone_repository(
    source: &Directory,
    workspace: &Directory,
    revision: Option<&str>,
    work_tree: Option<&str>,
    bounds: CloneBounds,
) -> Result<(), Refusal> {
    let handle = |directory: &Directory| {
        directory.handle.try_clone().map_err(|error| Refusal::internal("preparing the clone", &error))
    };
    let spec = CloneSpec {
        workspace: handle(workspace)?,
        source: handle(source)?,
        revision: revision.unwrap_or_default().to_owned(),
        work_tree: work_tree.unwrap_or_default().to_owned(),
        most: bounds.most,
        owner_uid: workspace.owner.uid,
        owner_gid: workspace.owner.gid,
    };
    let cloned = tokio::task::spawn_blocking(move || launcher().clone_repository(&spec, CLONE)).await;
    match cloned.map_err(|error| Refusal::internal("cloning", &error))? {
        Ok(()) => Ok(()),
        Err(CloneError::Refused(why)) => Err(Refusal::invalid("workspace.clone", why.trim())),
        Err(CloneError::Excess(why)) => Err(bounds.refusal(why.trim())),
        Err(error @ CloneError::TimedOut(_)) => Err(Refusal::new(Reason::TimedOut, error.to_string())),
        Err(error) => Err(Refusal::internal("cloning", &chain(&error))),
    }
}

impl CloneBounds {
    fn refusal(&self, why: &str) -> Refusal {
        Refusal::new(Reason::WriteLimit, format!("{why} ({})", self.settings))
            .with("limit", self.limit)
            .with("max_bytes", self.most.bytes.to_string())
            .with("max_files", self.most.files.to_string())
    }
}

#[cfg(test)]
mod tests {
    use host_launch::Owner;
    use tokio_util::sync::CancellationToken;
    use worker_protocol::client::{CallSpec, LaneError};

    use super::HostWorkerLane;
    use crate::directory::Directory;

    #[tokio::test]
    async fn a_call_after_the_end_starts_no_host_worker() {
        let place = tempfile::tempdir().unwrap();
        let directory = || Directory {
            handle: std::fs::File::open(place.path()).unwrap().into(),
            path: place.path().to_owned(),
            owner: Owner { uid: 0, gid: 0 },
            is_mapped: false,
        };
        let host_worker = HostWorkerLane::new(&directory(), &directory(), None, &directory(), None).unwrap();
        host_worker.shutdown().await;
        let operation = operations::Operation::Git(operations::Git::Status);
        let spec = CallSpec {
            operation: &operation,
            bounds: &operations::Bounds::default(),
            deadline: std::time::Duration::from_secs(5),
            preview: false,
            output: None,
        };
        let late = host_worker.call("call", spec, None, CancellationToken::new()).await;
        assert!(matches!(late, Err(LaneError::Cancelled)), "{late:?}");
    }
}
