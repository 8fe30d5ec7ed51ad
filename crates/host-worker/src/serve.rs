//! Runs the host worker's loop: frames in, one process per operation, outcomes out. It never opens files in the workspace.
//!
//! Every queue is bounded: calls at work, calls that wait, bytes that the daemon has not read. The host worker stops reading from a
//! daemon that does not read.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use operations::{Reason, ToolFailure};
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::getpid;
use thiserror::Error;
use wire::worker::v1::{FromWorker, Hello, Outcome, Pong, Start, ToWorker, from_worker, to_worker};
use worker_protocol::PROTOCOL;
use worker_protocol::convert::outcome_to_wire;
use worker_protocol::frame::{FrameBuffer, FrameError, encode};

use crate::child::Terms;
use crate::job::{Job, Stop};
use crate::turns::Turn;
use crate::way_out::WaysOut;
use crate::worker_pool::WorkerPool;
use confinement::SetupError;

/// Most calls that wait for their turn.
const WAITING: usize = 64;
/// Bytes of unread answers beyond which the host worker reads no further requests.
const UNREAD: usize = 8 * 1024 * 1024;
/// Longest time that any operation may take.
const LONGEST: Duration = Duration::from_secs(600);
/// Longest time that the end may take. The run's next host worker, or the daemon, recovers the rest.
const LAST: Duration = Duration::from_secs(3);

/// The error of a broken stream with the daemon.
#[derive(Debug, Error)]
pub(crate) enum ServeError {
    #[error("the channel: {0}")]
    Channel(#[from] io::Error),
    #[error("the channel: {0}")]
    Frame(#[from] FrameError),
    #[error("the daemon broke the protocol: {0}")]
    Protocol(&'static str),
    #[error(transparent)]
    Setup(#[from] SetupError),
}

impl From<Errno> for ServeError {
    fn from(errno: Errno) -> Self {
        Self::Channel(errno.into())
    }
}

struct Call {
    id: u64,
    start: Start,
    turn: Turn,
    deadline: Instant,
    way_out: Option<OwnedFd>,
}

struct Server<'c> {
    channel: BorrowedFd<'c>,
    inbox: FrameBuffer,
    outbox: VecDeque<u8>,
    greeted: bool,
    waiting: VecDeque<Call>,
    worker_pool: WorkerPool,
    ways_out: WaysOut,
}

/// Serves until the channel ends. Then it kills the operations at work and recovers their leftovers.
pub(crate) fn serve(channel: BorrowedFd<'_>, ways_out: WaysOut) -> Result<(), ServeError> {
    // fcntl, since the filter allows no ioctl.
    fcntl_setfl(channel, fcntl_getfl(channel)? | OFlags::NONBLOCK)?;
    let mut server = Server {
        channel,
        inbox: FrameBuffer::new(),
        outbox: VecDeque::new(),
        greeted: false,
        waiting: VecDeque::new(),
        worker_pool: WorkerPool::new(Terms::new()?),
        ways_out,
    };
    server.worker_pool.recover_everything()?;
    let ended = server.turns();
    server.finish()?;
    ended
}

impl Server<'_> {
    fn turns(&mut self) -> Result<(), ServeError> {
        while self.turn()? {}
        Ok(())
    }

    /// Runs one round. Returns false when the channel has ended.
    fn turn(&mut self) -> Result<bool, ServeError> {
        let events = self.wait()?;
        if events.intersects(PollFlags::OUT) {
            self.flush()?;
        }
        if events.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) && !self.receive()? {
            return Ok(false);
        }
        self.worker_pool.expire(Instant::now());
        self.collect()?;
        self.begin()?;
        self.flush()?;
        if self.greeted {
            self.worker_pool.prepare(Instant::now());
        }
        Ok(true)
    }

    /// Waits for the channel, a job or a deadline. Returns the channel's events.
    fn wait(&self) -> Result<PollFlags, Errno> {
        let mut wanted = PollFlags::empty();
        wanted.set(PollFlags::IN, self.outbox.len() < UNREAD);
        wanted.set(PollFlags::OUT, !self.outbox.is_empty());
        let running = self.worker_pool.jobs().filter_map(Job::deadline);
        let waiting = self.waiting.iter().map(|call| call.deadline);
        let ready = if self.greeted { self.worker_pool.ready_until() } else { None };
        let next = running.chain(waiting).chain(ready).min();
        wait_for(Some(PollFd::from_borrowed_fd(self.channel, wanted)), &self.worker_pool, next)
    }

    /// Ends all processes and recovers their leftovers. There is no client any longer.
    fn finish(&mut self) -> Result<(), ServeError> {
        let last = Instant::now() + LAST;
        self.worker_pool.cancel_all();
        self.wait_for_crew(last)?;
        if self.worker_pool.is_idle() {
            self.worker_pool.recover_everything()?;
            self.wait_for_crew(last)?;
        }
        Ok(())
    }

    fn wait_for_crew(&mut self, last: Instant) -> Result<(), ServeError> {
        while !self.worker_pool.is_idle() && Instant::now() < last {
            // Without the channel: its end would be a permanent event.
            wait_for(None, &self.worker_pool, Some(last))?;
            self.worker_pool.collect();
        }
        Ok(())
    }

    /// Reads the available frames and acts on them. Returns false at the end of the stream.
    fn receive(&mut self) -> Result<bool, ServeError> {
        match retry_on_intr(|| rustix::io::read(self.channel, spare_capacity(self.inbox.read_buffer()))) {
            Ok(0) | Err(Errno::CONNRESET) => return Ok(false),
            Ok(_) => {}
            Err(Errno::AGAIN) => return Ok(true),
            Err(errno) => return Err(errno.into()),
        }
        while let Some(ToWorker { id, body }) = self.inbox.pop()? {
            self.act(id, body.ok_or(ServeError::Protocol("an empty message"))?)?;
        }
        Ok(true)
    }

    fn act(&mut self, id: u64, body: to_worker::Body) -> Result<(), ServeError> {
        match body {
            to_worker::Body::Hello(hello) if !self.greeted && hello.protocol == PROTOCOL => {
                self.greeted = true;
                let pid = getpid().as_raw_nonzero().get().unsigned_abs();
                self.send(
                    0,
                    from_worker::Body::Hello(Hello {
                        protocol: PROTOCOL,
                        nonce: hello.nonce,
                        pid,
                        ..Hello::default()
                    }),
                )
            }
            _ if !self.greeted => Err(ServeError::Protocol("no valid hello")),
            to_worker::Body::Hello(_) => Err(ServeError::Protocol("a second hello")),
            to_worker::Body::Ping(_) => {
                self.inbox.rest();
                self.send(id, from_worker::Body::Pong(Pong {}))
            }
            to_worker::Body::Start(start) => self.enqueue(id, start),
            to_worker::Body::Cancel(_) => self.cancel(id),
            to_worker::Body::Go(_) => {
                self.go(id);
                Ok(())
            }
            to_worker::Body::Credit(_)
            | to_worker::Body::Input(_)
            | to_worker::Body::Resize(_)
            | to_worker::Body::Signal(_)
            | to_worker::Body::Switch(_)
            | to_worker::Body::Prepare(_)
            | to_worker::Body::Variables(_) => Err(ServeError::Protocol("no commands run here")),
        }
    }

    fn enqueue(&mut self, id: u64, mut start: Start) -> Result<(), ServeError> {
        let way_out = if start.way_out > 0 { self.ways_out.claim(start.way_out)? } else { None };
        if self.waiting.len() >= WAITING {
            let failure =
                ToolFailure::new(Reason::Overloaded, "too many calls at once for this run; try again");
            return self.answer(id, outcome_to_wire(Err(failure)));
        }
        let time = Duration::from_millis(start.deadline_ms).min(LONGEST);
        let turn = Turn::of(&mut start);
        self.waiting.push_back(Call { id, start, turn, deadline: Instant::now() + time, way_out });
        Ok(())
    }

    fn cancel(&mut self, id: u64) -> Result<(), ServeError> {
        if let Some(place) = self.waiting.iter().position(|call| call.id == id) {
            self.waiting.remove(place);
            return self.answer(id, Stop::Cancelled.outcome());
        }
        self.worker_pool.cancel(id);
        Ok(())
    }

    /// Lets the call take effect. Ignores a call that is over by now.
    fn go(&mut self, id: u64) {
        match self.waiting.iter_mut().find(|call| call.id == id) {
            Some(call) => call.start.awaits_go = false,
            None => self.worker_pool.go(id),
        }
    }

    fn collect(&mut self) -> Result<(), ServeError> {
        self.worker_pool.collect().into_iter().try_for_each(|answer| self.answer(answer.id, *answer.outcome))
    }

    /// Begins the waiting calls that may run now. Calls that change one file, or the repository, run one after the other in order
    /// of arrival; all others run at once.
    fn begin(&mut self) -> Result<(), ServeError> {
        let now = Instant::now();
        let due = self.due(now);
        let mut later = VecDeque::new();
        for (call, due) in std::mem::take(&mut self.waiting).into_iter().zip(due) {
            if call.deadline <= now {
                self.answer(call.id, Stop::TimedOut.outcome())?;
                continue;
            }
            if !due {
                later.push_back(call);
                continue;
            }
            if let Err(error) = self.worker_pool.begin(call.id, (call.start, call.way_out), call.turn, call.deadline) {
                let failure =
                    ToolFailure::new(Reason::Overloaded, format!("cannot start the operation: {error}"));
                self.answer(call.id, outcome_to_wire(Err(failure)))?;
            }
        }
        self.waiting = later;
        Ok(())
    }

    /// Returns for each waiting call whether it may begin.
    fn due(&self, now: Instant) -> Vec<bool> {
        let (mut turns, mut free) = (self.worker_pool.turns(), self.worker_pool.free());
        let mut due = Vec::with_capacity(self.waiting.len());
        for call in &self.waiting {
            let lives = call.deadline > now;
            let may = lives && free > 0 && turns.admit(&call.turn);
            free -= usize::from(may);
            if lives {
                turns.take(&call.turn);
            }
            due.push(may);
        }
        due
    }

    fn answer(&mut self, id: u64, outcome: Outcome) -> Result<(), ServeError> {
        self.send(id, from_worker::Body::Outcome(outcome))
    }

    fn send(&mut self, id: u64, body: from_worker::Body) -> Result<(), ServeError> {
        self.outbox.extend(encode(&FromWorker { id, body: Some(body) })?);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), ServeError> {
        while !self.outbox.is_empty() {
            match retry_on_intr(|| rustix::io::write(self.channel, self.outbox.as_slices().0)) {
                Ok(written) => drop(self.outbox.drain(..written)),
                Err(Errno::AGAIN) => break,
                // The daemon is gone; the next read reports that.
                Err(Errno::PIPE | Errno::CONNRESET) => self.outbox.clear(),
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}

/// Waits for the channel, a process or a deadline. Returns the channel's events.
fn wait_for(
    channel: Option<PollFd<'_>>,
    worker_pool: &WorkerPool,
    deadline: Option<Instant>,
) -> Result<PollFlags, Errno> {
    let listens = channel.is_some();
    let mut polled: Vec<_> = channel.into_iter().collect();
    for job in worker_pool.jobs() {
        polled.extend(job.descriptors().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
    }
    let timeout = deadline.map(|deadline| {
        let left = deadline.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        }
    });
    match poll(&mut polled, timeout.as_ref()) {
        Ok(_) if listens => Ok(polled.first().map_or(PollFlags::empty(), PollFd::revents)),
        Ok(_) | Err(Errno::INTR) => Ok(PollFlags::empty()),
        Err(errno) => Err(errno),
    }
}
