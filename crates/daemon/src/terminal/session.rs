//! A session from its first byte to its last: the one task that reads both sides, and stops when either ends.
//!
//! ```text
//!  operator ──► checked ──► recorded ──► queue ──► terminal
//!  operator ◄── screen  ◄── recorded ◄── sink  ◄── terminal
//! ```
//!
//! Nothing here waits for one side alone: an operator who does not read holds the program back, a program that does not
//! read holds the operator's input back, and either way the session can be ended.

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
use super::slots::Limits;
use super::start::Event;

/// For an operator to read what is left when the session is over.
pub(super) const GOODBYE: Duration = Duration::from_secs(10);

/// What the operator's client gets.
pub(super) type Response = Result<v1::OpenTerminalResponse, Status>;

/// Why a session is cut off.
#[derive(Debug, Clone)]
pub(super) enum Cause {
    /// The operator is gone.
    Disconnected,
    /// The run is.
    RunEnded,
    /// Its time is over: which.
    TimedOut(&'static str),
    /// No more can be recorded.
    RecordingFull,
    /// The operator's client said what it must not say.
    Refused(Refusal),
}

/// What the session's task works with.
pub(super) struct Session<R> {
    /// What the operator's client says after the start.
    pub(super) requests: R,
    pub(super) screen: mpsc::Sender<Response>,
    pub(super) recorder: Recorder,
    /// The run's end.
    pub(super) run_ended: CancellationToken,
    /// Ends the terminal, and everything that was started on it.
    pub(super) cancel: CancellationToken,
    pub(super) limits: Arc<Limits>,
    /// Bytes so far.
    pub(super) typed: u64,
    pub(super) shown: u64,
}

/// How a session ended.
pub(super) struct End {
    /// `None`: by itself.
    pub(super) cause: Option<Cause>,
    /// What the lane says of the command.
    pub(super) finished: Result<Finished<Reply>, LaneError>,
    /// What the kernel counted, whatever the lane says.
    pub(super) metered: Metered,
}

/// What happens next.
enum Happening {
    Over(Box<Result<Finished<Reply>, LaneError>>),
    Cut(Cause),
    Output(Option<Bytes>),
    Said(Option<Result<v1::OpenTerminalRequest, Status>>),
    /// Room on the screen, or a hand that is free again.
    Progress,
}

/// Passes a terminal's output to its session's task, which takes a piece when the operator has taken the last.
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
        // A session that is being ended looks at no more output.
        Box::pin(async move { drop(self.0.send(data).await) })
    }
}

impl<R: Stream<Item = Result<v1::OpenTerminalRequest, Status>> + Unpin> Session<R> {
    /// Attends to both sides until the terminal is gone, and everything that was started on it: why it ended, where it
    /// was not by itself, and what the lane says.
    pub(super) async fn attend(
        &mut self,
        terminal: Terminal,
        mut output: mpsc::Receiver<Bytes>,
    ) -> (Option<Cause>, Result<Finished<Reply>, LaneError>) {
        let began = Instant::now();
        let mut active = began;
        let mut queue = InputQueue::new(terminal.keyboard());
        let mut finished = pin!(terminal.finished());
        // Recorded, and not on its way yet.
        let mut pending: Option<Bytes> = None;
        let mut more = true;
        let cause = loop {
            let happening = tokio::select! {
                finished = &mut finished => Happening::Over(Box::new(finished)),
                () = self.run_ended.cancelled() => Happening::Cut(Cause::RunEnded),
                () = self.screen.closed() => Happening::Cut(Cause::Disconnected),
                () = sleep_until(began + self.limits.max_length) => {
                    Happening::Cut(Cause::TimedOut("the session is as long as one may be"))
                }
                () = sleep_until(active + self.limits.idle_timeout) => {
                    Happening::Cut(Cause::TimedOut("nothing was typed and nothing shown for too long"))
                }
                place = self.screen.reserve(), if pending.is_some() => {
                    if let (Ok(place), Some(bytes)) = (place, pending.take()) {
                        place.send(Ok(output_message(&bytes)));
                    }
                    Happening::Progress
                }
                bytes = output.recv(), if more && pending.is_none() => Happening::Output(bytes),
                request = self.requests.next(), if queue.is_free() => Happening::Said(request),
                () = queue.work() => Happening::Progress,
            };
            // Outside of the select: an event that is being recorded is recorded to its end.
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
        // What comes now is neither recorded nor shown; it must not hold the end up.
        output.close();
        (Some(cause), finished.await)
    }

    /// The command is over: what it had written goes to an operator who still reads.
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
            // What cannot be decoded. All else is the connection's end.
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
                self.record(Entry::Resize(size)).await?;
                queue.resize(size);
            }
            Event::Signal(signal) => {
                self.record(Entry::Signal(signal)).await?;
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
