//! Starts the process of a run's egress, and starts another one when it is lost.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use egress_rules::{HostName, Narrowed, SecretName};
use host_launch::{EgressProcess, WorkerProcess, start_egress};
use ipnet::Ipv4Net;
use model_usage::Who;
use parking_lot::Mutex;
use steering::{Steered, SteeringError, steer};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::UnixStream;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use wire::worker::v1::{EgressReady, EgressStart, FromEgress, from_egress, to_egress};
use worker_protocol::frame::{FrameBuffer, encode};

use crate::decide::{Own, State};
use crate::handles::Handles;
use crate::messages::{message, octets};
use crate::outside::Outside;
use crate::roots::{Roots, is_certificate};
use crate::session::{Greeted, Session};
use crate::streams::StreamError;
use crate::table::{Table, file_of};
use crate::trust::Trust;
use crate::view::View;
use crate::{Control, events};

/// User and group of the process, which nothing else has.
const ID: u32 = 61_000;
/// Time in which it has to be in its jail.
const GREETING: Duration = Duration::from_secs(10);
/// Time in which it has to end.
const GOODBYE: Duration = Duration::from_secs(5);
/// Longest certificate of a process's authority, bytes.
const MOST_AUTHORITY: usize = 4 * 1024;
/// First and longest wait before another process is started.
const AGAIN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(10));

/// The parts of the egress of a run, or of one of its companions.
pub struct Setup {
    pub run: String,
    /// pidfd of the first process of the container, which ends the egress.
    pub process: OwnedFd,
    /// Directory of the run for the files of names and bytes: its own, and one of each companion.
    pub names: PathBuf,
    /// Block of addresses for names.
    pub block: Ipv4Net,
    pub program: Arc<Program>,
    pub outside: Arc<Outside>,
    pub control: Arc<dyn Control>,
    /// Files of the authorities that its programs trust, if its rules open TLS. They are written in place.
    pub trust: Option<Trust>,
    /// Variables, the names of their secrets, and the placeholders that programs see.
    pub placeholders: Vec<(String, SecretName, String)>,
    /// The run, for budgets.
    pub who: Who,
    /// Where the connections are shown: that of the run, or that of one of its companions.
    pub view: View,
}

/// The parts of the way out of one task, which is no run: only connections that [`Egress::open_stream`] makes.
pub struct TaskSetup {
    /// Name of the task on record, in place of a run's.
    pub task: String,
    /// Block of addresses for names, to which no connection may go.
    pub block: Ipv4Net,
    pub program: Arc<Program>,
    pub outside: Arc<Outside>,
    pub control: Arc<dyn Control>,
    /// The principal, for budgets.
    pub who: Who,
}

/// The program `coffer-egress`, open for execution.
pub struct Program {
    file: OwnedFd,
    /// Set once a process of it was in its jail.
    has_served: AtomicBool,
}

impl Program {
    pub fn new(file: OwnedFd) -> Self {
        Self { file, has_served: AtomicBool::new(false) }
    }
}

/// The egress of a run that is alive.
pub struct Egress {
    state: Arc<State>,
    stop: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// The error of a run whose egress cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Such as a kernel without `sk_lookup`, or a daemon without a capability.
    #[error("this host cannot steer a run's connections: {}", .0.remedy())]
    Steering(#[from] SteeringError),
    #[error("the names of the run cannot be stored")]
    Table(#[source] io::Error),
    #[error("coffer-egress did not start")]
    Process(#[source] io::Error),
    #[error("coffer-egress did not start: {0}")]
    Jail(String),
}

/// A process in its jail.
struct Started {
    process: WorkerProcess,
    greeted: Greeted,
}

/// Starts processes for one run.
struct Starter {
    program: Arc<Program>,
    /// `None` for a task.
    steered: Option<Arc<Steered>>,
    state: Arc<State>,
    resolver: Vec<u8>,
}

impl Egress {
    /// Steers the run's network namespace and starts the process.
    ///
    /// It waits for the first process of the daemon, so that a host that cannot start one refuses the run, and for a process whose
    /// authority the programs trust. The sockets of others are there when it returns, and keep connections and queries until their process
    /// serves them.
    pub async fn start(setup: Setup) -> Result<Self, StartError> {
        let Setup { run, process, names, block, program, outside, control, trust, placeholders, who, view } =
            setup;
        let shown = view.clone();
        let opened = spawn_blocking(move || {
            let table = Table::open(&file_of(&names, shown.companion()), block).map_err(StartError::Table)?;
            shown.count_companions(&names).map_err(StartError::Table)?;
            let steered = steer(process.as_fd(), table.pool().resolver())?;
            Ok::<_, StartError>((table, steered, process))
        });
        let (table, steered, process) =
            opened.await.map_err(|error| StartError::Process(io::Error::other(error)))??;
        let resolver = octets(table.pool().resolver().into());
        let own = Own { who, trust, placeholders, is_steered: true };
        let state = Arc::new(State::new(run, own, control, outside, table, view));
        let steered = Some(Arc::new(steered));
        let starter = Starter { program, steered, state: Arc::clone(&state), resolver };
        let has_served = starter.program.has_served.load(Ordering::Relaxed);
        let waits = !has_served || starter.state.own.trust.is_some();
        let first = if waits { Some(starter.start().await?) } else { None };
        let stop = CancellationToken::new();
        tokio::spawn(end_with(process, stop.clone()));
        let task = tokio::spawn(starter.keep(first, stop.clone()));
        Ok(Self { state, stop, task: Mutex::new(Some(task)) })
    }

    /// Starts a process for a task without a network namespace, and waits for it.
    ///
    /// It serves only the connections of [`Self::open_stream`].
    pub async fn for_task(setup: TaskSetup) -> Result<Self, StartError> {
        let TaskSetup { task, block, program, outside, control, who } = setup;
        let table = Table::of_task(block).map_err(StartError::Table)?;
        let resolver = octets(table.pool().resolver().into());
        let own = Own { who, trust: None, placeholders: Vec::new(), is_steered: false };
        let state = Arc::new(State::new(task, own, control, outside, table, View::default()));
        let starter = Starter { program, steered: None, state: Arc::clone(&state), resolver };
        let first = Some(starter.start().await?);
        let stop = CancellationToken::new();
        let task = tokio::spawn(starter.keep(first, stop.clone()));
        Ok(Self { state, stop, task: Mutex::new(Some(task)) })
    }

    /// Opens a stream to a server for a call, on record with the call's id. The other end of the stream expects plain HTTP/1.1.
    ///
    /// The stream is there at once. The rules decide, and a refusal is the response to the first request. A reviewer may be asked
    /// before the response.
    pub async fn open_stream(&self, host: &str, port: u16, call: &str) -> Result<OwnedFd, StreamError> {
        self.state.streams.open(host, port, call).await
    }

    /// Returns the rules that decide about the next connection.
    pub fn rules(&self) -> Arc<Narrowed> {
        self.state.control.rules()
    }

    /// Returns the address that a name has within the run; `None` if no program has asked for it.
    pub fn address_of(&self, name: &str) -> Option<Ipv4Addr> {
        let name = HostName::parse(name).ok()?;
        self.state.table.lock().pool().address_of(&name)
    }

    /// Returns the connections and refused hosts.
    pub fn view(&self) -> &View {
        &self.state.view
    }

    /// Ends all connections and the process. Their receipts are handed to the log before this returns.
    pub async fn end(&self) {
        self.stop.cancel();
        let task = self.task.lock().take();
        if let Some(task) = task {
            let _ = task.await;
        }
    }
}

impl Drop for Egress {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Starter {
    async fn start(&self) -> Result<Started, StartError> {
        let rules = self.state.control.rules();
        let (own, has_roots) = (&self.state.own, self.state.needs_roots(&rules));
        let roots = &self.state.outside.shared().roots;
        let start = EgressStart {
            max_connections: rules.max_connections().max(1),
            // 0 would be no bound.
            max_bytes: self.state.bytes_left().map_or(0, |left| left.max(1)),
            idle_timeout_ms: rules.idle_timeout().unwrap_or_default().saturating_mul(1000),
            resolver: self.resolver.clone(),
            make_authority: own.trust.is_some(),
            roots: if has_roots { roots.der().to_vec() } else { Vec::new() },
            // Always: a process may get the authorities later, with the first connection of a call (`serve.rs`).
            revoked: roots.revoked(),
            placeholders: own.placeholders.iter().map(|(.., value)| value.clone().into_bytes()).collect(),
        };
        let most = start.max_connections;
        let (program, steered) = (Arc::clone(&self.program), self.steered.clone());
        let process = spawn_blocking(move || {
            let sockets = steered.as_ref().map(|steered| {
                let [v4, v6] = &steered.answers;
                [&steered.tcp, &steered.dns, v4, v6, &steered.link].map(OwnedFd::as_fd)
            });
            start_egress(program.file.as_fd(), ID, sockets)
        });
        let EgressProcess { worker: mut process, handles } = process
            .await
            .map_err(io::Error::other)
            .and_then(|started| started)
            .map_err(StartError::Process)?;
        let greeting = async {
            let handles = Handles::new(handles)?;
            let (channel, buffer, ready) = greet(&mut process, start).await?;
            if let Some(files) = &own.trust {
                trust(files.clone(), Arc::clone(roots), ready.authority).await?;
            }
            Ok::<_, io::Error>((channel, buffer, ready.missing, handles))
        };
        match timeout(GREETING, greeting).await.map_err(io::Error::from).and_then(|greeted| greeted) {
            Ok((channel, buffer, missing, handles)) => {
                // Its one child is there by now.
                self.state.control.share_limits(process.pid());
                self.program.has_served.store(true, Ordering::Relaxed);
                if !missing.is_empty() {
                    tracing::warn!(
                        run = self.state.run,
                        ?missing,
                        "the jail of coffer-egress is weaker on this kernel"
                    );
                }
                Ok(Started { process, greeted: Greeted { channel, buffer, most, has_roots, handles } })
            }
            Err(error) => {
                let words = spawn_blocking(move || process.end()).await;
                let words = words.map_err(io::Error::other).and_then(|words| words).unwrap_or_default();
                Err(if words.is_empty() { StartError::Process(error) } else { StartError::Jail(words) })
            }
        }
    }

    /// Keeps a process alive until the run ends. Starts one if `started` is `None`.
    async fn keep(self, mut started: Option<Started>, stop: CancellationToken) {
        let mut wait = Duration::ZERO;
        loop {
            if let Some(Started { process, greeted }) = started.take() {
                let began = Instant::now();
                let why = Session::run(&self.state, greeted, &stop).await;
                let words = spawn_blocking(move || process.wait(GOODBYE)).await;
                if stop.is_cancelled() {
                    break;
                }
                let words = words.map_err(io::Error::other).and_then(|words| words).unwrap_or_default();
                let words = if self.state.has_secrets() { without_secrets(&words) } else { words };
                let why = format!("{why}; {words}");
                tracing::warn!(
                    run = self.state.run,
                    why,
                    "coffer-egress was lost; its connections have ended"
                );
                self.state.record(events::process_lost(&self.state.run, &why));
                wait = next_wait(wait, began.elapsed());
            }
            if stop.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
                break;
            }
            match self.start().await {
                Ok(again) => started = Some(again),
                Err(error) => {
                    wait = next_wait(wait, Duration::ZERO);
                    tracing::error!(run = self.state.run, %error, "coffer-egress does not start; tried again");
                }
            }
        }
        self.state.withdraw_questions().await;
        self.state.record_refusals(true);
        self.state.recorded().await;
    }
}

/// Returns the wait after a process that lived for so long. It grows while they live for less than the longest wait.
///
/// An agent may be able to end its process again and again, and each loss is on record.
fn next_wait(wait: Duration, lived: Duration) -> Duration {
    if lived < AGAIN.1 { (wait * 2).clamp(AGAIN.0, AGAIN.1) } else { AGAIN.0 }
}

/// Stops the egress when the container's first process ends: `coffer-egress` is below the container's cgroup, which the engine removes.
async fn end_with(process: OwnedFd, stop: CancellationToken) {
    #[expect(
        deprecated,
        reason = "the function in its place is unsafe, for descriptors that may change; this one is owned"
    )]
    let watched = AsyncFd::with_interest(process, Interest::READABLE);
    let Ok(process) = watched else { return };
    let ended = stop.run_until_cancelled(process.readable()).await;
    if matches!(ended, Some(Ok(_))) {
        stop.cancel();
    }
}

/// Returns the part of the last words of a process with secrets that has none of them: the place of a panic.
fn without_secrets(words: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-/.:".contains(&byte);
    let is_place = |place: &&str| place.contains(".rs:") && place.bytes().all(is_plain);
    let after = words.split_once("panicked at ").map(|(_, after)| after);
    let place = after.and_then(|after| after.split([';', ' ']).next()).filter(is_place);
    match place {
        Some(place) => format!("it panicked at {}", place.trim_end_matches(':')),
        None if words.is_empty() => String::new(),
        None => "its last words are not kept, because it had secrets".to_owned(),
    }
}

/// Has the programs of the run trust a process.
async fn trust(files: Trust, roots: Arc<Roots>, authority: Vec<u8>) -> io::Result<()> {
    if authority.len() > MOST_AUTHORITY || !is_certificate(&authority) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the certificate of its authority is not valid",
        ));
    }
    let written = spawn_blocking(move || files.write(&roots, &authority));
    written.await.map_err(io::Error::other)?
}

/// Sends the first message, and waits for the answer.
async fn greet(
    process: &mut WorkerProcess,
    start: EgressStart,
) -> io::Result<(UnixStream, FrameBuffer, EgressReady)> {
    let channel = process.channel.try_clone()?;
    channel.set_nonblocking(true)?;
    let mut channel = UnixStream::from_std(channel)?;
    let frame = encode(&message(0, to_egress::Body::Start(start))).map_err(io::Error::other)?;
    channel.write_all(&frame).await?;
    let mut buffer = FrameBuffer::new();
    loop {
        if let Some(FromEgress { body, .. }) = buffer.pop().map_err(io::Error::other)? {
            let Some(from_egress::Body::Ready(ready)) = body else {
                return Err(io::ErrorKind::InvalidData.into());
            };
            return Ok((channel, buffer, ready));
        }
        if channel.read_buf(buffer.read_buffer()).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_of_short_lives_are_started_ever_more_rarely() {
        let mut wait = Duration::ZERO;
        let waits = [0; 12].map(|_| {
            wait = next_wait(wait, Duration::from_secs(9));
            wait.as_millis()
        });
        assert_eq!(waits, [50, 100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000, 10_000, 10_000]);
        assert_eq!(next_wait(wait, AGAIN.1), AGAIN.0);
    }

    #[test]
    fn the_last_words_of_a_process_with_secrets_are_the_place_of_a_panic() {
        let unkept = "its last words are not kept, because it had secrets";
        for (words, kept) in [
            ("", ""),
            ("hunter2", unkept),
            (
                "thread 'main' (7) panicked at src/hide.rs:12:5:; hunter2; note: run",
                "it panicked at src/hide.rs:12:5",
            ),
            ("thread 'main' panicked at hunter2; src/hide.rs:12:5", unkept),
            ("panicked at src/hide.rs:12:5\u{1b}[2J", unkept),
        ] {
            assert_eq!(without_secrets(words), kept, "{words}");
        }
    }
}
