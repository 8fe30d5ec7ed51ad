//! The daemon's end of a worker's stream: many calls in flight, and all frames checked.
//!
//! ```text
//! call ──► driver ──► (queue, writer) ──► worker
//!              ▲ events                     │
//!              └──────── table ◄── reader ◄─┘        heartbeat: ping, pong
//! ```
//!
//! Trust boundary: a worker shares its uid with hostile code. The first frame that is not permitted at its time closes the stream, and
//! every call in flight is lost with it. [`table`] defines the permitted frames. The reader does bounded work for each frame and never
//! waits for a call, so one call cannot hold up another.
//!
//! The caller drives its call. If it leaves, the call is cancelled, and a task drives it on until its processes are ended.

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
mod provide;
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

use operations::{Bound, Bounds, Environment, OpResult, Operation, ToolFailure};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use channel::Channel;
pub use error::{CloseReason, ConnectError, LaneError, Violation};
pub use greeted::Greeted;
pub use output::{Clipped, clipped};
pub use placement::Placement;
pub use prepared::Prepared;
pub use sink::{OutputSink, OutputStream};
pub use terminal::{Keyboard, SessionOver, Terminal, TerminalSpec};

pub use crate::terminal::{TerminalSignal, TerminalSize};

use crate::client::drive::{Driver, Request};
use crate::client::shared::Shared;
use crate::convert::Reply;
use crate::detach_on_drop::DetachOnDrop;

/// Time for which a shutdown waits for its calls.
const SHUTDOWN: Duration = Duration::from_secs(10);

/// Processor time beyond what a call's duration allows, because its process may have been made earlier.
const SLACK: Duration = Duration::from_millis(100);
/// Upper bound for the memory of any host, in bytes: 2^50.
const MOST_MEMORY: u64 = 1 << 50;

/// Bytes at the beginning of a download: the size of the file in 8 bytes and its permission bits in 4, both big-endian.
pub const DOWNLOAD_HEADER: usize = 12;

/// Future that returns true when a call may take effect, or false if it may not.
pub type Go = Pin<Box<dyn Future<Output = bool> + Send>>;

/// Time limits and capacities of a worker's stream.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// Time until its first frame.
    pub hello_timeout: Duration,
    pub ping_interval: Duration,
    /// Time until the answer to a ping.
    pub ping_timeout: Duration,
    /// Time for an outcome after a call's deadline or a cancellation. Longer than a worker's own grace period.
    pub grace: Duration,
    /// Maximum number of concurrent calls. Further calls wait.
    pub max_calls: usize,
    /// Maximum number of open terminals, in addition to the calls. Further ones are refused.
    pub max_terminals: usize,
    /// Maximum number of commands with piped input, in addition to both. Further ones are refused.
    pub max_piped: usize,
    /// Environment variables of the run, for a guest. `None` if its run is not known yet: they follow by [`Client::provide`].
    pub environment: Option<Environment>,
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
            environment: Some(Environment::default()),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Process id in its own namespace, as the worker claims.
    pub pid: u32,
    /// Number of its descriptor that is the daemon's end of a direct channel, as the worker claims. 0 if it offers none.
    pub channel: u32,
}

#[derive(Clone, Copy)]
pub struct CallSpec<'a> {
    pub operation: &'a Operation,
    pub bounds: &'a Bounds,
    /// Time that the worker has from the receipt of the call.
    pub deadline: Duration,
    /// True for a preview: the worker returns what it would do, and changes nothing.
    pub preview: bool,
    /// Sink for all output of a command while it runs, or for a download.
    ///
    /// Whatever the sink does, the outcome contains the beginning and the end of the output.
    pub output: Option<&'a Arc<dyn OutputSink>>,
}

/// A call that has ended: with the reply of a worker, or with the result that the daemon makes of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished<R = OpResult> {
    /// Outcome. A command's contains the beginning and the end of its output.
    pub outcome: Result<R, ToolFailure>,
    /// For a preview, the data to which a consent to the call is bound.
    pub bound: Bound,
    pub usage: Usage,
    /// Bytes of the operation as sent.
    pub bytes_in: u64,
    /// Bytes that came back, streamed output included.
    pub bytes_out: u64,
}

impl<R> Finished<R> {
    /// Replaces what a call that did not fail has come to.
    pub fn and_then<S>(self, next: impl FnOnce(R) -> Result<S, ToolFailure>) -> Finished<S> {
        let Self { outcome, bound, usage, bytes_in, bytes_out } = self;
        Finished { outcome: outcome.and_then(next), bound, usage, bytes_in, bytes_out }
    }
}

/// Resources of a call, as its worker reports them, limited to possible values.
///
/// The code that placed a command may have better values. `None` if they were not measured, or do not belong to a single call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time, user and system, in microseconds.
    pub cpu_time_us: Option<u64>,
    /// Peak resident memory of its largest process, in bytes.
    pub peak_memory_bytes: Option<u64>,
}

/// Number of processors that this process may use. The query is expensive: the standard library reads files of cgroups each time.
static PROCESSORS: LazyLock<usize> =
    LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));

impl Usage {
    /// Limits the values to what a call of this duration can have used. So a worker's false claim cannot spoil a sum of many.
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

/// A worker's stream. Cheap to clone; dropping the last clone closes the stream.
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

    /// Executes one operation.
    ///
    /// `placement` puts a command into its cgroup and ends what it leaves there. Without one the worker does what it can. After a
    /// cancellation the outcome is still awaited for a while, because it contains the command's fate. Dropping the future cancels the call.
    ///
    /// When this returns a result, the sink has taken all output. A sink that takes none is abandoned after deadline and grace period.
    pub async fn call(
        &self,
        spec: CallSpec<'_>,
        placement: Option<Arc<dyn Placement>>,
        cancel: CancellationToken,
    ) -> Result<Finished<Reply>, LaneError> {
        self.start(spec, placement, None, (None, 0), cancel).await
    }

    /// Executes an operation of the host lane that takes effect only after `go`, and prepares it meanwhile.
    ///
    /// If `go` returns false, the call ends without an effect. Otherwise like [`Client::call`].
    pub async fn call_after(
        &self,
        spec: CallSpec<'_>,
        go: Go,
        cancel: CancellationToken,
    ) -> Result<Finished<Reply>, LaneError> {
        self.start(spec, None, None, (Some(go), 0), cancel).await
    }

    /// Executes an operation of the host lane that reaches servers. With `go` it takes effect only after that.
    ///
    /// `way_out` is the number of a handle that the worker got before, over which it asks for streams. Otherwise like [`Client::call`].
    pub async fn call_with_way_out(
        &self,
        spec: CallSpec<'_>,
        go: Option<Go>,
        way_out: u64,
        cancel: CancellationToken,
    ) -> Result<Finished<Reply>, LaneError> {
        self.start(spec, None, None, (go, way_out), cancel).await
    }

    /// Executes a command in a process that exists already. Otherwise like [`Client::call`].
    pub async fn call_prepared(
        &self,
        spec: CallSpec<'_>,
        prepared: Prepared,
        cancel: CancellationToken,
    ) -> Result<Finished<Reply>, LaneError> {
        if !prepared.is_of(&self.inner.shared) {
            return Err(self.inner.shared.lost());
        }
        self.start(spec, None, Some(prepared), (None, 0), cancel).await
    }

    async fn start(
        &self,
        spec: CallSpec<'_>,
        placement: Option<Arc<dyn Placement>>,
        prepared: Option<Prepared>,
        (go, way_out): (Option<Go>, u64),
        cancel: CancellationToken,
    ) -> Result<Finished<Reply>, LaneError> {
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
        let request = Request { spec, terminal: None, placement, prepared, go, way_out, cancel, slot };
        let driver = Driver::new(shared, request)?;
        DetachOnDrop::new(shared.drivers.track_future(driver.run())).await
    }

    /// Waits until the stream is closed, and returns the reason.
    pub fn closed(&self) -> impl Future<Output = CloseReason> + Send + 'static {
        let mut closed = self.inner.shared.closed.subscribe();
        async move {
            // The tasks hold the sender. If they ended without a reason, the client was dropped.
            match closed.wait_for(Option::is_some).await {
                Ok(reason) => reason.unwrap_or(CloseReason::Shutdown),
                Err(_) => CloseReason::Shutdown,
            }
        }
    }

    /// Returns true if the stream is known to be closed.
    pub fn is_closed(&self) -> bool {
        self.inner.shared.closed.borrow().is_some()
    }

    /// Closes the stream, which ends the worker, and waits until the calls in flight are lost and cleaned up.
    pub async fn shutdown(&self) {
        self.inner.shared.close(CloseReason::Shutdown);
        self.inner.shared.drivers.close();
        let _ = tokio::time::timeout(SHUTDOWN, self.inner.shared.drivers.wait()).await;
    }
}
