//! The container lane: `coffer-guest` in the run's container, reached through one attached exec.
//!
//! Processes beside the worker may stop or kill it. That affects only its own run. The daemon notices the loss, the calls in flight fail,
//! and the worker is started again for the next calls. Calls that only read are retried once automatically.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use containers::{
    Boundary, ContainerCgroup, ContainerId, ContainerState, Engine, EngineError, ErrorTail, ExecId,
    GUEST_PATH, HostProcess, LimitEvents, RunUser,
};
use operations::{Environment, Reason, ToolFailure};
use parking_lot::Mutex;
use refusal::{Refusal, chain};
use tokio::sync::{OnceCell, Semaphore, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use worker_protocol::client::{
    CallSpec, Channel, Client, CloseReason, ConnectError, ConnectOptions, Finished, Greeted, LaneError, Peer,
    Placement, Prepared,
};
use worker_protocol::convert::Reply;

use crate::container_end::{ContainerEnd, by_pause, is_paused};
use crate::engine::engine_refusal;
use crate::failure::failure;
use crate::loss::{Cause, Loss, Losses};
use crate::prefork::{Prefork, Ready};
use crate::recent_events::{APART, RecentEvents};
use crate::relay::{self, Relayed};

/// Time within which a lost worker and the processes that it started must be gone after SIGKILL, and a container of which the worker's
/// loss is the first sign of its end.
const GOODBYE: Duration = Duration::from_secs(1);
/// Time within which all processes of a container must be gone after its first one was killed.
const ALL_GONE: Duration = Duration::from_secs(2);
/// Time that the engine has to report how a worker ended after its stream was closed.
const AUTOPSY: Duration = Duration::from_secs(10);
/// Pid of a container's first process inside the container.
const FIRST: u32 = 1;
/// Time in which another worker has to start in place of a lost one.
const RESTART: Duration = Duration::from_secs(30);
/// Processes of one run that start at the same time.
const STARTS: usize = 3;

/// The present worker.
#[derive(Clone)]
pub(crate) struct Serving {
    client: Client,
    exec: ExecId,
    host_pid: u32,
    /// `None` if the engine's processes are not this host's.
    process: Option<Arc<HostProcess>>,
    /// The container's first process. `None` in the same case.
    first: Option<Arc<HostProcess>>,
    cgroup: Option<ContainerCgroup>,
    /// Counts of limit events from shortly before now.
    events: Arc<Mutex<RecentEvents>>,
    /// Processes that wait for the next commands.
    prefork: Arc<Prefork>,
    /// Cause of the worker's loss, determined once for all that ask.
    loss: Arc<OnceCell<Loss>>,
    /// Calls in flight that have already cost the previous worker. Its own loss under one of them is not counted as a second one.
    repeats: TaskTracker,
}

impl Serving {
    /// Samples the counts of limit events while the worker lives.
    fn sample(&self) {
        if !self.client.is_closed() {
            self.events.lock().sample(Instant::now(), || self.limit_events());
        }
    }

    /// Returns the limit events of the last seconds.
    fn recent_events(&self) -> LimitEvents {
        self.events.lock().until(self.limit_events())
    }

    fn limit_events(&self) -> LimitEvents {
        self.cgroup.as_ref().map(ContainerCgroup::limit_events).unwrap_or_default()
    }
}

/// The container lane of a run.
pub struct GuestLane {
    engine: Arc<Engine>,
    container: ContainerId,
    user: RunUser,
    /// Environment variables of the run. Unset while the container waits for its run.
    environment: OnceLock<Environment>,
    boundary: Boundary,
    /// Changes when another worker was started in place of a lost one.
    serving: watch::Sender<Serving>,
    losses: Mutex<Losses>,
    /// Limits the processes of this run that start at the same time.
    starts: Semaphore,
    /// Cancelled when the run is over, so that no other worker is started.
    ended: CancellationToken,
}

impl GuestLane {
    /// Starts the worker and waits for its hello.
    ///
    /// Without an environment the worker takes no call until [`Self::provide`].
    pub async fn connect(
        engine: Arc<Engine>,
        container: ContainerId,
        user: RunUser,
        environment: Option<Environment>,
        boundary: Boundary,
    ) -> Result<Self, Refusal> {
        let serving = start(engine.as_ref(), &container, user, environment.as_ref(), boundary).await?;
        let ended = CancellationToken::new();
        let serving = watch::Sender::new(serving);
        let losses = Mutex::default();
        let starts = Semaphore::new(STARTS);
        let environment = environment.map(OnceLock::from).unwrap_or_default();
        let lane = Self { engine, container, user, environment, boundary, serving, losses, starts, ended };
        lane.refill();
        Ok(lane)
    }

    /// Gives the variables of the run to a worker that was started before its run was known.
    pub async fn provide(&self, environment: Environment) -> Result<(), Refusal> {
        let refused = |why: &str| Refusal::new(Reason::EngineUnavailable, why);
        self.serving().client.provide(&environment).await.map_err(|error| {
            tracing::warn!(container = %self.container, %error, "a guest did not take the variables of its run");
            refused("its guest did not take the variables of the run")
        })?;
        self.environment.set(environment).map_err(|_| refused("its guest has the variables of another run"))
    }

    /// Waits while another worker is started in place of a lost one. Returns true if a worker serves.
    ///
    /// Only calls of which no frame was sent yet may wait like this.
    pub async fn restarted(&self) -> bool {
        let mut changes = self.serving.subscribe();
        let serves = timeout(RESTART, changes.wait_for(|serving| !serving.client.is_closed()));
        matches!(self.ended.run_until_cancelled(serves).await, Some(Ok(Ok(_))))
    }

    pub(crate) async fn call(
        &self,
        spec: CallSpec<'_>,
        placement: Option<Arc<dyn Placement>>,
        cancel: CancellationToken,
    ) -> Result<Finished<Reply>, ToolFailure> {
        let serving = self.serving();
        let done = serving.client.call(spec, placement, cancel).await;
        self.told(&serving, done).await
    }

    /// Executes a command like [`Self::call`], in a process that waited for it.
    pub(crate) async fn call_prepared(
        &self,
        serving: &Serving,
        spec: CallSpec<'_>,
        prepared: Prepared,
        cancel: CancellationToken,
    ) -> Result<Finished<Reply>, ToolFailure> {
        let done = serving.client.call_prepared(spec, prepared, cancel).await;
        self.told(serving, done).await
    }

    /// Executes an operation that only reads. If the worker is lost meanwhile, the next one executes it once more.
    pub(crate) async fn look(
        &self,
        spec: CallSpec<'_>,
        cancel: CancellationToken,
    ) -> Result<Finished<Reply>, ToolFailure> {
        let began = Instant::now();
        let serving = self.serving();
        let lost = match serving.client.call(spec, None, cancel.clone()).await {
            Err(lost @ LaneError::Lost(_)) => lost,
            done => return self.told(&serving, done).await,
        };
        let left = spec.deadline.saturating_sub(began.elapsed());
        match cancel.run_until_cancelled(timeout(left, self.restarted())).await {
            Some(Ok(true)) => {}
            Some(_) => return self.told(&serving, Err(lost)).await,
            None => return Err(failure(&LaneError::Cancelled)),
        }
        let deadline = spec.deadline.saturating_sub(began.elapsed());
        let serving = self.serving();
        let _repeated = serving.repeats.token();
        let done = serving.client.call(CallSpec { deadline, ..spec }, None, cancel).await;
        self.told(&serving, done).await
    }

    /// Converts the result of a call to this worker for the model.
    async fn told(
        &self,
        serving: &Serving,
        done: Result<Finished<Reply>, LaneError>,
    ) -> Result<Finished<Reply>, ToolFailure> {
        match done {
            Err(LaneError::Lost(reason)) if reason != CloseReason::Shutdown => {
                Err(self.loss(serving, reason).await.failure())
            }
            Ok(finished) => {
                let outcome = finished.outcome.map_err(ToolFailure::claimed);
                Ok(Finished { outcome, ..finished })
            }
            Err(error) => {
                let failure = failure(&error).claimed();
                // A frozen worker gives no outcome either, before its heartbeat is missed.
                let is_late = matches!(error, LaneError::TimedOut);
                let is_paused = is_late && is_paused(&self.engine, &self.container).await;
                Err(if is_paused { by_pause(failure) } else { failure })
            }
        }
    }

    /// Waits until the worker is lost, and returns the cause.
    pub async fn lost(&self) -> Loss {
        let serving = self.serving();
        let reason = loop {
            serving.sample();
            if let Ok(reason) = timeout(APART, serving.client.closed()).await {
                break reason;
            }
        };
        self.loss(&serving, reason).await
    }

    async fn loss(&self, serving: &Serving, reason: CloseReason) -> Loss {
        let find_out = || async {
            let cause = self.cause(serving, reason).await;
            self.losses.lock().judge(cause, &serving.repeats, Instant::now())
        };
        serving.loss.get_or_init(find_out).await.clone()
    }

    async fn cause(&self, serving: &Serving, reason: CloseReason) -> Cause {
        let ended = match reason {
            CloseReason::Shutdown => return Cause::Stream(reason),
            CloseReason::Protocol(_) | CloseReason::Heartbeat | CloseReason::Unresponsive => None,
            CloseReason::Eof | CloseReason::Io(_) => {
                Some(timeout(AUTOPSY, self.engine.exec_ended(&serving.exec)).await)
            }
        };
        // When the container's first process ends, all others end with it, which is not a command's fault.
        if self.has_container_ended(serving).await {
            return self.container_ended(serving).await;
        }
        let code = match (ended, reason) {
            (Some(Ok(Ok(code))), _) => code,
            (None, CloseReason::Heartbeat | CloseReason::Unresponsive) => {
                let is_paused = is_paused(&self.engine, &self.container).await;
                return if is_paused { Cause::Paused } else { Cause::Silent };
            }
            _ => return Cause::Stream(reason),
        };
        Cause::exited(code, serving.recent_events())
    }

    /// Finds out how the container ended.
    async fn container_ended(&self, serving: &Serving) -> Cause {
        let kills = serving.recent_events().oom_kills;
        let first = serving.first.as_ref().map(|first| first.pid());
        Cause::Container(ContainerEnd::find(&self.engine, &self.container, self.boundary, first, kills).await)
    }

    /// Returns true if the container is over, or is over within moments.
    ///
    /// The first process of a pid namespace ends after all others (`pid_namespaces(7)`), and a sandbox after its streams. So the loss of
    /// the worker is seen first, and the end of its container has to be waited for.
    async fn has_container_ended(&self, serving: &Serving) -> bool {
        if let Some(first) = serving.first.clone() {
            return tokio::task::spawn_blocking(move || first.ends(GOODBYE)).await.unwrap_or(false);
        }
        // Only the engine sees its processes.
        match timeout(GOODBYE, self.engine.inspect(&self.container)).await {
            Ok(Ok(found)) => matches!(found.state, ContainerState::Exited(_)),
            Ok(Err(EngineError::NotFound { .. })) => true,
            Ok(Err(_)) | Err(_) => false,
        }
    }

    /// Starts a new worker in place of a lost one.
    ///
    /// All other processes of the container are ended first. The lost worker would stay if it was stopped, and the processes that it had
    /// started could end the next one as well.
    pub async fn restart(&self) -> Result<(), Loss> {
        if !self.empty().await {
            tracing::warn!(container = %self.container, "a lost guest, or a process that it started, could not be ended; it ends with its container");
        }
        let environment = self.environment.get();
        match start(self.engine.as_ref(), &self.container, self.user, environment, self.boundary).await {
            Ok(serving) => {
                self.serving.send_replace(serving);
                self.refill();
                Ok(())
            }
            // A worker that is ended during its start counts as another loss.
            Err(refusal) => {
                let serving = self.serving();
                let ended = self.has_container_ended(&serving).await;
                let cause = match (ended, refusal.shows_no_engine()) {
                    (true, _) => self.container_ended(&serving).await,
                    (false, true) => Cause::NoEngine(refusal.message),
                    (false, false) if is_paused(&self.engine, &self.container).await => Cause::Paused,
                    (false, false) => Cause::NotStarted(refusal.message),
                };
                Err(self.losses.lock().count(cause, Instant::now()))
            }
        }
    }

    /// Ends all processes except the container's first one. Returns true if none is left.
    async fn empty(&self) -> bool {
        if self.boundary == Boundary::OwnKernel {
            return relay::sweep(self.engine.as_ref(), &self.container, self.user).await;
        }
        let Serving { process, first, cgroup, .. } = self.serving();
        let emptied = tokio::task::spawn_blocking(move || {
            let is_gone = process.is_none_or(|process| process.kill(GOODBYE));
            match cgroup.zip(first) {
                Some((cgroup, first)) => cgroup.end_others(&first, GOODBYE).is_ok_and(|left| left == 0),
                None => is_gone,
            }
        });
        emptied.await.unwrap_or(false)
    }

    /// Ends every command of a container with its own kernel. Does nothing for other containers.
    ///
    /// No cgroup separates these commands from the worker, so the worker ends as well and is started again.
    pub async fn sweep(&self) {
        if self.boundary == Boundary::OwnKernel && !self.empty().await {
            tracing::error!(container = %self.container, "the commands of a run could not be ended");
        }
    }

    /// Returns the worker's pid on this host, or `None` if the engine's processes are not this host's.
    pub fn host_pid(&self) -> Option<u32> {
        let serving = self.serving();
        serving.process.map(|_| serving.host_pid)
    }

    /// Returns the kernel that the container's processes use.
    pub fn boundary(&self) -> Boundary {
        self.boundary
    }

    /// Returns the container's first process, or `None` if the engine's processes are not this host's.
    pub fn first_process(&self) -> Option<Arc<HostProcess>> {
        self.serving().first
    }

    /// Returns the cgroup for the leaves of commands, and the worker's pid on the host.
    pub(crate) fn cgroup(&self) -> Option<(ContainerCgroup, u32)> {
        let serving = self.serving();
        serving.cgroup.map(|cgroup| (cgroup, serving.host_pid))
    }

    /// Returns a process that waits for a command, and its worker.
    pub(crate) fn prefork(&self) -> Option<(Serving, Ready)> {
        let serving = self.serving();
        serving.prefork.take().map(|ready| (serving, ready))
    }

    /// Starts to make the processes that wait for the next commands.
    pub(crate) fn refill(&self) {
        let Serving { client, host_pid, cgroup, prefork, .. } = self.serving();
        if let Some(cgroup) = cgroup {
            prefork.refill(client, cgroup, host_pid);
        }
    }

    /// Returns the engine, container and user with which programs are started.
    pub(crate) fn place(&self) -> (&Engine, &ContainerId, RunUser) {
        (self.engine.as_ref(), &self.container, self.user)
    }

    pub(crate) fn starts(&self) -> &Semaphore {
        &self.starts
    }

    /// Returns the environment variables of the run.
    pub(crate) fn environment(&self) -> Environment {
        self.environment.get().cloned().unwrap_or_default()
    }

    /// Returns the client of the present worker.
    pub(crate) fn client(&self) -> Client {
        self.serving().client
    }

    /// Kills the container's first process, and with it every process of its pid namespace.
    ///
    /// The kernel ends the first process only after all others are gone (`pid_namespaces(7)`). Returns true if none is left after at most
    /// two seconds, and always false if the container's processes are not this host's.
    pub async fn end_container(&self) -> bool {
        let first = self.serving().first.filter(|_| self.boundary == Boundary::HostKernel);
        let Some(first) = first else { return false };
        tokio::task::spawn_blocking(move || first.kill(ALL_GONE)).await.unwrap_or(false)
    }

    /// Returns true if the run is over, as far as this lane knows.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Returns true if the worker is known to serve.
    pub fn is_connected(&self) -> bool {
        !self.serving().client.is_closed()
    }

    /// Ends the worker, and prevents the start of another.
    pub async fn shutdown(&self) {
        self.ended.cancel();
        let client = self.serving().client;
        client.shutdown().await;
    }

    fn serving(&self) -> Serving {
        self.serving.borrow().clone()
    }
}

async fn start(
    engine: &Engine,
    container: &ContainerId,
    user: RunUser,
    environment: Option<&Environment>,
    boundary: Boundary,
) -> Result<Serving, Refusal> {
    let options = ConnectOptions { environment: environment.cloned(), ..ConnectOptions::default() };
    if boundary == Boundary::OwnKernel {
        return start_relayed(engine, container, user, options).await;
    }
    let argv = [GUEST_PATH.to_owned(), "serve".to_owned()];
    let stream = engine.attach_exec(container, &argv, user).await.map_err(engine_refusal)?;
    let errors = stream.errors;
    let not_up = |error: ConnectError| not_up(container, &error, &errors);
    let greeted = Greeted::greet(stream.input, stream.output, options).await;
    let greeted = greeted.map_err(&not_up)?;
    let host_pid = engine.exec_pid(&stream.exec).await.map_err(engine_refusal)?;
    let cgroup = cgroup_of(host_pid, container);
    // The cgroup is this container's, so the pid belongs to this host and to the guest.
    let process = cgroup.as_ref().and_then(|_| HostProcess::of_engine(host_pid).ok()).map(Arc::new);
    if let Some(process) = &process {
        process.comes_first();
    }
    let client = match channel(process.as_ref(), greeted.peer()).await {
        Some(channel) => greeted.serve_directly(channel).await.map_err(&not_up)?,
        None => greeted.serve(),
    };
    let first = cgroup.as_ref().and_then(|cgroup| cgroup.process(host_pid, FIRST).ok()).map(Arc::new);
    let events = cgroup.as_ref().map(ContainerCgroup::limit_events).unwrap_or_default();
    Ok(Serving {
        client,
        exec: stream.exec,
        host_pid,
        process,
        first,
        cgroup,
        events: Arc::new(Mutex::new(RecentEvents::new(events, Instant::now()))),
        prefork: Arc::default(),
        loss: Arc::default(),
        repeats: TaskTracker::new(),
    })
}

/// Starts a worker like [`start`] in a container with its own kernel. None of its processes is a process of this host.
async fn start_relayed(
    engine: &Engine,
    container: &ContainerId,
    user: RunUser,
    options: ConnectOptions,
) -> Result<Serving, Refusal> {
    let Relayed { stream, guest } = relay::start(engine, container, user).await?;
    let greeted = Greeted::greet(stream.input, stream.output, options).await;
    let greeted = greeted.map_err(|error| not_up(container, &error, &stream.errors))?;
    let sandbox = engine.inspect(container).await.map_err(engine_refusal)?.host_pid;
    let sandbox = sandbox.filter(|pid| ContainerCgroup::of_pid(*pid, container).is_ok());
    Ok(Serving {
        client: greeted.serve(),
        exec: guest,
        host_pid: 0,
        process: None,
        first: sandbox.and_then(|pid| HostProcess::of_engine(pid).ok()).map(Arc::new),
        cgroup: None,
        events: Arc::new(Mutex::new(RecentEvents::new(LimitEvents::default(), Instant::now()))),
        prefork: Arc::default(),
        loss: Arc::default(),
        repeats: TaskTracker::new(),
    })
}

fn not_up(container: &ContainerId, error: &ConnectError, said: &ErrorTail) -> Refusal {
    tracing::error!(%container, error = %chain(error), said = said.text(), "the guest did not start");
    Refusal::new(Reason::EngineUnavailable, "the guest did not start in the container; see the daemon's log")
}

/// Takes the daemon's end of the guest's direct channel, if the guest is a process of this host.
///
/// Without a channel, calls go through the engine, which is slower.
async fn channel(process: Option<&Arc<HostProcess>>, peer: Peer) -> Option<Channel> {
    let process = Arc::clone(process.filter(|_| peer.channel != 0)?);
    // The descriptor may be any open file, and even closing it may block.
    let taken = tokio::task::spawn_blocking(move || process.descriptor(peer.channel)).await.ok()?;
    let taken = taken.map_err(|error| chain(&error));
    match taken.and_then(|fd| Channel::new(fd).map_err(|error| chain(&error))) {
        Ok(channel) => Some(channel),
        Err(error) => {
            tracing::warn!(error, "no direct channel to the guest; calls go through the engine");
            None
        }
    }
}

/// Returns the container's cgroup if commands can have leaves in it.
fn cgroup_of(host_pid: u32, container: &ContainerId) -> Option<ContainerCgroup> {
    match ContainerCgroup::of_pid(host_pid, container) {
        Ok(cgroup) => Some(cgroup),
        Err(error) => {
            tracing::warn!(error = %chain(&error), "commands of this run get no cgroup of their own; the guest ends them");
            None
        }
    }
}
