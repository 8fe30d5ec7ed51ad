//! The container lane: `coffer-agent` in the run's container, reached through one attached exec.
//!
//! The worker may be stopped or killed by what runs beside it. That costs only its own run: the loss is noticed, the
//! calls in flight fail, and it is started again for the next ones. Calls that only look are made once more by themselves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use containers::{AGENT_PATH, ContainerCgroup, ContainerId, Engine, HostProcess, RunUser};
use ops::Reason;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use worker::client::{
    CallSpec, Channel, Client, CloseReason, ConnectError, ConnectOptions, Finished, Greeted, LaneError, Peer,
    Placement,
};

use super::spare::{Ready, Spare};
use crate::status::{Refusal, chain, engine_refusal};

/// For a lost worker that was killed to be gone.
const GOODBYE: Duration = Duration::from_secs(1);
/// For another worker to be started in place of a lost one.
const RESTART: Duration = Duration::from_secs(10);

/// The worker that serves now.
#[derive(Clone)]
struct Serving {
    client: Client,
    host_pid: u32,
    /// Absent where the engine's processes are not this host's.
    process: Option<Arc<HostProcess>>,
    cgroup: Option<ContainerCgroup>,
    /// A process for the next command.
    spare: Arc<Spare>,
}

/// The container lane of a run.
pub(crate) struct AgentLane {
    engine: Arc<dyn Engine>,
    container: ContainerId,
    user: RunUser,
    /// Changes when another worker was started in place of a lost one.
    serving: watch::Sender<Serving>,
    /// The run is over: no other worker will be started.
    ended: CancellationToken,
}

impl AgentLane {
    /// Starts the worker and waits for its hello.
    pub(crate) async fn connect(
        engine: Arc<dyn Engine>,
        container: ContainerId,
        user: RunUser,
    ) -> Result<Self, Refusal> {
        let serving = start(engine.as_ref(), &container, user).await?;
        let ended = CancellationToken::new();
        let lane = Self { engine, container, user, serving: watch::Sender::new(serving), ended };
        lane.refill();
        Ok(lane)
    }

    pub(super) async fn call(
        &self,
        spec: CallSpec<'_>,
        placement: Option<Arc<dyn Placement>>,
        cancel: CancellationToken,
    ) -> Result<Finished, LaneError> {
        let client = self.serving().client;
        client.call(spec, placement, cancel).await
    }

    /// The same for an operation that only looks: when the worker is lost under it, it is done once more by the next one.
    pub(super) async fn look(
        &self,
        spec: CallSpec<'_>,
        cancel: CancellationToken,
    ) -> Result<Finished, LaneError> {
        let began = Instant::now();
        let mut serving = self.serving.subscribe();
        let client = serving.borrow_and_update().client.clone();
        let lost = match client.call(spec, None, cancel.clone()).await {
            Err(lost @ LaneError::Lost(_)) => lost,
            done => return done,
        };
        let left = spec.deadline.saturating_sub(began.elapsed());
        tokio::select! {
            started = timeout(left.min(RESTART), serving.changed()) => {
                if !matches!(started, Ok(Ok(()))) {
                    return Err(lost);
                }
            }
            () = cancel.cancelled() => return Err(LaneError::Cancelled),
            () = self.ended.cancelled() => return Err(lost),
        }
        let deadline = spec.deadline.saturating_sub(began.elapsed());
        self.call(CallSpec { deadline, ..spec }, None, cancel).await
    }

    /// Resolves when the worker is lost: why.
    pub(crate) async fn lost(&self) -> CloseReason {
        let closed = self.serving().client.closed();
        closed.await
    }

    /// Starts a new worker in place of a lost one, which is ended first: one that was stopped would stay.
    pub(crate) async fn restart(&self) -> Result<(), Refusal> {
        if let Some(process) = self.serving().process {
            let ended = tokio::task::spawn_blocking(move || process.kill(GOODBYE)).await;
            if !ended.unwrap_or(false) {
                tracing::warn!(container = %self.container, "a lost agent could not be ended; it goes with its container");
            }
        }
        let serving = start(self.engine.as_ref(), &self.container, self.user).await?;
        self.serving.send_replace(serving);
        self.refill();
        Ok(())
    }

    /// The worker's pid on this host; `None` where the engine's processes are not this host's.
    pub(crate) fn host_pid(&self) -> Option<u32> {
        let serving = self.serving();
        serving.process.map(|_| serving.host_pid)
    }

    /// Where commands get their leaves, and the worker's pid on the host.
    pub(super) fn cgroup(&self) -> Option<(ContainerCgroup, u32)> {
        let serving = self.serving();
        serving.cgroup.map(|cgroup| (cgroup, serving.host_pid))
    }

    /// A process that waits for a command, and the stream to its worker.
    pub(super) fn spare(&self) -> Option<(Client, Ready)> {
        let serving = self.serving();
        serving.spare.take().map(|ready| (serving.client, ready))
    }

    /// Has a process made that waits for the next command.
    pub(super) fn refill(&self) {
        let Serving { client, host_pid, cgroup, spare, .. } = self.serving();
        if let Some(cgroup) = cgroup {
            spare.refill(client, cgroup, host_pid);
        }
    }

    /// The stream to the worker that serves now.
    pub(super) fn client(&self) -> Client {
        self.serving().client
    }

    pub(super) async fn shutdown(&self) {
        self.ended.cancel();
        let client = self.serving().client;
        client.shutdown().await;
    }

    fn serving(&self) -> Serving {
        self.serving.borrow().clone()
    }
}

async fn start(engine: &dyn Engine, container: &ContainerId, user: RunUser) -> Result<Serving, Refusal> {
    let argv = [AGENT_PATH.to_owned(), "serve".to_owned()];
    let stream = engine.attach_exec(container, &argv, user).await.map_err(engine_refusal)?;
    let errors = stream.errors;
    let not_up = |error: ConnectError| {
        tracing::error!(%container, error = %chain(&error), said = errors.text(), "the agent did not come up");
        Refusal::new(
            Reason::EngineUnavailable,
            "the agent did not come up in the container; the daemon's log has its last words",
        )
    };
    let greeted = Greeted::greet(stream.input, stream.output, ConnectOptions::default()).await;
    let greeted = greeted.map_err(&not_up)?;
    let host_pid = engine.exec_pid(&stream.exec).await.map_err(engine_refusal)?;
    let cgroup = cgroup_of(host_pid, container);
    // The cgroup is this container's, so the pid is one of this host's, and the agent's.
    let process = cgroup.as_ref().and_then(|_| HostProcess::of_engine(host_pid).ok()).map(Arc::new);
    let client = match channel(process.as_ref(), greeted.peer()).await {
        Some(channel) => greeted.serve_directly(channel).await.map_err(&not_up)?,
        None => greeted.serve(),
    };
    let spare = Arc::default();
    Ok(Serving { client, host_pid, process, cgroup, spare })
}

/// Our end of the agent's direct channel, where it is a process of this host. Without one calls go through the engine:
/// slower, and the same.
async fn channel(process: Option<&Arc<HostProcess>>, peer: Peer) -> Option<Channel> {
    let process = Arc::clone(process.filter(|_| peer.channel != 0)?);
    // What it names may be any open file; even closing one may block.
    let taken = tokio::task::spawn_blocking(move || process.descriptor(peer.channel)).await.ok()?;
    let taken = taken.map_err(|error| chain(&error));
    match taken.and_then(|fd| Channel::new(fd).map_err(|error| chain(&error))) {
        Ok(channel) => Some(channel),
        Err(error) => {
            tracing::warn!(error, "no direct channel to the agent; calls go through the engine");
            None
        }
    }
}

/// The container's cgroup, when commands can have leaves in it.
fn cgroup_of(host_pid: u32, container: &ContainerId) -> Option<ContainerCgroup> {
    match ContainerCgroup::of_pid(host_pid, container) {
        Ok(cgroup) => Some(cgroup),
        Err(error) => {
            tracing::warn!(error = %chain(&error), "commands of this run get no cgroup of their own; the agent ends them");
            None
        }
    }
}
