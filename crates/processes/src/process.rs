//! A process, as every part but its owner sees it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use identity::{CallId, RunId};
use operations::Reason;
use refusal::Refusal;
use tokio::sync::{Mutex, Semaphore, mpsc, oneshot, watch};
use wire::v1::process::State;
use wire::v1::{self, signal_process_request::Signal};

use crate::output::Output;
use crate::session::Session;

/// Most readers of one process at the same time.
pub(crate) const READERS: usize = 16;
/// Most orders that wait.
pub(crate) const ORDERS: usize = 16;
/// Most bytes of one request.
const MAX_INPUT: usize = 1 << 20;

pub struct Process {
    pub(crate) run: RunId,
    pub(crate) id: CallId,
    /// The status as clients see it, except for the sizes of the streams.
    pub(crate) status: watch::Receiver<v1::Process>,
    pub(crate) output: Arc<Output>,
    pub(crate) readers: Arc<Semaphore>,
    /// The session, if the process is a shell that takes commands.
    pub(crate) session: Option<Session>,
    orders: mpsc::Sender<Order>,
    /// Its input, in order of arrival.
    input: mpsc::Sender<Given>,
    writing: Mutex<()>,
}

/// An order for the owner of a process.
#[derive(Debug)]
pub(crate) enum Order {
    Resize(v1::TerminalSize, Answer),
    Signal(Signal, Answer),
    /// For a session: kill the job in the foreground of its terminal, unless that is its shell.
    KillForeground,
    /// For a session: give its shell a line.
    Control(Line),
}

/// The channel for the result of an order.
pub(crate) type Answer = oneshot::Sender<Result<(), Refusal>>;

/// A line for the shell of a session.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) data: Vec<u8>,
    /// Give the line only if the shell has read all others.
    pub(crate) if_read: bool,
    /// Text that the recording gets first.
    pub(crate) record: Option<Bytes>,
    /// Gets true once the line is recorded and sent.
    pub(crate) answer: oneshot::Sender<bool>,
}

/// Input for a process.
#[derive(Debug)]
pub(crate) struct Given {
    /// Position of the first byte; `None`: after all earlier input.
    pub(crate) offset: Option<u64>,
    pub(crate) data: Bytes,
    pub(crate) close: bool,
    pub(crate) answer: oneshot::Sender<Result<v1::WriteStdinResponse, Refusal>>,
}

/// The owner's ends of a process's channels.
pub(crate) struct Ends {
    pub(crate) status: watch::Sender<v1::Process>,
    pub(crate) orders: mpsc::Receiver<Order>,
    pub(crate) input: mpsc::Receiver<Given>,
}

impl Process {
    pub(crate) fn new(run: RunId, id: CallId, status: v1::Process, output: Arc<Output>) -> (Arc<Self>, Ends) {
        let (status, seen) = watch::channel(status);
        let (orders, ordered) = mpsc::channel(ORDERS);
        let (input, given) = mpsc::channel(1);
        let readers = Arc::new(Semaphore::new(READERS));
        let is_session = seen.borrow().request.as_ref().is_some_and(|request| request.session);
        let session = is_session.then(|| Session::new(output.ends()[0]));
        let process = Self {
            run,
            id,
            status: seen,
            output,
            readers,
            session,
            orders,
            input,
            writing: Mutex::default(),
        };
        (Arc::new(process), Ends { status, orders: ordered, input: given })
    }

    /// Returns the current status.
    pub fn now(&self) -> v1::Process {
        let mut status = self.status.borrow().clone();
        if status.state() == State::Running {
            [status.stdout_bytes, status.stderr_bytes] = self.output.ends();
        }
        status
    }

    pub(crate) fn lives(&self) -> bool {
        self.status.borrow().state() == State::Running
    }

    /// Waits until the process has ended, `limit` at the longest, and returns its status.
    pub async fn wait(&self, limit: Duration) -> v1::Process {
        let mut status = self.status.clone();
        // The owner drops the sender after the final status.
        let _ = tokio::time::timeout(limit, status.wait_for(|status| status.state() != State::Running)).await;
        self.now()
    }

    /// Waits for output beyond `offsets`, or for the process's end, `limit` at the longest.
    pub async fn more(&self, offsets: [u64; 2], limit: Duration) {
        let (mut ends, mut status) = (self.output.follow(), self.status.clone());
        let more = async {
            tokio::select! {
                _ = ends.wait_for(|ends| ends.iter().zip(offsets).any(|(end, offset)| *end > offset)) => {}
                _ = status.wait_for(|status| status.state() != State::Running) => {}
            }
        };
        let _ = tokio::time::timeout(limit, more).await;
    }

    /// Gives the process input. `offset` is the position of the first byte; `None` is after all earlier input.
    pub async fn write(
        &self,
        offset: Option<u64>,
        data: Vec<u8>,
        close: bool,
    ) -> Result<v1::WriteStdinResponse, Refusal> {
        if data.len() > MAX_INPUT {
            return Err(Refusal::invalid(
                "data",
                format!("is longer than {MAX_INPUT} bytes: send it in pieces"),
            ));
        }
        let terminal =
            self.status.borrow().request.as_ref().is_some_and(|request| request.terminal.is_some());
        if close && terminal {
            return Err(Refusal::invalid("close", "a terminal is not closed: send the byte 4 (Ctrl-D)"));
        }
        self.give(offset, data.into(), close).await
    }

    /// Gives the process input after all earlier input. Returns the number of bytes that it takes.
    pub(crate) async fn append(&self, data: Bytes) -> Result<usize, Refusal> {
        let given = self.status.borrow().stdin_bytes;
        let answer = self.give(None, data, false).await?;
        Ok(usize::try_from(answer.offset.saturating_sub(given)).unwrap_or(usize::MAX))
    }

    async fn give(
        &self,
        offset: Option<u64>,
        data: Bytes,
        close: bool,
    ) -> Result<v1::WriteStdinResponse, Refusal> {
        let _turn = self.writing.lock().await;
        let (answer, answered) = oneshot::channel();
        let end = offset.map(|offset| offset.saturating_add(data.len() as u64));
        if self.input.send(Given { offset, data, close, answer }).await.is_ok()
            && let Ok(answered) = answered.await
        {
            return answered;
        }
        // The process has ended. A repeated request has no new bytes, and gets the same answer.
        let taken = self.status.borrow().stdin_bytes;
        if end.is_some_and(|end| end <= taken) {
            return Ok(v1::WriteStdinResponse { offset: taken, open: false });
        }
        Err(has_ended().with("offset", taken.to_string()))
    }

    pub async fn resize(&self, size: v1::TerminalSize) -> Result<(), Refusal> {
        let size_of = |size| operations::TerminalSize::parse("size", size);
        size_of(size)?;
        if self.status.borrow().request.as_ref().is_none_or(|request| request.terminal.is_none()) {
            return Err(Refusal::new(Reason::PreconditionFailed, "the process has no terminal"));
        }
        self.carried_out(|answer| Order::Resize(size, answer)).await
    }

    pub async fn signal(&self, signal: Signal) -> Result<(), Refusal> {
        if signal == Signal::Unspecified {
            return Err(Refusal::invalid("signal", "is missing, or not one that can be sent"));
        }
        self.carried_out(|answer| Order::Signal(signal, answer)).await
    }

    /// Gives the owner an order, and returns its result.
    async fn carried_out(&self, order: impl FnOnce(Answer) -> Order) -> Result<(), Refusal> {
        let (answer, answered) = oneshot::channel();
        self.order(order(answer)).await?;
        answered.await.unwrap_or_else(|_| Err(has_ended()))
    }

    pub(crate) async fn order(&self, order: Order) -> Result<(), Refusal> {
        self.orders.send(order).await.map_err(|_| has_ended())
    }
}

pub(crate) fn has_ended() -> Refusal {
    Refusal::new(Reason::PreconditionFailed, "the process has ended")
}
