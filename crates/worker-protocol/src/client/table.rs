//! The calls in flight, and the frames that a worker may send about each: the trust boundary of the stream, without any I/O.
//!
//! ```text
//! begun ─► Spawned ─(released)─► Output* ─► Ended ─(cleared)─► Output* ─► Outcome      a placed command
//!                                       └──────────────────────────────► Outcome      one that ended by itself
//! prepared ─► Output* ─► Ended ─(cleared)─► Output* ─► Outcome         one whose process was there, or as above
//! begun ─► Output* ─► Outcome                                                          one that is not placed
//! begun ─(allowed)─► Outcome                                            an operation that takes effect after `Go`
//! begun ─► Outcome                                                                     everything else
//! ```
//!
//! If a placed command's Outcome comes without Ended, the command is over by itself and all of its output was sent. The driver then ends
//! the processes that it left, and the worker does not wait for that.
//!
//! A failure may come in place of any later frame, until Ended. Output may come as far as there is credit for it. For a command with a
//! terminal, Taken may come wherever Output may, as far as input was sent and not yet taken. Any other frame is a [`Violation`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use operations::{Bound, Bounds, Delivery, KillEvidence, ToolFailure, answers};
use prost::Message;
use tokio::sync::mpsc;
use wire::worker::v1::{self, FromWorker, from_worker::Body};

use crate::client::backlog::Backlog;
use crate::client::bound::bound_from_wire;
use crate::client::command::Command;
use crate::client::download::Download;
use crate::client::line::Line;
use crate::client::{CallSpec, Finished, Usage, Violation};
use crate::convert::{Reply, outcome_from_wire};

/// Name in the table of a request for a waiting process, which is no operation.
const PREPARE: &str = "prepare";
/// Capacity for events. Each comes at most once for a call, so that sending never waits.
const EVENTS: usize = 3;

/// Events that a call's driver has to handle.
#[derive(Debug)]
pub(super) enum Event {
    Spawned(u32),
    /// The processes of the command have to be ended.
    Ended {
        forced: bool,
        /// Process id of the reader of its pipes for background processes, or 0.
        drain: u32,
    },
    Finished(Box<Finished<Reply>>),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Accepted {
    /// A frame about a call, which was handled.
    Call,
    /// The answer to a ping.
    Pong,
    /// The answer to the variables of the run.
    Variables,
}

/// A call that is about to be sent.
pub(super) struct Beginning<'a> {
    pub(super) spec: &'a CallSpec<'a>,
    /// True if its command will be placed.
    pub(super) placed: bool,
    /// True if a process that was placed already becomes its command.
    pub(super) prepared: bool,
    /// True if it takes effect only after a Go.
    pub(super) awaits_go: bool,
    /// Bytes of its Start.
    pub(super) bytes_in: u64,
    pub(super) backlog: &'a Arc<Backlog>,
    /// Line to its terminal, if it has one.
    pub(super) line: Option<&'a Arc<Line>>,
}

/// The calls in flight.
#[derive(Debug, Default)]
pub(super) struct Table {
    calls: HashMap<u64, Entry>,
    pings: u32,
    /// True while the answer to the variables of the run may come.
    provides: bool,
}

#[derive(Debug)]
struct Entry {
    operation: &'static str,
    /// Only for commands.
    command: Option<Command>,
    /// Only for downloads.
    download: Option<Download>,
    events: mpsc::Sender<Event>,
    bytes_in: u64,
    bytes_out: u64,
    abandoned: bool,
    /// True if it only computes what a call would do.
    preview: bool,
    /// True while it must not take effect.
    awaits_go: bool,
    began: Instant,
}

impl Table {
    pub(super) fn begin(&mut self, id: u64, call: &Beginning<'_>) -> mpsc::Receiver<Event> {
        let Beginning { spec, placed, prepared, awaits_go, bytes_in, backlog, line } = *call;
        let (events, receiver) = mpsc::channel(EVENTS);
        let delivery = spec.operation.delivery();
        // A preview runs no command.
        let command = (delivery == Delivery::Command && !spec.preview)
            .then(|| Command::new(spec.bounds, placed, Arc::clone(backlog), line.map(Arc::clone)))
            .map(|command| if prepared { command.prepared() } else { command });
        let operation = spec.operation.answer_kind(spec.preview);
        let download = spec.operation.transfer().filter(|_| delivery == Delivery::Stream);
        let download = download.map(|kind| Download::new(kind, spec.bounds, Arc::clone(backlog)));
        let entry = Entry::begun(operation, command, events, bytes_in);
        self.calls.insert(id, Entry { preview: spec.preview, awaits_go, download, ..entry });
        receiver
    }

    /// Adds a request for a waiting process. The answer is one Spawned or one failure.
    pub(super) fn prepare(&mut self, id: u64) -> mpsc::Receiver<Event> {
        let (events, receiver) = mpsc::channel(EVENTS);
        let bounds = Bounds { max_spool_bytes: 0, max_output_bytes: 0, ..Bounds::default() };
        let command = Some(Command::new(&bounds, true, Arc::default(), None));
        self.calls.insert(id, Entry::begun(PREPARE, command, events, 0));
        receiver
    }

    /// Permits the call to take effect. The caller informs the worker next.
    pub(super) fn allow(&mut self, id: u64) {
        if let Some(entry) = self.calls.get_mut(&id) {
            entry.awaits_go = false;
        }
    }

    /// Records that the command was placed and is about to run.
    pub(super) fn release(&mut self, id: u64) {
        if let Some(command) = self.command(id) {
            command.release();
        }
    }

    /// Records that its processes were ended. The caller informs the worker next.
    pub(super) fn clear(&mut self, id: u64, evidence: KillEvidence) {
        if let Some(command) = self.command(id) {
            command.clear(evidence);
        }
    }

    /// Grants credit for output that was taken. Returns false if the call is over.
    pub(super) fn grant(&mut self, id: u64, bytes: u64) -> bool {
        let Some(entry) = self.calls.get_mut(&id) else { return false };
        match (&mut entry.command, &mut entry.download) {
            (Some(command), _) => command.grant(bytes),
            (None, Some(download)) => download.grant(bytes),
            (None, None) => return false,
        }
        true
    }

    /// Records input that is about to be sent to its terminal. Returns false if the call is over.
    pub(super) fn typed(&mut self, id: u64, bytes: usize) -> bool {
        self.command(id).map(|command| command.typed(bytes)).is_some()
    }

    /// Returns true if the call is in flight.
    pub(super) fn has(&self, id: u64) -> bool {
        self.calls.contains_key(&id)
    }

    fn command(&mut self, id: u64) -> Option<&mut Command> {
        self.calls.get_mut(&id)?.command.as_mut()
    }

    /// Marks a call as abandoned: its driver has left, but its frames may still come. Returns the number of abandoned calls.
    pub(super) fn abandon(&mut self, id: u64) -> usize {
        if let Some(entry) = self.calls.get_mut(&id) {
            entry.abandoned = true;
        }
        self.calls.values().filter(|entry| entry.abandoned).count()
    }

    /// Records that a ping is about to be sent.
    pub(super) fn ping(&mut self) {
        self.pings += 1;
    }

    /// Records that the variables of the run are about to be sent.
    pub(super) fn provide(&mut self) {
        self.provides = true;
    }

    /// Forgets all calls. Their drivers notice that the stream is gone.
    pub(super) fn clear_all(&mut self) {
        self.calls.clear();
    }

    /// Handles a frame, if it is permitted now.
    pub(super) fn accept(&mut self, frame: FromWorker) -> Result<Accepted, Violation> {
        let bytes = frame.encoded_len() as u64;
        let body = match frame.body.ok_or(Violation::Empty)? {
            Body::Hello(_) => return Err(Violation::Hello),
            Body::Pong(_) if frame.id == 0 => {
                self.pings = self.pings.checked_sub(1).ok_or(Violation::Pong)?;
                return Ok(Accepted::Pong);
            }
            Body::Pong(_) => return Err(Violation::Pong),
            Body::VariablesTaken(_) if frame.id == 0 && std::mem::take(&mut self.provides) => {
                return Ok(Accepted::Variables);
            }
            Body::VariablesTaken(_) => return Err(Violation::Variables),
            body => body,
        };
        let entry = self.calls.get_mut(&frame.id).ok_or(Violation::UnknownCall)?;
        entry.bytes_out += bytes;
        let command = entry.command.as_mut();
        match body {
            Body::Spawned(spawned) => {
                command.ok_or(Violation::Spawned)?.spawned(spawned.pid)?;
                entry.tell(Event::Spawned(spawned.pid));
                if entry.operation == PREPARE {
                    self.calls.remove(&frame.id);
                }
            }
            Body::Ended(ended) => {
                command.ok_or(Violation::Ended)?.ended()?;
                entry.tell(Event::Ended { forced: ended.forced, drain: ended.drain_pid });
            }
            Body::Output(output) => match (command, &mut entry.download) {
                (Some(command), _) => command.output(output)?,
                (None, Some(download)) => download.output(output)?,
                (None, None) => return Err(Violation::Output),
            },
            Body::Taken(taken) => command.ok_or(Violation::Taken)?.taken(taken.bytes)?,
            Body::Outcome(mut outcome) => {
                let usage = outcome.usage.take();
                let bound = outcome.bound.take().filter(|_| entry.preview);
                let bound =
                    bound.map_or(Some(Bound::default()), bound_from_wire).ok_or(Violation::Outcome)?;
                let outcome = outcome_from_wire(outcome).map_err(|_| Violation::Outcome)?;
                if !entry.may_end(&outcome) {
                    return Err(Violation::Outcome);
                }
                if let Some(entry) = self.calls.remove(&frame.id) {
                    entry.finish(outcome, bound, usage);
                }
            }
            Body::Hello(_) | Body::Pong(_) | Body::VariablesTaken(_) => {}
        }
        Ok(Accepted::Call)
    }
}

impl Entry {
    fn begun(
        operation: &'static str,
        command: Option<Command>,
        events: mpsc::Sender<Event>,
        bytes_in: u64,
    ) -> Self {
        let began = Instant::now();
        Self {
            operation,
            command,
            download: None,
            events,
            bytes_in,
            bytes_out: 0,
            abandoned: false,
            preview: false,
            awaits_go: false,
            began,
        }
    }

    /// Returns true if the call may end with this outcome now.
    fn may_end(&self, outcome: &Result<Reply, ToolFailure>) -> bool {
        match (outcome, &self.command) {
            (Err(_), None) => true,
            (Err(_), Some(command)) => command.may_fail(),
            (Ok(_), _) if self.awaits_go => false,
            (Ok(Reply::Result(result)), None) => {
                answers(result, self.operation)
                    && self.download.as_ref().is_none_or(|download| download.may_end(result))
            }
            (Ok(Reply::Command(report)), Some(command)) => command.may_end(report),
            (Ok(Reply::Result(_)), Some(_)) | (Ok(Reply::Command(_)), None) => false,
        }
    }

    fn finish(mut self, mut outcome: Result<Reply, ToolFailure>, bound: Bound, usage: Option<v1::Usage>) {
        let took = self.began.elapsed();
        let usage = usage.unwrap_or_default();
        let usage = Usage { cpu_time_us: usage.cpu_time_us, peak_memory_bytes: usage.peak_memory_bytes };
        let mut usage = usage.bounded(took);
        if let Ok(Reply::Command(report)) = &mut outcome
            && let Some(command) = self.command.take()
        {
            usage = command.complete(report, took);
        }
        let finished = Finished { outcome, bound, usage, bytes_in: self.bytes_in, bytes_out: self.bytes_out };
        self.tell(Event::Finished(Box::new(finished)));
    }

    /// Sends an event, unless the driver has left.
    fn tell(&self, event: Event) {
        let _ = self.events.try_send(event);
    }
}

#[cfg(test)]
mod property;
