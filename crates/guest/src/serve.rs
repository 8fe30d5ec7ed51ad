//! The guest of a run: it reads frames and executes calls, until the daemon closes the stream.
//!
//! One thread does everything except file access. A malformed frame gets no answer: both ends are of one release, so it means that the
//! stream is not the daemon's. The guest then ends, with its commands.

use std::io;
use std::sync::{Arc, OnceLock};

use operations::{Bounds, CommandLimits, Operation, Reason, ToolFailure};
use rustix::io::Errno;
use rustix::process::{Pid, set_child_subreaper};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Mutex, Semaphore};
use wire::worker::v1::{Outcome, Start, ToWorker, to_worker::Body};
use worker_protocol::convert::{bounds_from_wire, outcome_to_wire};
use worker_protocol::frame::{FrameBuffer, encode};

use crate::args::Serve;
use crate::call::{Call, Calls, NotTaken, Signal, deadline};
use crate::channel::Offer;
use crate::children::{Children, Preforks, own_pid};
use crate::credit::Credit;
use crate::execute::execute;
use crate::fault::Fault;
use crate::files;
use crate::hello;
use crate::lane::Lane;
use crate::outbox::{Outbox, queues};
use crate::relay;
use crate::streams::{self, Input, Output};
use crate::terminal_input::TerminalInput;
use crate::threads::Threads;

/// Most downloads at the same time. Each uses one of the threads for files.
const TRANSFERS: usize = 4;

/// Serves until its streams are closed, then ends every command.
pub(crate) fn run(serve: Serve) -> Result<(), Fault> {
    crate::sys::ignore_signals();
    let children = Arc::new(Children::new(parent_of_orphans()?)?);
    crate::sys::one_heap();
    let threads = Threads::start()?;
    // An earlier guest may have been killed while it took an upload.
    file_ops::sweep_staged(&Lane::jail(serve.mounts.iter(), &Bounds::default()));
    let lane = Arc::new(Lane {
        mounts: serve.mounts,
        calls: Calls::default(),
        environment: OnceLock::new(),
        children: Arc::clone(&children),
        preforks: Preforks::default(),
        threads,
        transfers: Semaphore::new(TRANSFERS),
        outside: Mutex::new(()),
    });
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(attend(lane, serve.relayed));
    runtime.shutdown_background();
    children.end_all();
    ended
}

/// Returns the parent of a command's orphans: the guest itself, if it can be a subreaper.
///
/// gVisor has no subreapers. There the parent is PID 1, which has no other children.
fn parent_of_orphans() -> io::Result<i32> {
    match set_child_subreaper(Some(Pid::INIT)) {
        Ok(()) => Ok(own_pid()),
        Err(Errno::INVAL) => Ok(Pid::INIT.as_raw_nonzero().get()),
        Err(error) => Err(error.into()),
    }
}

async fn attend(lane: Arc<Lane>, relayed: bool) -> Result<(), Fault> {
    let (input, mut output) = if relayed { streams::through(relay::join()?)? } else { streams::take()? };
    let mut frames = Frames::new(input);
    let offer = Offer::make();
    if !greet(&lane, &mut frames, &mut output, offer.as_ref().map_or(0, Offer::number)).await? {
        return Ok(());
    }
    let Some(mut first) = frames.next().await? else { return Ok(()) };
    let mut lifeline = None;
    if matches!(first.body, Some(Body::Switch(_))) {
        let channel = offer.ok_or(Fault::Unexpected("there is no direct channel"))?.taken()?;
        let (input, direct) = channel.into_split();
        let before = std::mem::replace(&mut frames, Frames::new(Box::new(input)));
        lifeline = Some((before.input, std::mem::replace(&mut output, Box::new(direct))));
        if !greet(&lane, &mut frames, &mut output, 0).await? {
            return Ok(());
        }
        let Some(next) = frames.next().await? else { return Ok(()) };
        first = next;
    } else {
        drop(offer);
    }
    let (outbox, queues) = queues();
    let writer = tokio::spawn(queues.write(output));
    let reaper = tokio::spawn(reap(Arc::clone(&lane.children)));
    let ended = tokio::select! {
        ended = dispatch(first, &mut frames, &lane, &outbox) => ended,
        written = writer => written.unwrap_or(Ok(())),
        ended = end_of(&mut lifeline) => ended,
    };
    reaper.abort();
    ended
}

/// Answers the daemon's hello. Returns false if the input ended without one. Both hellos name the same variables, or none of them does.
async fn greet(lane: &Lane, frames: &mut Frames, output: &mut Output, channel: u32) -> Result<bool, Fault> {
    let Some(first) = frames.next().await? else { return Ok(false) };
    let (hello, environment) = hello::answer(first, channel)?;
    if let Some(environment) = environment {
        let _ = lane.environment.set(environment);
    }
    output.write_all(&encode(&hello)?).await?;
    Ok(true)
}

/// Waits for the end of the stream that the direct channel replaced: the daemon is gone, or wants the guest to end.
async fn end_of(lifeline: &mut Option<(Input, Output)>) -> Result<(), Fault> {
    match lifeline {
        None => std::future::pending().await,
        Some((input, _)) => match input.read(&mut [0; 1]).await? {
            0 => Ok(()),
            _ => Err(Fault::Unexpected("a frame on the stream that was left")),
        },
    }
}

/// Reaps children whenever some have ended.
async fn reap(children: Arc<Children>) -> io::Result<()> {
    let mut signals = signal(SignalKind::child())?;
    loop {
        children.reap();
        signals.recv().await;
    }
}

async fn dispatch(
    first: ToWorker,
    frames: &mut Frames,
    lane: &Arc<Lane>,
    outbox: &Outbox,
) -> Result<(), Fault> {
    let mut next = Some(first);
    while let Some(ToWorker { id, body }) = next {
        match body {
            // A guest that waits for its run takes no call.
            Some(Body::Start(start)) if id != 0 && lane.environment.get().is_some() => {
                begin(id, start, lane, outbox).await?;
            }
            Some(Body::Go(go)) => lane.calls.signal(id, Signal::Go(go.evidence)),
            Some(Body::Prepare(_)) if id != 0 => prepare(id, lane, outbox).await,
            Some(Body::Cancel(_)) => {
                lane.preforks.dismiss(id);
                lane.calls.signal(id, Signal::Cancel);
            }
            Some(Body::Credit(credit)) => lane.calls.grant(id, credit.bytes),
            Some(Body::Input(input))
                if lane.calls.at_terminal(id, |terminal| terminal.typed(&input.data)) => {}
            Some(Body::Resize(size)) if lane.calls.at_terminal(id, |terminal| terminal.resize(size)) => {}
            Some(Body::Signal(signal))
                if lane.calls.at_terminal(id, |terminal| terminal.signal(signal.number)) => {}
            Some(Body::Variables(variables)) if id == 0 => {
                let environment = hello::variables(variables)?;
                if lane.environment.set(environment).is_err() {
                    return Err(Fault::Unexpected("variables of a run that has them"));
                }
                outbox.variables_taken().await;
            }
            Some(Body::Ping(_)) => {
                outbox.pong();
                frames.buffer.rest();
            }
            Some(_) | None => {
                return Err(Fault::Unexpected("a frame that cannot come here"));
            }
        }
        next = frames.next().await?;
    }
    Ok(())
}

/// Makes a process that waits to become a command. After the answer the guest sends no other frame about it.
async fn prepare(id: u64, lane: &Lane, outbox: &Outbox) {
    match lane.preforks.make(id, &lane.children) {
        Ok(pid) => outbox.spawned(id, pid).await,
        Err(error) => {
            let failure = ToolFailure::new(Reason::Overloaded, format!("no process could be made: {error}"));
            outbox.outcome(id, outcome_to_wire(Err(failure))).await;
        }
    }
}

async fn begin(id: u64, start: Start, lane: &Arc<Lane>, outbox: &Outbox) -> Result<(), Fault> {
    let operation = Operation::parse_within(start.operation.unwrap_or_default(), CommandLimits::WIDEST);
    let bounds = bounds_from_wire(start.bounds);
    if let Ok(Operation::Read(read)) = &operation
        && read.transfer.is_none()
        && !lane.calls.has(id)
        && let Some((outcome, usage)) = files::at_once(lane, read, &bounds)
    {
        outbox.outcome(id, Outcome { usage: Some(usage), ..outcome_to_wire(outcome) }).await;
        lane.threads.used();
        return Ok(());
    }
    let credit = Arc::new(Credit::new(start.output_window));
    let input = start.terminal.map(TerminalInput::open).transpose()?.map(Arc::new);
    let signals = match lane.calls.begin(id, &credit, input.as_ref()) {
        Ok(signals) => signals,
        Err(NotTaken::Duplicate) => return Err(Fault::Unexpected("two calls of one id")),
        Err(NotTaken::Full) => {
            lane.preforks.dismiss(start.prepared);
            let failure =
                ToolFailure::new(Reason::Overloaded, "too many calls at once in this run; try again");
            outbox.outcome(id, outcome_to_wire(Err(failure))).await;
            return Ok(());
        }
    };
    let call = Call {
        id,
        deadline: deadline(start.deadline_ms),
        placed: start.placed,
        prepared: start.prepared,
        preview: start.preview,
        bounds,
        credit,
        input,
        signals,
        is_cancelled: false,
        outbox: outbox.clone(),
    };
    let lane = Arc::clone(lane);
    tokio::spawn(async move {
        let operation = operation.map_err(|error| ToolFailure::new(error.reason, error.to_string()));
        execute(call, operation, &lane).await;
    });
    Ok(())
}

struct Frames {
    input: Input,
    buffer: FrameBuffer,
}

impl Frames {
    fn new(input: Input) -> Self {
        Self { input, buffer: FrameBuffer::new() }
    }

    /// Returns the next frame, or `None` at the end of the input.
    async fn next(&mut self) -> Result<Option<ToWorker>, Fault> {
        loop {
            if let Some(frame) = self.buffer.pop()? {
                return Ok(Some(frame));
            }
            if self.input.read_buf(self.buffer.read_buffer()).await? == 0 {
                return if self.buffer.is_empty() { Ok(None) } else { Err(Fault::Unexpected("a cut frame")) };
            }
        }
    }
}
