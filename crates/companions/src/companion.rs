//! One companion of a run that lives.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use containers::{
    CgroupError, ContainerCgroup, ContainerId, ContainerState, Engine, EngineError, HostProcess,
};
use loopback_dial::DialError;
use parking_lot::Mutex;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

/// Time in which a killed container has no process left.
const KILL: Duration = Duration::from_secs(2);
/// Time between two questions for the exit code, and their number. The engine notes it a moment after the end.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
const LOOKS: usize = 150;
/// Exit code of a program whose exit code is not known.
const UNKNOWN: i64 = -1;

/// A container beside a run.
pub struct Companion {
    name: String,
    ports: BTreeSet<u16>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) container: ContainerId,
    /// First process of the container; `None` if it had ended before.
    process: Option<HostProcess>,
    /// Exit code, once it has ended.
    exit: watch::Sender<Option<i64>>,
    /// Reason for which the daemon has ended it.
    killed_for: Mutex<Option<&'static str>>,
    /// True once its end was reported by [`crate::Companions::next_exit`].
    pub(crate) is_reported: AtomicBool,
    /// True while the engine has paused it; `None` if an error of the engine left that open.
    paused: tokio::sync::Mutex<Option<bool>>,
}

impl Companion {
    /// Returns the companion whose container has this first process, and waits for its end in the background.
    pub fn running(
        engine: Arc<Engine>,
        (name, ports): (String, BTreeSet<u16>),
        container: ContainerId,
        host_pid: u32,
        is_paused: bool,
    ) -> Result<Arc<Self>, CgroupError> {
        let process = HostProcess::of_engine(host_pid)?;
        let handle = process.handle().map_err(|_| CgroupError::NoSuchProcess)?;
        let companion = Arc::new(Self {
            name,
            ports,
            engine,
            container,
            process: Some(process),
            exit: watch::Sender::new(None),
            killed_for: Mutex::default(),
            is_reported: AtomicBool::new(false),
            paused: tokio::sync::Mutex::new(Some(is_paused)),
        });
        let watched = Arc::downgrade(&companion);
        tokio::spawn(async move {
            ends(handle).await;
            if let Some(companion) = watched.upgrade() {
                let code = companion.exit_code().await;
                companion.exit.send_replace(Some(code));
            }
        });
        Ok(companion)
    }

    /// Returns a companion that ended before, with this code, and whose end was reported.
    pub fn over(
        engine: Arc<Engine>,
        (name, ports): (String, BTreeSet<u16>),
        container: ContainerId,
        code: i64,
        is_reported: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            name,
            ports,
            engine,
            container,
            process: None,
            exit: watch::Sender::new(Some(code)),
            killed_for: Mutex::default(),
            is_reported: AtomicBool::new(is_reported),
            paused: tokio::sync::Mutex::new(Some(false)),
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the ports that programs of the run may connect to.
    pub fn ports(&self) -> &BTreeSet<u16> {
        &self.ports
    }

    /// Returns the exit code of its first process, once that has ended.
    pub fn exit(&self) -> Option<i64> {
        *self.exit.borrow()
    }

    /// Returns the reason for which the daemon has ended it.
    pub fn killed_for(&self) -> Option<&'static str> {
        *self.killed_for.lock()
    }

    /// Returns the cgroup of its processes. `None` if it has ended, or if the cgroup is not visible. Blocks on `/proc`.
    pub(crate) fn cgroup(&self) -> Option<ContainerCgroup> {
        let process = self.process.as_ref().filter(|_| self.exit().is_none())?;
        ContainerCgroup::of_pid(process.pid(), &self.container).ok()
    }

    /// Returns a handle of its first process, in whose network namespace it is. Fails once it has ended.
    pub fn process(&self) -> std::io::Result<OwnedFd> {
        let process = self.process.as_ref().ok_or(std::io::ErrorKind::NotFound)?;
        process.handle()
    }

    /// Puts a process of the host and its children below the limits of its container, in the background.
    pub fn share_limits(self: &Arc<Self>, pid: u32) {
        let companion = Arc::clone(self);
        // Opened now, while the caller holds the process, so that its pid is not reused.
        let process = HostProcess::of_engine(pid);
        drop(tokio::task::spawn_blocking(move || {
            let Some(cgroup) = companion.cgroup() else { return };
            match process.and_then(|process| cgroup.add_companion(&process)) {
                Ok(()) | Err(CgroupError::NoSuchProcess) => {}
                Err(error) => {
                    tracing::warn!(companion = companion.name, %error, "a process is not below a companion's limits");
                }
            }
        }));
    }

    /// Waits for its end, and returns the exit code.
    pub async fn ended(&self) -> i64 {
        let mut exit = self.exit.subscribe();
        let code = exit.wait_for(Option::is_some).await.ok().and_then(|code| *code);
        code.unwrap_or(UNKNOWN)
    }

    /// Returns the reason that no connection to this port is possible, for the agent.
    pub fn refuses(&self, port: u16) -> Option<String> {
        let name = &self.name;
        if let Some(code) = self.exit() {
            return Some(format!(
                "The companion {name} has ended with the code {code}, and is not started again."
            ));
        }
        if !self.ports.contains(&port) {
            let ports: Vec<String> = self.ports.iter().map(u16::to_string).collect();
            let open = if ports.is_empty() { "none".to_owned() } else { ports.join(", ") };
            return Some(format!("The companion {name} is not open at port {port}. Its ports: {open}."));
        }
        None
    }

    /// Connects to one of its ports, from within its network namespace. The reason of a failure is for the agent.
    pub async fn connect(&self, port: u16) -> Result<OwnedFd, String> {
        if let Some(why) = self.refuses(port) {
            return Err(why);
        }
        let stream = self.dial(port).await.map_err(|error| {
            tracing::debug!(companion = self.name, port, %error, "a companion was not reached");
            match error {
                DialError::Namespace(_) => format!("the companion {} has ended", self.name),
                DialError::Server(_) => {
                    format!("the companion {} accepts no connection at port {port}", self.name)
                }
            }
        })?;
        let stream = stream.into_std().map_err(|error| error.to_string())?;
        Ok(stream.into())
    }

    pub(crate) async fn dial(&self, port: u16) -> Result<tokio::net::TcpStream, DialError> {
        let network = self.process().map_err(DialError::Namespace)?;
        loopback_dial::dial(network, port).await
    }

    /// Pauses or resumes all its processes. Returns the error of the engine if that has failed, or may have.
    pub(crate) async fn set_paused(&self, paused: bool) -> Result<(), EngineError> {
        let mut is_paused = self.paused.lock().await;
        if *is_paused == Some(paused) || self.exit().is_some() {
            return Ok(());
        }
        let engine = &self.engine;
        let done =
            if paused { engine.pause(&self.container).await } else { engine.unpause(&self.container).await };
        let Err(error) = done else {
            *is_paused = Some(paused);
            return Ok(());
        };
        tracing::error!(companion = self.name, paused, %error, "a companion was not paused or resumed");
        // An engine that did not answer in time may have done it nevertheless.
        let state = engine.inspect(&self.container).await.map(|inspection| inspection.state).ok();
        let has_ended = matches!(state, Some(ContainerState::Exited(_)));
        *is_paused = state.map(|state| state == ContainerState::Paused);
        if *is_paused == Some(paused) || has_ended { Ok(()) } else { Err(error) }
    }

    /// Ends all its processes. Returns false if one is left after a while.
    pub async fn kill(self: &Arc<Self>, why: Option<&'static str>) -> bool {
        // A frozen process of cgroup v1 does not end.
        let _ = self.set_paused(false).await;
        if self.exit().is_none() {
            *self.killed_for.lock() = why;
        }
        let companion = Arc::clone(self);
        // The kernel ends all others with the first.
        let killed = move || companion.process.as_ref().is_none_or(|process| process.kill(KILL));
        tokio::task::spawn_blocking(killed).await.unwrap_or(false)
    }

    async fn exit_code(&self) -> i64 {
        for _ in 0..LOOKS {
            match self.engine.inspect(&self.container).await.map(|inspection| inspection.state) {
                Ok(ContainerState::Exited(code)) => return code,
                // It is removed, with its run.
                Err(EngineError::NotFound { .. }) => break,
                _ => tokio::time::sleep(LOOK_AGAIN).await,
            }
        }
        UNKNOWN
    }

    /// Notes that its end was reported. Returns false if it was before.
    pub(crate) fn report(&self) -> bool {
        !self.is_reported.swap(true, Ordering::Relaxed)
    }
}

/// Waits for the end of a process, by its pidfd.
async fn ends(process: OwnedFd) {
    #[expect(
        deprecated,
        reason = "the function in its place is unsafe, for descriptors that may change; this one is owned"
    )]
    let watched = AsyncFd::with_interest(process, Interest::READABLE);
    match watched {
        Ok(process) => drop(process.readable().await),
        Err(error) => {
            tracing::error!(%error, "the end of a companion is not noticed");
            std::future::pending::<()>().await;
        }
    }
}
