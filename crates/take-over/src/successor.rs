//! Both sides of a hand-over: the successor as its predecessor sees it, and the reverse.
//!
//! ```text
//!  successor                     predecessor
//!  Take ──────────────────────►  serves
//!        ◄──────────── Listeners stops to accept; calls finish; writes everything
//!        ◄───────────── Released executes itself as guard: no lock, no thread, no open file
//!  adopts, checks, serves
//!  Ready ─────────────────────►  ends         Failed, or an end ──► executes itself as daemon again
//! ```

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::process::Pid;

use crate::channel::{Channel, ChannelError, Message};
use crate::listeners::{named, names};
use crate::program::{again, ask_to_stop, hold_signals};
use crate::request::RequestError;
use crate::socket::{self, Peer};
use crate::{Formats, GUARD, Listeners, StopSignals};

/// Time that a daemon has to answer.
const ANSWER: Duration = Duration::from_secs(10);
/// Time that a predecessor has to stop: its calls finish, and an orderly stop takes up to a minute, the log another 22 seconds.
const STOP: Duration = Duration::from_secs(120);

/// A process that becomes the daemon. Its predecessor has this.
#[derive(Debug)]
pub struct Heir {
    channel: Channel,
    pid: Pid,
    process: OwnedFd,
    requester: Option<Channel>,
}

impl Heir {
    pub(crate) fn new(channel: Channel, Peer { pid, process }: Peer, requester: Option<Channel>) -> Self {
        Self { channel, pid, process, requester }
    }

    /// Refuses. The successor ends, and has changed nothing.
    pub fn refuse(&self, why: &str) {
        let refused = || Message::Refused { why: why.to_owned() };
        let _ = self.channel.send(&refused(), &[]);
        if let Some(requester) = &self.requester {
            let _ = requester.send(&Message::Failed { why: why.to_owned() }, &[]);
        }
    }

    /// Hands over: executes this program as the guard of the successor. Returns only if that fails.
    ///
    /// The execution ends every thread of this process and closes every file, the lock of the state directory too. So nothing of
    /// this process can write any longer, whatever was slow to stop.
    ///
    /// `kept` is a file with the configuration in force, for the case that the successor fails: the file `config` may have changed.
    /// A request to stop that is in `stops`, and each later one, stops the daemon that is left.
    pub fn hand(
        self,
        listeners: &Listeners,
        (config, kept): (&Path, &Path),
        stops: StopSignals,
    ) -> io::Error {
        let held = hold_signals().and_then(|()| if stops.came() { ask_to_stop() } else { Ok(()) });
        match held.map_err(ChannelError::Io).and_then(|()| self.assignment(listeners, config, kept)) {
            Ok(input) => again(GUARD, config, None, input),
            Err(error) => io::Error::other(error),
        }
    }

    /// Returns a channel from which the guard reads its task.
    fn assignment(&self, listeners: &Listeners, config: &Path, kept: &Path) -> Result<Channel, ChannelError> {
        let copies = listeners.copies()?;
        let watch = Message::Watch {
            pid: self.pid.as_raw_nonzero().get(),
            has_requester: self.requester.is_some(),
            config: config.to_owned(),
            kept: kept.to_owned(),
            of: names(&copies),
        };
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![self.channel.as_fd(), self.process.as_fd()];
        descriptors.extend(self.requester.as_ref().map(AsFd::as_fd));
        descriptors.extend(copies.iter().map(|named| named.socket.as_fd()));
        let (ours, input) = Channel::pair()?;
        ours.send(&watch, &descriptors)?;
        Ok(input)
    }
}

/// The daemon whose place this process takes. The process waits for its leave to begin, and reports to it.
pub struct Predecessor(Channel);

/// Way in which a predecessor gave its state up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// It watches its successor, and goes on if that one fails.
    Watches,
    /// It died. The successor is the only daemon.
    Died,
}

/// Asks the daemon of this state directory to hand over. Returns it, and its listening sockets.
pub fn take_over(state_dir: &Path, formats: Formats) -> Result<(Predecessor, Listeners), RequestError> {
    let channel = socket::reach(state_dir).map_err(RequestError::NoDaemon)?;
    channel.send(&Message::Take { formats }, &[])?;
    match channel.receive(ANSWER)? {
        (Message::Listeners { of }, sockets) => {
            let listeners = named(of, sockets).ok_or(ChannelError::Unknown)?;
            Ok((Predecessor(channel), Listeners::of(listeners)))
        }
        (Message::Refused { why }, _) => Err(RequestError::Refused(why)),
        _ => Err(ChannelError::Unknown.into()),
    }
}

impl Predecessor {
    /// Waits until the predecessor has given its state up.
    pub fn released(&self) -> Result<Released, RequestError> {
        match self.0.receive(STOP) {
            Ok((Message::Released, _)) => Ok(Released::Watches),
            Ok((Message::Refused { why }, _)) => Err(RequestError::Refused(why)),
            Ok(_) => Err(ChannelError::Unknown.into()),
            Err(ChannelError::Closed) => Ok(Released::Died),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns true while the predecessor could go on in place of this process.
    pub fn watches(&self) -> bool {
        self.0.is_open()
    }

    /// Says that this process serves, and waits until the predecessor has made it the daemon, or is gone.
    pub fn is_relieved(self) {
        if self.0.send(&Message::Ready, &[]).is_ok() {
            // Its end is an answer, too. This process has the lock, so the predecessor cannot serve.
            let _ = self.0.receive(ANSWER);
        }
    }

    /// Says that this process fails. The predecessor goes on when this process has ended.
    pub fn failed(self, why: &str) {
        let why = why.chars().take(4_096).collect();
        let _ = self.0.send(&Message::Failed { why }, &[]);
    }
}
