//! Runs a session from its first byte to its last. One task reads both sides, and stops when either ends.
//!
//! ```text
//!  operator ──► checked ──► recorded ──► queue ──► terminal
//!  operator ◄── screen  ◄── recorded ◄── sink  ◄── terminal
//! ```
//!
//! The task never waits for one side alone. An operator who does not read holds the program back, and a program that
//! does not read holds the operator's input back. The session can be ended in both cases.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use executor::Metered;
use futures_util::{Stream, StreamExt as _};
use refusal::{Refusal, chain};
use store::recording::{Entry, Recorder, RecordingError};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};
use wire::v1::{self, open_terminal_response::Event as Shown};
use worker_protocol::client::{Finished, LaneError, OutputSink, OutputStream, Terminal};
use worker_protocol::convert::Reply;

use super::input_queue::InputQueue;
use super::recorded;
use super::slots::Limits;
use super::start::Event;

/// Time that an operator has to read the remaining output after the end of a session.
pub(super) const GOODBYE: Duration = Duration::from_secs(10);

/// Message or status for the operator's client.
pub(super) type Response = Result<v1::OpenTerminalResponse, Status>;

/// Reason why a session is cut off.
#[derive(Debug, Clone)]
pub(super) enum Cause {
    /// The operator has disconnected.
    Disconnected,
    /// The run has ended.
    RunEnded,
    /// The session's time is over. The text says which limit it reached.
    TimedOut(&'static str),
    /// The recording is full, or cannot be written.
    RecordingFull,
    /// The operator's client sent an invalid message.
    Refused(Refusal),
}

/// State of the session's task.
pub(super) struct Session<R> {
    /// Messages of the operator's client after the first.
    pub(super) requests: R,
    pub(super) screen: mpsc::Sender<Response>,
    pub(super) recorder: Recorder,
    /// Token that is cancelled when the run ends.
    pub(super) run_ended: CancellationToken,
    /// Ends the terminal, and every process that was started on it.
    pub(super) cancel: CancellationToken,
    pub(super) limits: Arc<Limits>,
    /// Bytes of input so far.
    pub(super) typed: u64,
    /// Bytes of output so far.
    pub(super) shown: u64,
}

/// End of a session.
pub(super) struct End {
    /// Reason for the end; `None` if the session ended by itself.
    pub(super) cause: Option<Cause>,
    /// Outcome of the command, from the lane.
    pub(super) finished: Result<Finished<Reply>, LaneError>,
    /// Resources that the kernel counted, even if the lane was lost.
    pub(super) metered: Metered,
}

/// Event that the session's task handles next.
enum Happening {
    Over(Box<Result<Finished<Reply>, LaneError>>),
    Cut(Cause),
    Output(Option<Bytes>),
    Said(Option<Result<v1::OpenTerminalRequest, Status>>),
    /// Space for output on the screen, or a message that was sent to the terminal.
    Progress,
}

/// Sink that passes a terminal's output to the session's task. The task takes a piece when the operator has taken the
/// last.
pub(super) struct Sink(mpsc::Sender<Bytes>);

impl Sink {
    pub(super) fn pair() -> (Arc<dyn OutputSink>, mpsc::Receiver<Bytes>) {
        let (sender, receiver) = mpsc::channel(1);
        (Arc::new(Self(sender)), receiver)
    }
}

impl OutputSink for Sink {
    fn take(
        &self,
        _stream: OutputStream,
        _offset: u64,
        data: Bytes,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        // A session that is being ended reads no further output.
        Box::pin(async move { drop(self.0.send(data).await) })
    }
}

impl<R: Stream<Item = Result<v1::OpenTerminalRequest, Status>> + Unpin> Session<R> {
    /// Serves both sides until the terminal and every process that was started on it are gone.
    ///
    /// Returns the reason for the end, if the session did not end by itself, and the lane's report.
    pub(super) async fn attend(
        &mut self,
        terminal: Terminal,
        mut output: mpsc::Receiver<Bytes>,
    ) -> (Option<Cause>, Result<Finished<Reply>, LaneError>) {
        let began = Instant::now();
        let mut active = began;
        let mut queue = InputQueue::new(terminal.keyboard());
        let mut finished = pin!(terminal.finished());
        // Output that is recorded but not yet sent.
        let mut pending: Option<Bytes> = None;
        let mut more = true;
        let cause = loop {
            let happening = tokio::select! {
                finished = &mut finished => Happening::Over(Box::new(finished)),
                () = self.run_ended.cancelled() => Happening::Cut(Cause::RunEnded),
                () = self.screen.closed() => Happening::Cut(Cause::Disconnected),
                () = sleep_until(began + self.limits.max_length) => {
                    Happening::Cut(Cause::TimedOut("the session reached its longest time"))
                }
                () = sleep_until(active + self.limits.idle_timeout) => {
                    Happening::Cut(Cause::TimedOut("the session was idle for too long"))
                }
                slot = self.screen.reserve(), if pending.is_some() => {
                    if let (Ok(slot), Some(bytes)) = (slot, pending.take()) {
                        slot.send(Ok(output_message(&bytes)));
                    }
                    Happening::Progress
                }
                bytes = output.recv(), if more && pending.is_none() => Happening::Output(bytes),
                request = self.requests.next(), if queue.is_free() => Happening::Said(request),
                () = queue.work() => Happening::Progress,
            };
            // Outside of the select, so that the recording of an event is not interrupted.
            let done = match happening {
                Happening::Over(finished) => {
                    let cause = self.rest(pending, &mut output).await.err();
                    return (cause, *finished);
                }
                Happening::Cut(cause) => Err(cause),
                Happening::Output(Some(bytes)) => {
                    active = Instant::now();
                    let recorded = self.output(bytes.clone()).await;
                    pending = Some(bytes);
                    recorded
                }
                Happening::Output(None) => {
                    more = false;
                    Ok(())
                }
                Happening::Said(request) => {
                    active = Instant::now();
                    self.said(request, &mut queue).await
                }
                Happening::Progress => Ok(()),
            };
            if let Err(cause) = done {
                break cause;
            }
        };
        self.cancel.cancel();
        // Further output is neither recorded nor shown. It must not delay the end.
        output.close();
        (Some(cause), finished.await)
    }

    /// Sends the rest of the output to an operator who still reads, after the command has ended.
    async fn rest(
        &mut self,
        pending: Option<Bytes>,
        output: &mut mpsc::Receiver<Bytes>,
    ) -> Result<(), Cause> {
        let mut next = pending;
        loop {
            if let Some(bytes) = next {
                let sent = timeout(GOODBYE, self.screen.send(Ok(output_message(&bytes)))).await;
                if !matches!(sent, Ok(Ok(()))) {
                    return Ok(());
                }
            }
            let Ok(bytes) = output.try_recv() else { return Ok(()) };
            self.output(bytes.clone()).await?;
            next = Some(bytes);
        }
    }

    async fn output(&mut self, bytes: Bytes) -> Result<(), Cause> {
        self.shown += bytes.len() as u64;
        self.record(Entry::Output(bytes)).await
    }

    async fn said(
        &mut self,
        request: Option<Result<v1::OpenTerminalRequest, Status>>,
        queue: &mut InputQueue,
    ) -> Result<(), Cause> {
        let request = match request {
            Some(Ok(request)) => request,
            // The message cannot be decoded. Every other error is the end of the connection.
            Some(Err(status)) if matches!(status.code(), Code::Internal | Code::OutOfRange) => {
                let refusal = Refusal::invalid("request", "cannot be decoded as a message of this method");
                return Err(Cause::Refused(refusal));
            }
            Some(Err(_)) | None => return Err(Cause::Disconnected),
        };
        match Event::parse(request).map_err(Cause::Refused)? {
            Event::Input(bytes) if bytes.is_empty() => {}
            Event::Input(bytes) => {
                let bytes = Bytes::from(bytes);
                self.typed += bytes.len() as u64;
                self.record(Entry::Input(bytes.clone())).await?;
                queue.input(bytes);
            }
            Event::Resize(size) => {
                self.record(Entry::Resize(recorded(size))).await?;
                queue.resize(size);
            }
            Event::Signal(signal) => {
                self.record(Entry::Signal(signal.number())).await?;
                queue.signal(signal);
            }
        }
        Ok(())
    }

    async fn record(&mut self, entry: Entry) -> Result<(), Cause> {
        let recorded = self.recorder.add(entry).await;
        recorded.map_err(|error| {
            if let RecordingError::Io(_) = &error {
                tracing::error!(error = %chain(&error), "a session ends because it cannot be recorded");
            }
            Cause::RecordingFull
        })
    }
}

fn output_message(bytes: &Bytes) -> v1::OpenTerminalResponse {
    v1::OpenTerminalResponse { event: Some(Shown::Output(bytes.to_vec())) }
}
