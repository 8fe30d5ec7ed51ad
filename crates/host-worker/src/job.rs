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
    /// Returns the answer to a call that has not begun, or that changes each file at once.
    pub(crate) fn outcome(self) -> Outcome {
        outcome_to_wire(Err(match self {
            Self::TimedOut => ToolFailure::new(
                Reason::TimedOut,
                "the operation timed out and was ended; each file has either its old or its new content",
            ),
            Self::Cancelled => ToolFailure::new(Reason::Cancelled, "the operation was cancelled and ended"),
        }))
    }

    /// Returns the answer to a pull or a push that was at work.
    fn outcome_of(self, exchange: Exchange) -> Outcome {
        let (reason, how) = match self {
            Self::TimedOut => (Reason::TimedOut, "timed out and was ended"),
            Self::Cancelled => (Reason::Cancelled, "was cancelled and ended"),
        };
        outcome_to_wire(Err(ToolFailure::new(reason, format!("the operation {how}; {}", exchange.advice()))))
    }
}

/// An operation that a kill can leave with some of its effects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Exchange {
    Pull,
    Push,
}

impl Exchange {
    /// Returns the exchange of an operation that may take effect.
    fn of(start: &Start) -> Option<Self> {
        match git_command(start).filter(|_| !start.preview)? {
            git_request::Command::Pull(_) => Some(Self::Pull),
            git_request::Command::Push(_) => Some(Self::Push),
            _ => None,
        }
    }

    /// Returns the effects that are possible, and what to check.
    fn advice(self) -> &'static str {
        match self {
            Self::Pull => {
                "the pull may have taken effect in part: files can be new or incomplete although the branch has \
                 not moved; check with git.status and git.log before retrying"
            }
            Self::Push => {
                "the push may have taken effect, also for some of its references alone; check the references at \
                 the server before retrying"
            }
        }
    }
}

/// Returns true if the operation writes the index or the branch of the repository. Only one such operation may be at work.
///
/// A fetch and a push are not among them: they take long, and each reference that they write is locked by libgit2.
pub(crate) fn writes_repository(start: &Start) -> bool {
    use git_request::Command;
    !start.preview
        && matches!(git_command(start), Some(Command::Add(_) | Command::Commit(_) | Command::Pull(_)))
}

/// Returns true if the operation writes files of the work tree that its message does not name.
pub(crate) fn writes_work_tree(start: &Start) -> bool {
    !start.preview && matches!(git_command(start), Some(git_request::Command::Pull(_)))
}

fn git_command(start: &Start) -> Option<&git_request::Command> {
    match start.operation.as_ref()?.kind.as_ref()? {
        operation::Kind::Git(git) => git.command.as_ref(),
        _ => None,
    }
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
    /// The pull or push, if it is one that may take effect.
    exchange: Option<Exchange>,
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
        let exchange = Exchange::of(&start);
        let job = match ready.and_then(|ready| ready.order(number, &start, deadline)) {
            Some(Ordered { process, orders, result }) => {
                Self::of(number, deadline, process, result).listening(start.awaits_go.then_some(orders))
            }
            None => Self::begin(number, Work::Call(Box::new(start), way_out), deadline, terms)?,
        };
        Ok(Self { exchange, ..job })
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
        let (pipe, result) = (Some(pipe), Vec::new());
        Self { number, deadline, process, pipe, result, stopped: None, exchange: None, orders: None }
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
        let signal = status.signal;
        let is_late = signal == Some(Signal::ALARM.as_raw()) || signal == Some(Signal::XCPU.as_raw());
        // Before `Go` it has had no effect.
        let exchange = self.exchange.filter(|_| !self.awaits_go());
        if let Some(stop) = self.stopped.or(is_late.then_some(Stop::TimedOut)) {
            return exchange.map_or_else(|| stop.outcome(), |exchange| stop.outcome_of(exchange));
        }
        let how = signal.map_or_else(|| "an error".to_owned(), |signal| format!("signal {signal}"));
        let advice = exchange.map_or_else(String::new, |exchange| format!("; {}", exchange.advice()));
        outcome_to_wire(Err(ToolFailure::new(
            Reason::Internal,
            format!(
                "the process of this operation ended with {how}, perhaps because memory ran out; no other \
                 call is affected{advice}"
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

#[cfg(test)]
mod tests {
    use wire::v1::{GitFetch, GitPull, GitPush, GitRequest, Operation};
    use wire::worker::v1::outcome;

    use super::*;

    fn job(command: git_request::Command, preview: bool) -> Job {
        let operation = Operation { kind: Some(operation::Kind::Git(GitRequest { command: Some(command) })) };
        let start = Start { operation: Some(operation), preview, ..Start::default() };
        let process = pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).unwrap();
        let (pipe, _) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        Job { exchange: Exchange::of(&start), ..Job::of(1, Instant::now(), process, pipe) }
    }

    /// Returns the messages for a cancelled job, for one that is over its time, and for one that crashed.
    fn messages(mut job: Job) -> [String; 3] {
        [(Some(Stop::Cancelled), Signal::KILL), (None, Signal::ALARM), (None, Signal::SEGV)].map(
            |(stopped, signal)| {
                job.stopped = stopped;
                let status = Exit { code: None, signal: Some(signal.as_raw()), cpu_us: 0, peak_memory: 0 };
                match job.failure(&status).kind {
                    Some(outcome::Kind::Failure(failure)) => failure.message,
                    other => panic!("{other:?}"),
                }
            },
        )
    }

    #[test]
    fn a_killed_pull_or_push_may_have_taken_effect_in_part() {
        use git_request::Command;
        let pull = || Command::Pull(GitPull::default());
        let push = || Command::Push(GitPush::default());
        for (command, words) in [(pull(), "the pull may have taken effect"), (push(), "at the server")] {
            for message in messages(job(command, false)) {
                assert!(message.contains(words) && !message.contains("each file has"), "{message}");
            }
        }
        let others = [(pull(), true), (push(), true), (Command::Fetch(GitFetch::default()), false)];
        for (command, preview) in others {
            for message in messages(job(command, preview)) {
                assert!(!message.contains("may have taken effect"), "{message}");
            }
        }
        let (_, orders) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        for message in messages(job(pull(), false).listening(Some(orders))) {
            assert!(!message.contains("may have taken effect"), "{message}");
        }
    }
}
