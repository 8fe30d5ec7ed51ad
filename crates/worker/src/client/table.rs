//! The calls in flight, and what a worker may say about each: the trust boundary of the stream, without any I/O.
//!
//! ```text
//! begun ─► Spawned ─(released)─► Output* ─► Ended ─(cleared)─► Output* ─► Outcome      a placed command
//! begun ─► Output* ─► Outcome                                                          one that is not placed
//! begun ─► Outcome                                                                     everything else
//! ```
//!
//! A failure may come instead of anything that has not come yet, until Ended. Whatever else comes is a [`Violation`].

use std::collections::HashMap;

use ops::{KillEvidence, OpResult, Operation, Outcome};
use prost::Message;
use tokio::sync::mpsc;
use wire::worker::v1::{self, FromWorker, from_worker::Body, output::Stream};

use crate::client::output::HeadTail;
use crate::client::{CallSpec, Finished, Usage, Violation};
use crate::convert::outcome_from_wire;

/// Most bytes in one Output frame.
const MAX_CHUNK: usize = 64 * 1024;
/// Each event comes at most once a call: sending never waits.
const EVENTS: usize = 3;

/// What a call's driver has to act upon.
#[derive(Debug)]
pub(super) enum Event {
    /// A command waits.
    Spawned(u32),
    /// Its processes are to be ended.
    Ended { forced: bool },
    /// It is over.
    Finished(Box<Finished>),
}

/// What a frame was.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Accepted {
    /// About a call, and passed on.
    Call,
    /// The answer to a ping.
    Pong,
}

/// The calls in flight.
#[derive(Debug, Default)]
pub(super) struct Table {
    calls: HashMap<u64, Entry>,
    pings: u32,
}

#[derive(Debug)]
struct Entry {
    operation: &'static str,
    /// `None` for everything but commands.
    command: Option<Command>,
    events: mpsc::Sender<Event>,
    bytes_in: u64,
    bytes_out: u64,
    abandoned: bool,
}

#[derive(Debug)]
struct Command {
    stage: Stage,
    stdout: HeadTail,
    stderr: HeadTail,
    limit: u64,
    /// What was found when it was ended, where we looked ourselves.
    evidence: Option<KillEvidence>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Placed; nothing heard yet.
    Begun,
    /// It waits.
    Spawned,
    /// It runs, as far as we know.
    Running,
    /// We are ending what it left.
    Ended,
    /// Nothing of it is left, or so we found.
    Cleared,
    /// It runs, and the worker ends it.
    Unplaced,
}

impl Table {
    /// Enters a call whose Start has `bytes_in` bytes.
    pub(super) fn begin(
        &mut self,
        id: u64,
        spec: &CallSpec<'_>,
        placed: bool,
        bytes_in: u64,
    ) -> mpsc::Receiver<Event> {
        let (events, receiver) = mpsc::channel(EVENTS);
        let command = spec.operation.command_timeout().is_some().then(|| Command {
            stage: if placed { Stage::Begun } else { Stage::Unplaced },
            stdout: HeadTail::new(spec.bounds.max_output_bytes),
            stderr: HeadTail::new(spec.bounds.max_output_bytes),
            limit: spec.bounds.max_spool_bytes,
            evidence: None,
        });
        let operation = match spec.operation {
            // The preview of a write is the difference that it would make.
            Operation::Write(_) if spec.preview => "edit",
            operation => operation.name(),
        };
        self.calls.insert(id, Entry { operation, command, events, bytes_in, bytes_out: 0, abandoned: false });
        receiver
    }

    /// The command has been placed and is about to be let run.
    pub(super) fn release(&mut self, id: u64) {
        self.step(id, Stage::Running, None);
    }

    /// Its processes have been ended, as the evidence says, and the worker is about to be told.
    pub(super) fn clear(&mut self, id: u64, evidence: KillEvidence) {
        self.step(id, Stage::Cleared, Some(evidence));
    }

    fn step(&mut self, id: u64, stage: Stage, evidence: Option<KillEvidence>) {
        if let Some(command) = self.calls.get_mut(&id).and_then(|entry| entry.command.as_mut()) {
            command.stage = stage;
            command.evidence = evidence;
        }
    }

    /// Nobody waits for the call any more, but its frames may still come. How many such calls there are.
    pub(super) fn abandon(&mut self, id: u64) -> usize {
        if let Some(entry) = self.calls.get_mut(&id) {
            entry.abandoned = true;
        }
        self.calls.values().filter(|entry| entry.abandoned).count()
    }

    /// A ping is about to be sent.
    pub(super) fn ping(&mut self) {
        self.pings += 1;
    }

    /// Forgets all calls: their drivers see that the stream is gone.
    pub(super) fn clear_all(&mut self) {
        self.calls.clear();
    }

    /// Takes a frame, if it may come now.
    pub(super) fn accept(&mut self, frame: FromWorker) -> Result<Accepted, Violation> {
        let bytes = frame.encoded_len() as u64;
        let body = match frame.body.ok_or(Violation::Empty)? {
            Body::Hello(_) => return Err(Violation::Hello),
            Body::Pong(_) if frame.id == 0 => {
                self.pings = self.pings.checked_sub(1).ok_or(Violation::Pong)?;
                return Ok(Accepted::Pong);
            }
            Body::Pong(_) => return Err(Violation::Pong),
            body => body,
        };
        let entry = self.calls.get_mut(&frame.id).ok_or(Violation::UnknownCall)?;
        entry.bytes_out += bytes;
        match body {
            Body::Spawned(spawned) => entry.spawned(spawned.pid)?,
            Body::Ended(ended) => entry.ended(ended.forced)?,
            Body::Output(output) => entry.output(&output)?,
            Body::Outcome(outcome) => {
                let outcome = outcome_from_wire(outcome).map_err(|_| Violation::Outcome)?;
                entry.may_end(&outcome)?;
                if let Some(entry) = self.calls.remove(&frame.id) {
                    entry.finish(outcome);
                }
            }
            Body::Taken(_) => return Err(Violation::Output),
            Body::Hello(_) | Body::Pong(_) => {}
        }
        Ok(Accepted::Call)
    }
}

impl Entry {
    fn spawned(&mut self, pid: u32) -> Result<(), Violation> {
        let command = self.command.as_mut().filter(|command| command.stage == Stage::Begun);
        let command = command.ok_or(Violation::Spawned)?;
        // 1 is the container's own first process.
        if pid < 2 || i32::try_from(pid).is_err() {
            return Err(Violation::Spawned);
        }
        command.stage = Stage::Spawned;
        self.tell(Event::Spawned(pid));
        Ok(())
    }

    fn ended(&mut self, forced: bool) -> Result<(), Violation> {
        let command = self.command.as_mut().filter(|command| command.stage == Stage::Running);
        command.ok_or(Violation::Ended)?.stage = Stage::Ended;
        self.tell(Event::Ended { forced });
        Ok(())
    }

    fn output(&mut self, output: &v1::Output) -> Result<(), Violation> {
        let command = self.command.as_mut().ok_or(Violation::Output)?;
        if matches!(command.stage, Stage::Begun | Stage::Spawned) {
            return Err(Violation::Output);
        }
        let room = command.limit - command.received();
        let stream = match output.stream() {
            Stream::Stdout => &mut command.stdout,
            Stream::Stderr => &mut command.stderr,
            Stream::Unspecified => return Err(Violation::Output),
        };
        let length = output.data.len();
        if length == 0 || length > MAX_CHUNK || length as u64 > room || output.offset != stream.total() {
            return Err(Violation::Output);
        }
        stream.push(&output.data);
        Ok(())
    }

    /// Whether the call may end like this now.
    fn may_end(&self, outcome: &Outcome) -> Result<(), Violation> {
        let permitted = match (outcome, &self.command) {
            (Err(_), None) => true,
            // Nothing of a command that ran may be hidden behind a failure.
            (Err(_), Some(command)) => {
                command.received() == 0 && !matches!(command.stage, Stage::Ended | Stage::Cleared)
            }
            (Ok(OpResult::Exec(result) | OpResult::Shell(result)), Some(command)) => {
                let ended = matches!(command.stage, Stage::Cleared | Stage::Unplaced);
                let said = (result.stdout_bytes, result.stderr_bytes);
                let had = (command.stdout.total(), command.stderr.total());
                // More than came may have been written only by a command that was ended for it.
                let counted = said == had
                    || (command.received() == command.limit && said.0 >= had.0 && said.1 >= had.1);
                ended
                    && counted
                    && result.stdout.is_empty()
                    && result.stderr.is_empty()
                    && outcome.as_ref().is_ok_and(|result| is_of(result, self.operation))
            }
            (Ok(result), None) => is_of(result, self.operation),
            (Ok(_), Some(_)) => false,
        };
        if permitted { Ok(()) } else { Err(Violation::Outcome) }
    }

    fn finish(mut self, mut outcome: Outcome) {
        let mut usage = Usage::default();
        if let Ok(result) = &mut outcome
            && let (Some(result), Some(command)) = (result.command_mut(), self.command.take())
        {
            usage = Usage { cpu_time_us: result.cpu_time_us, peak_memory_bytes: result.peak_memory_bytes };
            let stdout = command.stdout.into_text(result.stdout_bytes);
            let stderr = command.stderr.into_text(result.stderr_bytes);
            (result.stdout, result.stdout_omitted_bytes) = (stdout.text, stdout.omitted);
            (result.stderr, result.stderr_omitted_bytes) = (stderr.text, stderr.omitted);
            // What we found ourselves, not what the worker repeats.
            if let Some(evidence) = command.evidence {
                result.kill = evidence;
            }
        }
        let finished = Finished { outcome, usage, bytes_in: self.bytes_in, bytes_out: self.bytes_out };
        self.tell(Event::Finished(Box::new(finished)));
    }

    /// A driver that went away needs no news.
    fn tell(&self, event: Event) {
        let _ = self.events.try_send(event);
    }
}

impl Command {
    fn received(&self) -> u64 {
        self.stdout.total() + self.stderr.total()
    }
}

/// Whether this is the kind of result that an operation of that name has.
fn is_of(result: &OpResult, operation: &str) -> bool {
    match result {
        OpResult::Read(_) => operation == "read",
        OpResult::List(_) => operation == "list",
        OpResult::Glob(_) => operation == "glob",
        OpResult::Grep(_) => operation == "grep",
        OpResult::Exec(_) => operation == "exec",
        OpResult::Shell(_) => operation == "shell",
        OpResult::Write(_) => operation == "write",
        OpResult::Edit(_) => operation == "edit",
        OpResult::Git(_) => operation.starts_with("git."),
    }
}
