//! Handles that the daemon gives a live process: connections that it opened itself, and servers that it has connected to.
//!
//! The daemon sends a handle before the frame that refers to it. They come over two sockets, so that a frame which claims a handle first
//! receives those that wait. A handle that no frame claims is closed after a while.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::TcpStream as StdTcp;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram as StdDatagram;
use std::rc::Rc;
use std::time::Duration;

use host_launch::numbered::receive;
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixDatagram};
use tokio::time::{Instant, timeout};

/// Least bound of the handles that no frame has claimed.
const UNCLAIMED: usize = 64;
/// Time within which a frame has to claim a handle.
const CLAIM: Duration = Duration::from_secs(10);
/// Longest time for which an expired handle stays open.
const ROUND: Duration = Duration::from_secs(1);

/// The handles that wait for a frame.
#[derive(Debug)]
pub(crate) struct Handles {
    /// Of the kind `SOCK_SEQPACKET`, which keeps messages apart as datagrams are.
    socket: UnixDatagram,
    /// Most handles that wait. The oldest is closed for one more.
    most: usize,
    /// Oldest first.
    waiting: RefCell<VecDeque<(u64, Instant, OwnedFd)>>,
}

/// A connection that one frame brings; the first who takes it has it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Connected(Rc<RefCell<Option<TcpStream>>>);

impl Connected {
    pub(crate) fn new(stream: Option<TcpStream>) -> Self {
        Self(Rc::new(RefCell::new(stream)))
    }

    pub(crate) fn take(&self) -> Option<TcpStream> {
        self.0.borrow_mut().take()
    }
}

impl Handles {
    /// Returns the handles of a process that has so many connections at most. Each of them may wait for its handle.
    pub(crate) fn new(socket: OwnedFd, max_connections: u32) -> io::Result<Self> {
        let socket = UnixDatagram::from_std(StdDatagram::from(socket))?;
        let most = usize::try_from(max_connections).unwrap_or(usize::MAX).max(UNCLAIMED);
        Ok(Self { socket, most, waiting: RefCell::default() })
    }

    /// Returns the most handles that wait.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Receives handles for good. Ends with an error if the daemon breaks the protocol.
    pub(crate) async fn receive(&self) -> io::Error {
        loop {
            let ready = timeout(ROUND, self.socket.readable()).await;
            self.expire();
            match ready.map(|ready| ready.and_then(|()| self.drain_ready())) {
                Ok(Ok(true)) | Err(_) => {}
                // The channel ends soon.
                Ok(Ok(false)) => std::future::pending().await,
                Ok(Err(error)) => return error,
            }
        }
    }

    /// Takes the handle with this number, a connected stream socket. `None` if there is none, or no longer.
    pub(crate) fn claim(&self, number: u64) -> io::Result<Option<TcpStream>> {
        self.drain()?;
        let mut waiting = self.waiting.borrow_mut();
        let Some(at) = waiting.iter().position(|(known, ..)| *known == number) else { return Ok(None) };
        let Some((.., handle)) = waiting.remove(at) else { return Ok(None) };
        // Sockets of each family are read and written alike.
        TcpStream::from_std(StdTcp::from(handle)).map(Some)
    }

    /// Receives the handles of which the runtime knows, and has it wait for the next. Returns false at the end of the socket.
    fn drain_ready(&self) -> io::Result<bool> {
        // Only `WouldBlock` tells the runtime that nothing is left.
        let drained = self.socket.try_io(Interest::READABLE, || {
            if self.drain()? { Err(io::Error::from(io::ErrorKind::WouldBlock)) } else { Ok(false) }
        });
        match drained {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
            drained => drained,
        }
    }

    /// Receives the handles that are there. Returns false at the end of the socket.
    ///
    /// Asks the kernel. The runtime polls the socket later than a frame may be read, and `try_io` finds nothing until then.
    fn drain(&self) -> io::Result<bool> {
        loop {
            match receive(&self.socket) {
                Ok(Some((number, handle))) => {
                    let mut waiting = self.waiting.borrow_mut();
                    if waiting.len() >= self.most {
                        waiting.pop_front();
                    }
                    waiting.push_back((number, Instant::now(), handle));
                }
                Ok(None) => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            }
        }
    }

    fn expire(&self) {
        self.waiting.borrow_mut().retain(|(_, since, _)| since.elapsed() < CLAIM);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    use host_launch::numbered;
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    fn handles() -> (OwnedFd, Handles) {
        handles_of(1)
    }

    fn handles_of(max_connections: u32) -> (OwnedFd, Handles) {
        let (ours, theirs) = numbered::pair().unwrap();
        (ours, Handles::new(theirs, max_connections).unwrap())
    }

    /// Sends one end of a stream, and returns the other.
    fn give(to: &OwnedFd, number: u64) -> UnixStream {
        let (kept, given) = UnixStream::pair().unwrap();
        given.set_nonblocking(true).unwrap();
        kept.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        numbered::send(to, number, given.as_fd()).unwrap();
        kept
    }

    #[tokio::test]
    async fn a_handle_is_claimed_once_by_its_number_before_it_was_received() {
        let (daemon, handles) = handles();
        let (mut one, _two) = (give(&daemon, 7), give(&daemon, 8));
        assert!(handles.claim(9).unwrap().is_none());
        let mut stream = handles.claim(7).unwrap().unwrap();
        assert!(handles.claim(7).unwrap().is_none());
        stream.write_all(b"hello").await.unwrap();
        drop(stream);
        let mut read = String::new();
        one.read_to_string(&mut read).unwrap();
        assert_eq!(read, "hello");
    }

    #[tokio::test(start_paused = true)]
    async fn a_handle_that_no_frame_claims_is_closed() {
        let (daemon, handles) = handles();
        let mut one = give(&daemon, 7);
        let waited = timeout(CLAIM + 3 * ROUND, handles.receive()).await;
        assert!(waited.is_err());
        assert_eq!(one.read(&mut [0]).unwrap(), 0);
        assert!(handles.claim(7).unwrap().is_none());
    }

    #[tokio::test]
    async fn no_more_handles_wait_than_the_process_has_connections_or_than_the_least_bound() {
        for (max_connections, most) in [(1, UNCLAIMED), (100, 100)] {
            let (daemon, handles) = handles_of(max_connections);
            let mut first = give(&daemon, 0);
            let second = give(&daemon, 1);
            for number in 2..=u64::try_from(most).unwrap() {
                drop(give(&daemon, number));
                handles.drain().unwrap();
            }
            assert_eq!(handles.waiting.borrow().len(), most);
            assert_eq!(first.read(&mut [0]).unwrap(), 0, "the oldest is closed");
            assert!(handles.claim(1).unwrap().is_some(), "the next is kept");
            drop(second);
        }
    }

    #[tokio::test]
    async fn another_message_breaks_the_protocol() {
        let (daemon, handles) = handles();
        rustix::net::send(&daemon, b"hello", rustix::net::SendFlags::NOSIGNAL).unwrap();
        assert_eq!(handles.receive().await.kind(), io::ErrorKind::InvalidData);
    }
}
