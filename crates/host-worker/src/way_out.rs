//! Handles that the daemon gives this process, for calls that reach servers.
//!
//! The daemon sends a handle before the message of its call, which has the number.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use git_remote::Dial;
use host_launch::dialing::Dialer;
use host_launch::numbered::receive;

/// Most handles whose call has not come. The oldest goes first.
const UNCLAIMED: usize = 64;

/// The handles whose calls have not come.
#[derive(Debug)]
pub(crate) struct WaysOut {
    socket: OwnedFd,
    waiting: VecDeque<(u64, OwnedFd)>,
}

impl WaysOut {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self { socket, waiting: VecDeque::new() }
    }

    /// Takes the handle with this number. `None` if there is none.
    pub(crate) fn claim(&mut self, number: u64) -> io::Result<Option<OwnedFd>> {
        loop {
            match receive(&self.socket) {
                Ok(Some(handle)) => {
                    if self.waiting.len() >= UNCLAIMED {
                        self.waiting.pop_front();
                    }
                    self.waiting.push_back(handle);
                }
                // The daemon is gone, which the channel reports.
                Ok(None) => break,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        let at = self.waiting.iter().position(|(known, _)| *known == number);
        Ok(at.and_then(|at| self.waiting.remove(at)).map(|(_, handle)| handle))
    }
}

/// The way of one call to servers.
#[derive(Debug)]
pub(crate) struct WayOut {
    dialer: Option<Dialer>,
    pub(crate) deadline: Instant,
}

impl WayOut {
    /// `socket` is the one over which the call asks for streams; `None` if it may have none.
    pub(crate) fn new(socket: Option<OwnedFd>, deadline: Instant) -> Self {
        Self { dialer: socket.map(|socket| Dialer::new(socket, deadline)), deadline }
    }
}

impl Dial for WayOut {
    fn dial(&self, host: &str, port: u16) -> io::Result<UnixStream> {
        match &self.dialer {
            Some(dialer) => dialer.dial(host, port),
            None => Err(io::Error::other("this call has no way to servers")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use host_launch::numbered::{pair, send};

    use super::*;

    #[test]
    fn a_handle_is_claimed_once_and_the_oldest_is_dropped_first() {
        let (daemon, own) = pair().unwrap();
        let mut ways = WaysOut::new(own);
        let null = std::fs::File::open("/dev/null").unwrap();
        for number in 1..=70 {
            send(&daemon, number, null.as_fd()).unwrap();
            assert!(ways.claim(0).unwrap().is_none());
        }
        assert_eq!(ways.waiting.len(), UNCLAIMED);
        assert!(ways.claim(6).unwrap().is_none());
        assert!(ways.claim(7).unwrap().is_some());
        assert!(ways.claim(7).unwrap().is_none());
        drop(daemon);
        assert!(ways.claim(70).unwrap().is_some());
    }

    #[test]
    fn another_message_breaks_the_protocol() {
        let (daemon, own) = pair().unwrap();
        rustix::io::write(&daemon, b"hello").unwrap();
        assert_eq!(WaysOut::new(own).claim(1).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
