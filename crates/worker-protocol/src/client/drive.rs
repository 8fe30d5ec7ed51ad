//! Drives one call from its Start to its end, even if its caller leaves.

use std::sync::Arc;
use std::time::Duration;

use operations::{Delivery, KillEvidence};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;
use wire::worker::v1::{Cancel, Go, Start, Terminal, ToWorker, to_worker::Body};

use crate::client::backlog::Backlog;
use crate::client::feed::Feeder;
use crate::client::line::Line;
use crate::client::shared::Shared;
use crate::client::table::{Beginning, Event};
use crate::client::window::WINDOW;
use crate::client::{self, CallSpec, CloseReason, Finished, LaneError, OutputSink, Placement, Prepared};
use crate::convert::{Reply, bounds_to_wire};
use crate::frame::encode;

/// Number of calls that a worker may leave without an outcome before the stream is closed.
const MAX_ABANDONED: usize = 16;
/// Longest deadline. A later one has no practical effect, and the clock could not represent it.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// A call that is about to be sent.
pub(super) struct Driver {
    shared: Arc<Shared>,
    id: u64,
    start: Vec<u8>,
    events: mpsc::Receiver<Event>,
    placement: Option<Placed>,
    /// Permission to take effect, which is still awaited. `None` if it was given or is not needed.
    go: Option<client::Go>,
    cancel: CancellationToken,
    /// Time after which its outcome is no longer awaited.
    until: Instant,
    /// Destination of the output of a command or of a download.
    output: Option<Output>,
    /// Line to its terminal, if it has one.
    line: Option<Arc<Line>>,
    /// Freed when the call is over.
    _slot: OwnedSemaphorePermit,
}

pub(super) struct Request<'a> {
    pub(super) spec: CallSpec<'a>,
    /// Terminal of its command, and the line to it.
    pub(super) terminal: Option<(Terminal, &'a Arc<Line>)>,
    pub(super) placement: Option<Arc<dyn Placement>>,
    /// Process that waits for the command, with its own placement.
    pub(super) prepared: Option<Prepared>,
    /// Future that permits the call to take effect.
    pub(super) go: Option<client::Go>,
    /// Number of the handle over which the worker asks for streams to servers; 0 if it has none.
    pub(super) way_out: u64,
    pub(super) cancel: CancellationToken,
    pub(super) slot: OwnedSemaphorePermit,
}

struct Output {
    backlog: Arc<Backlog>,
    sink: Option<Arc<dyn OutputSink>>,
}

/// A placement, and whether its `finish` has still to be called.
struct Placed {
    placement: Arc<dyn Placement>,
    unfinished: bool,
}

impl Driver {
    /// Adds the call to the table.
    pub(super) fn new(shared: &Arc<Shared>, request: Request<'_>) -> Result<Self, LaneError> {
        let Request { spec, terminal, placement, prepared, go, way_out, cancel, slot } = request;
        let is_command = spec.operation.delivery() == Delivery::Command;
        let has_output = is_command || spec.operation.is_download();
        let placement = placement.filter(|_| is_command);
        let prepared = prepared.filter(|_| is_command);
        let placed = placement.is_some() || prepared.is_some();
        let (terminal, line) = terminal.unzip();
        let id = shared.next_id();
        let start = Start {
            operation: Some(spec.operation.message()),
            deadline_ms: u64::try_from(spec.deadline.as_millis()).unwrap_or(u64::MAX),
            bounds: Some(bounds_to_wire(spec.bounds)),
            placed,
            preview: spec.preview,
            output_window: if has_output { WINDOW } else { 0 },
            terminal,
            prepared: prepared.as_ref().map_or(0, Prepared::id),
            awaits_go: go.is_some(),
            paths: spec.operation.changed_paths().into_iter().map(ToString::to_string).collect(),
            way_out,
        };
        let start =
            encode(&ToWorker { id, body: Some(Body::Start(start)) }).map_err(|_| LaneError::TooLarge)?;
        let backlog = Arc::new(Backlog::default());
        let beginning = Beginning {
            spec: &spec,
            placed,
            prepared: prepared.is_some(),
            awaits_go: go.is_some(),
            bytes_in: start.len() as u64,
            backlog: &backlog,
            line,
        };
        let events = shared.table(|table| table.begin(id, &beginning));
        // A prepared process has to be finished, whatever the call's result.
        let ready = prepared.map(|prepared| Placed { placement: prepared.used(), unfinished: true });
        let placement = ready.or_else(|| placement.map(|placement| Placed { placement, unfinished: false }));
        Ok(Self {
            shared: Arc::clone(shared),
            id,
            start,
            events,
            placement,
            go,
            cancel,
            until: Instant::now() + spec.deadline.min(LONGEST) + shared.options.grace,
            output: has_output.then(|| Output { backlog, sink: spec.output.map(Arc::clone) }),
            line: line.map(Arc::clone),
            _slot: slot,
        })
    }

    /// Returns the id by which the worker knows the call.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) async fn run(mut self) -> Result<Finished<Reply>, LaneError> {
        // The table may have been cleared before the call was added.
        if self.shared.stop.is_cancelled() {
            self.finish(true).await;
            return Err(self.shared.lost());
        }
        let feeder = self
            .output
            .take()
            .map(|Output { backlog, sink }| Feeder::start(Arc::clone(&self.shared), self.id, backlog, sink));
        let ended = self.drive().await;
        self.finish(true).await;
        if let Some(line) = &self.line {
            line.end();
        }
        if let Some(feeder) = feeder {
            feeder.finish(self.patience(ended.is_ok())).await;
        }
        ended
    }

    /// Returns the time until which the sink may take the rest of the output.
    ///
    /// A session's deadline is too late for that, because no client waits for it. A failed call must not wait for output that may be
    /// worthless.
    fn patience(&self, ended: bool) -> Instant {
        if ended && self.line.is_none() {
            return self.until;
        }
        self.until.min(Instant::now() + self.shared.options.grace)
    }

    async fn drive(&mut self) -> Result<Finished<Reply>, LaneError> {
        self.shared.send(std::mem::take(&mut self.start)).await?;
        if self.go.is_some() {
            // Lets the worker receive the Start before other work takes time.
            tokio::task::yield_now().await;
        }
        if let Some(line) = &self.line {
            line.begin();
        }
        // Reason for the cancellation, once there was one.
        let mut cancelled = None;
        loop {
            let event = tokio::select! {
                biased;
                event = self.events.recv() => event.ok_or_else(|| self.shared.lost())?,
                () = self.cancel.cancelled(), if cancelled.is_none() => {
                    self.cancel(&mut cancelled, LaneError::Cancelled).await?;
                    continue;
                }
                may = allowed(&mut self.go) => {
                    self.go = None;
                    if may && cancelled.is_none() {
                        self.shared.table(|table| table.allow(self.id));
                        self.shared.say(self.id, Body::Go(Go { evidence: None })).await?;
                    } else if cancelled.is_none() {
                        self.cancel(&mut cancelled, LaneError::Cancelled).await?;
                    }
                    continue;
                }
                () = sleep_until(self.until) => return Err(self.abandon(cancelled).await),
            };
            match event {
                Event::Spawned(pid) if cancelled.is_none() => {
                    if let Err(why) = self.place(pid).await {
                        self.cancel(&mut cancelled, LaneError::NotPlaced(why)).await?;
                    }
                }
                // It waits for a Go that will not come, and for the Cancel that is on its way.
                Event::Spawned(_) => {}
                Event::Ended { forced, drain } => {
                    // 1 is the container's own first process.
                    if let (Some(placed), 2..) = (&self.placement, drain) {
                        placed.placement.beside(drain);
                    }
                    let Some(evidence) = self.finish(forced).await else { continue };
                    self.shared.table(|table| table.clear(self.id, evidence));
                    let evidence = Some(evidence);
                    self.shared.say(self.id, Body::Go(Go { evidence })).await?;
                }
                Event::Finished(mut finished) => {
                    if let Some(error @ LaneError::NotPlaced(_)) = cancelled {
                        return Err(error);
                    }
                    if let Ok(Reply::Command(report)) = &mut finished.outcome
                        && let Some(evidence) = self.finish(false).await
                    {
                        report.kill = evidence;
                    }
                    return Ok(*finished);
                }
            }
        }
    }

    /// Moves the command to where it can be ended and lets it run. An error contains the reason.
    async fn place(&mut self, pid: u32) -> Result<(), String> {
        let Some(placed) = &mut self.placement else { return Err("no placement".to_owned()) };
        placed.unfinished = true;
        timeout_at(self.until, placed.placement.place(pid)).await.map_err(|_| "not in time".to_owned())??;
        self.shared.table(|table| table.release(self.id));
        // If the stream has closed meanwhile, the next event shows it.
        let _ = self.shared.say(self.id, Body::Go(Go { evidence: None })).await;
        Ok(())
    }

    /// Ends the rest of the command, unless that has been done.
    async fn finish(&mut self, forced: bool) -> Option<KillEvidence> {
        let placed = self.placement.as_mut().filter(|placed| placed.unfinished)?;
        let evidence = placed.placement.finish(forced).await;
        placed.unfinished = false;
        Some(evidence)
    }

    /// Asks the worker to end the call, and waits for its outcome for the grace period at most.
    async fn cancel(&mut self, cancelled: &mut Option<LaneError>, why: LaneError) -> Result<(), LaneError> {
        *cancelled = Some(why);
        self.until = self.until.min(Instant::now() + self.shared.options.grace);
        self.shared.say(self.id, Body::Cancel(Cancel {})).await
    }

    /// Gives the call up because no outcome came in time.
    async fn abandon(&mut self, cancelled: Option<LaneError>) -> LaneError {
        if self.shared.table(|table| table.abandon(self.id)) > MAX_ABANDONED {
            self.shared.close(CloseReason::Unresponsive);
        } else if cancelled.is_none() {
            let _ = self.shared.say(self.id, Body::Cancel(Cancel {})).await;
        }
        cancelled.unwrap_or(LaneError::TimedOut)
    }
}

/// Waits for the permission to take effect. Never returns if none is awaited.
async fn allowed(go: &mut Option<client::Go>) -> bool {
    match go {
        Some(go) => go.await,
        None => std::future::pending().await,
    }
}
