//! Watches the process of one operation from the host worker.
//!
//! ```text
//! begin ──► at work ─(go)─► result complete, exited 0 ──► its outcome
//!              │  └───► anything else ─────────────► INTERNAL              } its leftovers are recovered
//!              └─ stop (deadline, cancel) ─ SIGKILL ─ exited ─► TIMED_OUT, … } before the answer
//! ```
//!
//! The output of the process is hostile: the input that it parses may have taken it over. The output is capped and must decode.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use operations::{Reason, ToolFailure};
use prost::Message;
use rustix::io::{Errno, retry_on_intr};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use wire::v1::{git_request, operation};
use wire::worker::v1::{Outcome, Start};
use worker_protocol::convert::{MAX_OUTCOME, outcome_to_wire};

use crate::child::{Terms, Work};
use crate::ready::{Ordered, Ready};
use crate::sys::Exit;
use crate::{child, sys};
use confinement::sys::{Fork, fork};

/// The reason to end a job from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    TimedOut,
    /// At the daemon's request.
    Cancelled,
}

impl Stop {
    /// Returns the answer to the call.
    pub(crate) fn outcome(self) -> Outcome {
        outcome_to_wire(Err(match self {
            Self::TimedOut => ToolFailure::new(
                Reason::TimedOut,
                "the operation timed out and was ended; each file has either its old or its new content",
            ),
            Self::Cancelled => ToolFailure::new(Reason::Cancelled, "the operation was cancelled and ended"),
        }))
    }
}

/// Returns true if the operation writes the repository. Only one such operation may be at work.
pub(crate) fn writes_repository(start: &Start) -> bool {
    let kind = start.operation.as_ref().and_then(|operation| operation.kind.as_ref());
    let Some(operation::Kind::Git(git)) = kind else { return false };
    !start.preview
        && matches!(git.command, Some(git_request::Command::Add(_) | git_request::Command::Commit(_)))
}

/// Returns true if the operation changes files through notes and journals. If it dies, they have to be recovered.
pub(crate) fn leaves_traces(start: &Start) -> bool {
    let kind = start.operation.as_ref().and_then(|operation| operation.kind.as_ref());
    !start.preview && !matches!(kind, None | Some(operation::Kind::Git(_)))
}

/// A process at work.
#[derive(Debug)]
pub(crate) struct Job {
    /// Unique among the jobs of this host worker.
    number: u64,
    deadline: Instant,
    process: OwnedFd,
    /// `None` once it has ended.
    pipe: Option<OwnedFd>,
    result: Vec<u8>,
    stopped: Option<Stop>,
    /// Pipe for `Go`, while the operation waits for it.
    orders: Option<OwnedFd>,
}

impl Job {
    /// Gives the work to the process that waits, or forks another.
    pub(crate) fn begin_call(
        number: u64,
        (start, way_out): (Start, Option<OwnedFd>),
        deadline: Instant,
        terms: &Terms,
        ready: Option<Ready>,
    ) -> io::Result<Self> {
        match ready.and_then(|ready| ready.order(number, &start, deadline)) {
            Some(Ordered { process, orders, result }) => {
                Ok(Self::of(number, deadline, process, result).listening(start.awaits_go.then_some(orders)))
            }
            None => Self::begin(number, Work::Call(Box::new(start), way_out), deadline, terms),
        }
    }

    /// Forks. Does not return in the new process.
    pub(crate) fn begin(number: u64, work: Work, deadline: Instant, terms: &Terms) -> io::Result<Self> {
        let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
        let (pipe, result) = pipe_with(flags)?;
        let (theirs, orders) = work.awaits_go().then(|| pipe_with(flags)).transpose()?.unzip();
        match fork()? {
            Fork::Child => child::run((work, theirs), number, deadline, terms, result),
            Fork::Parent(pid) => {
                drop((result, theirs));
                // Not reaped yet, so the id cannot belong to another process.
                let process = pidfd_open(pid, PidfdFlags::empty())?;
                Ok(Self::of(number, deadline, process, pipe).listening(orders))
            }
        }
    }

    fn of(number: u64, deadline: Instant, process: OwnedFd, pipe: OwnedFd) -> Self {
        Self { number, deadline, process, pipe: Some(pipe), result: Vec::new(), stopped: None, orders: None }
    }

    fn listening(self, orders: Option<OwnedFd>) -> Self {
        Self { orders, ..self }
    }

    /// Lets it take effect, if it awaits that.
    pub(crate) fn go(&mut self) {
        if let Some(orders) = self.orders.take() {
            // Fails only when the process is over already.
            let _ = retry_on_intr(|| rustix::io::write(&orders, b"G"));
        }
    }

    /// Returns true if the operation still waits for `Go`.
    pub(crate) fn awaits_go(&self) -> bool {
        self.orders.is_some()
    }

    /// Returns the number that its leftovers have.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns its deadline; `None` once it has been stopped.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.stopped.is_none().then_some(self.deadline)
    }

    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        // The end of the process matters only after the end of the pipe.
        let fd = self.pipe.as_ref().map_or_else(|| self.process.as_fd(), AsFd::as_fd);
        std::iter::once(fd)
    }

    /// Kills the process. Its outcome follows when the kernel has ended it.
    pub(crate) fn stop(&mut self, why: Stop) {
        if self.stopped.is_none() {
            self.stopped = Some(why);
            // Fails only when the process is over already.
            let _ = pidfd_send_signal(&self.process, Signal::KILL);
        }
    }

    /// Reads the available output. Returns how the process ended, once it has.
    pub(crate) fn advance(&mut self) -> Option<Exit> {
        if let Some(pipe) = &self.pipe {
            match drain(pipe, &mut self.result) {
                Ok(Drained::More) => return None,
                Ok(Drained::End) => self.pipe = None,
                Err(_) => {
                    self.pipe = None;
                    self.result.clear();
                    let _ = pidfd_send_signal(&self.process, Signal::KILL);
                }
            }
        }
        sys::collect(self.process.as_fd()).ok()?
    }

    /// Returns the output of a process that ended by itself.
    pub(crate) fn said(&self, status: &Exit) -> Option<&[u8]> {
        (status.code == Some(0)).then_some(self.result.as_slice())
    }

    /// Returns the outcome that an operation's process gave before it ended by itself.
    pub(crate) fn outcome(&self, status: &Exit) -> Option<Outcome> {
        Outcome::decode(self.said(status)?).ok().filter(|outcome| outcome.kind.is_some())
    }

    /// Returns the answer for a process that gave none.
    pub(crate) fn failure(&self, status: &Exit) -> Outcome {
        if let Some(stop) = self.stopped {
            return stop.outcome();
        }
        let signal = status.signal;
        if signal == Some(Signal::ALARM.as_raw()) || signal == Some(Signal::XCPU.as_raw()) {
            return Stop::TimedOut.outcome();
        }
        let how = signal.map_or_else(|| "an error".to_owned(), |signal| format!("signal {signal}"));
        outcome_to_wire(Err(ToolFailure::new(
            Reason::Internal,
            format!(
                "the process of this operation ended with {how}, perhaps because memory ran out; no other \
                 call is affected"
            ),
        )))
    }
}

enum Drained {
    More,
    End,
}

fn drain(pipe: &OwnedFd, result: &mut Vec<u8>) -> io::Result<Drained> {
    let mut bytes = [0; 16 * 1024];
    loop {
        match rustix::io::read(pipe, &mut bytes) {
            Ok(0) => return Ok(Drained::End),
            Ok(read) if result.len() + read > MAX_OUTCOME => return Err(io::ErrorKind::FileTooLarge.into()),
            Ok(read) => result.extend_from_slice(&bytes[..read]),
            Err(Errno::AGAIN) => return Ok(Drained::More),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}
