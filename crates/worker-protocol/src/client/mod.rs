//! The daemon's end of a worker's stream: many calls in flight, and nothing believed that was not checked.
//!
//! ```text
//! call ──► driver ──► (queue, writer) ──► worker
//!              ▲ events                     │
//!              └──────── table ◄── reader ◄─┘        heartbeat: ping, pong
//! ```
//!
//! Trust boundary: a worker shares its uid with hostile code. The first frame that cannot come now closes the stream,
//! and every call in flight is lost with it; what a worker may say at all, and when, is in [`table`]. The reader does
//! bounded work a frame and never waits for a call, so one call cannot hold up another.
//!
//! A call is driven by whoever waits for it, who may go away: the call is then cancelled and driven on by a task, its
//! processes are ended, and only then is it over.

mod backlog;
mod bound;
mod channel;
mod command;
mod download;
mod drive;
mod error;
mod feed;
mod greeted;
mod hello;
mod line;
mod outbound;
mod output;
mod placement;
mod prepared;
mod shared;
mod sink;
mod table;
mod tasks;
mod terminal;
#[cfg(test)]
mod tests;
mod window;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use ops::{Bound, Bounds, Environment, Operation, Outcome};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use channel::Channel;
pub use error::{CloseReason, ConnectError, LaneError, Violation};
pub use greeted::Greeted;
pub use placement::Placement;
pub use prepared::Prepared;
pub use sink::{OutputSink, OutputStream};
pub use terminal::{Keyboard, SessionOver, Terminal, TerminalSpec};

pub use crate::terminal::{TerminalSignal, TerminalSize};

use crate::client::drive::{Driver, Request};
use crate::client::shared::Shared;
use crate::detach_on_drop::DetachOnDrop;

/// After this a client that was shut down leaves its calls alone.
const SHUTDOWN: Duration = Duration::from_secs(10);

/// Processor time beyond what a call's own time allows: its process may have been made before it.
const SLACK: Duration = Duration::from_millis(100);
/// No host has more memory, bytes: 2^50.
const MOST_MEMORY: u64 = 1 << 50;

/// Bytes at the beginning of a download: the size of the file in 8 bytes and its permission bits in 4, both big-endian.
pub const DOWNLOAD_HEADER: usize = 12;

/// Says when a call may take effect, or that it may not.
pub type Go = Pin<Box<dyn Future<Output = bool> + Send>>;

/// How patient to be with a worker.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// Until its first frame.
    pub hello_timeout: Duration,
    pub ping_interval: Duration,
    /// Until the answer to one.
    pub ping_timeout: Duration,
    /// Beyond a call's deadline, or after a cancellation, until its outcome. More than a worker's own grace.
    pub grace: Duration,
    /// Calls at once; more wait for a place.
    pub max_calls: usize,
    /// Terminals at once, beside the calls; more are refused.
    pub max_terminals: usize,
    /// Commands on pipes that are written to at once, beside both; more are refused.
    pub max_piped: usize,
    /// Variables of the run, for a guest.
    pub environment: Environment,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            hello_timeout: Duration::from_secs(30),
            ping_interval: Duration::from_secs(5),
            ping_timeout: Duration::from_secs(10),
            grace: Duration::from_secs(8),
            max_calls: 32,
            max_terminals: 8,
            max_piped: 8,
            environment: Environment::default(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its process id in its own namespace, as it says.
    pub pid: u32,
    /// Number of its descriptor that would be our end of a direct channel, as it says; 0 when it offers none.
    pub channel: u32,
}

#[derive(Clone, Copy)]
pub struct CallSpec<'a> {
    pub operation: &'a Operation,
    pub bounds: &'a Bounds,
    /// How long the worker has, from receipt.
    pub deadline: Duration,
    /// Only look: answer what would be done, and change nothing.
    pub preview: bool,
    /// Gets all that a command writes, while it runs, or all of a download. Whatever becomes of it, the outcome has head and tail.
    pub output: Option<&'a Arc<dyn OutputSink>>,
}

/// A call that came to its end.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    /// What the worker says; for a command with its output, head and tail.
    pub outcome: Outcome,
    /// Of a preview: what a consent to the call is bound to.
    pub bound: Bound,
    pub usage: Usage,
    /// Bytes of the operation as sent.
    pub bytes_in: u64,
    /// Bytes that came back, streamed output included.
    pub bytes_out: u64,
}

/// Resources of a call, as its worker says, bounded by what can be; whoever placed a command may know better. `None` where
/// nobody measured them, or where they are no one call's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time, user and system, microseconds.
    pub cpu_time_us: Option<u64>,
    /// Peak resident memory of its largest process, bytes.
    pub peak_memory_bytes: Option<u64>,
}

/// As many as this process may use. Asking is dear: the standard library reads files of cgroups each time.
static PROCESSORS: LazyLock<usize> =
    LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));

impl Usage {
    /// At most what a call can have used that took so long: nothing that a worker claims breaks a sum of many.
    fn bounded(self, took: Duration) -> Self {
        let processors = *PROCESSORS;
        let most = took.saturating_mul(u32::try_from(processors).unwrap_or(u32::MAX)) + SLACK;
        let most = u64::try_from(most.as_micros()).unwrap_or(u64::MAX);
        Self {
            cpu_time_us: self.cpu_time_us.map(|time| time.min(most)),
            peak_memory_bytes: self.peak_memory_bytes.map(|bytes| bytes.min(MOST_MEMORY)),
        }
    }
}

/// A worker's stream. Cheap to clone; when the last clone goes, the stream is closed.
#[derive(Debug, Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    slots: Arc<Semaphore>,
    terminals: Arc<Semaphore>,
    piped: Arc<Semaphore>,
    _stop: DropGuard,
}

impl Client {
    /// Exchanges hellos over `output` (to the worker) and `input` (from it), and starts the stream's tasks.
    pub async fn connect<W, R>(
        output: W,
        input: R,
        options: ConnectOptions,
    ) -> Result<(Self, Peer), ConnectError>
    where
        W: AsyncWrite + Send + Unpin + 'static,
        R: AsyncRead + Send + Unpin + 'static,
    {
        let greeted = Greeted::greet(output, input, options).await?;
        let peer = greeted.peer();
        Ok((greeted.serve(), peer))
    }

    fn new(shared: Arc<Shared>) -> Self {
        let slots = Arc::new(Semaphore::new(shared.options.max_calls));
        let terminals = Arc::new(Semaphore::new(shared.options.max_terminals));
        let piped = Arc::new(Semaphore::new(shared.options.max_piped));
        let stop = shared.stop.clone().drop_guard();
        Self { inner: Arc::new(Inner { shared, slots, terminals, piped, _stop: stop }) }
    }

    /// Executes one operation. `placement` puts a command into its cgroup and ends what it leaves there; without one
    /// the worker does what it can. After a cancellation the outcome is waited for all the same, for a while: it
    /// says what became of the command. Dropping the future cancels the call.
    ///
    /// When this returns a result, the sink has taken all output; one that takes none is left behind once deadline and
    /// grace are over.
    pub async fn call(
        &self,
        spec: CallSpec<'_>,
        placement: Option<Arc<dyn Placement>>,
        cancel: CancellationToken,
    ) -> Result<Finished, LaneError> {
        self.start(spec, placement, None, None, cancel).await
    }

    /// As [`Client::call`], for an operation of the host lane that takes effect only after `go`, and prepares what it can
    /// meanwhile. Where that says no, the call is ended without an effect.
    pub async fn call_after(
        &self,
        spec: CallSpec<'_>,
        go: Go,
        cancel: CancellationToken,
    ) -> Result<Finished, LaneError> {
        self.start(spec, None, None, Some(go), cancel).await
    }

    /// As [`Client::call`] for a command, whose process is there already.
    pub async fn call_prepared(
        &self,
        spec: CallSpec<'_>,
        prepared: Prepared,
        cancel: CancellationToken,
    ) -> Result<Finished, LaneError> {
        if !prepared.is_of(&self.inner.shared) {
            return Err(self.inner.shared.lost());
        }
        self.start(spec, None, Some(prepared), None, cancel).await
    }

    async fn start(
        &self,
        spec: CallSpec<'_>,
        placement: Option<Arc<dyn Placement>>,
        prepared: Option<Prepared>,
        go: Option<Go>,
        cancel: CancellationToken,
    ) -> Result<Finished, LaneError> {
        let shared = &self.inner.shared;
        let slot = tokio::select! {
            biased;
            () = shared.stop.cancelled() => return Err(shared.lost()),
            () = cancel.cancelled() => return Err(LaneError::Cancelled),
            slot = tokio::time::timeout(spec.deadline, Arc::clone(&self.inner.slots).acquire_owned()) => match slot {
                Ok(Ok(slot)) => slot,
                Ok(Err(_)) => return Err(shared.lost()),
                Err(_) => return Err(LaneError::TimedOut),
            },
        };
        let cancel = cancel.child_token();
        let _dropped = cancel.clone().drop_guard();
        let driver =
            Driver::new(shared, Request { spec, terminal: None, placement, prepared, go, cancel, slot })?;
        DetachOnDrop::new(shared.drivers.track_future(driver.run())).await
    }

    /// Waits until the stream is closed: why.
    pub fn closed(&self) -> impl Future<Output = CloseReason> + Send + 'static {
        let mut closed = self.inner.shared.closed.subscribe();
        async move {
            // The sender lives in the tasks; when they are gone without a word, the client was dropped.
            match closed.wait_for(Option::is_some).await {
                Ok(reason) => reason.unwrap_or(CloseReason::Shutdown),
                Err(_) => CloseReason::Shutdown,
            }
        }
    }

    /// Whether the stream is closed, as far as is known.
    pub fn is_closed(&self) -> bool {
        self.inner.shared.closed.borrow().is_some()
    }

    /// Closes the stream, which makes the worker end, and waits for the calls in flight to be lost and cleaned up.
    pub async fn shutdown(&self) {
        self.inner.shared.close(CloseReason::Shutdown);
        self.inner.shared.drivers.close();
        let _ = tokio::time::timeout(SHUTDOWN, self.inner.shared.drivers.wait()).await;
    }
}
