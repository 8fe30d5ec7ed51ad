//! Handles that a live process gets, each with a number that frames refer to.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixDatagram as StdDatagram;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use host_launch::numbered;
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::time::timeout;

/// Time in which the process receives a handle.
const TIME: Duration = Duration::from_secs(5);

/// The way of handles to one process.
#[derive(Debug)]
pub(crate) struct Handles {
    /// A socket of the kind `SOCK_SEQPACKET`, which keeps messages apart as datagrams are.
    socket: UnixDatagram,
    last: AtomicU64,
}

impl Handles {
    /// Takes the daemon's end of the pair that the process was started with.
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        Ok(Self { socket: UnixDatagram::from_std(StdDatagram::from(socket))?, last: AtomicU64::new(0) })
    }

    /// Returns a number that no handle has had.
    pub(crate) fn number(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Sends a handle, whose number a frame may have from now on. The process has ten seconds to claim it.
    pub(crate) async fn send(&self, number: u64, handle: OwnedFd) -> io::Result<()> {
        let sent = async {
            loop {
                self.socket.writable().await?;
                let send = || numbered::send(&self.socket, number, handle.as_fd());
                match self.socket.try_io(Interest::WRITABLE, send) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    done => return done,
                }
            }
        };
        timeout(TIME, sent).await?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn handles_have_numbers_of_their_own_and_wait_while_the_process_is_busy() {
        let (ours, theirs) = numbered::pair().unwrap();
        let handles = Handles::new(ours).unwrap();
        let null = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let give = async {
            for _ in 0..600 {
                let number = handles.number();
                handles.send(number, null()).await.unwrap();
            }
        };
        let take = async {
            let mut seen = Vec::new();
            while seen.len() < 600 {
                match numbered::receive(&theirs) {
                    Ok(received) => seen.push(received.unwrap().0),
                    Err(error) => {
                        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                        tokio::task::yield_now().await;
                    }
                }
            }
            seen
        };
        assert_eq!(tokio::join!(give, take).1, (1..=600).collect::<Vec<u64>>());
    }

    #[tokio::test]
    async fn a_process_that_is_gone_gets_nothing() {
        let (ours, theirs) = numbered::pair().unwrap();
        let handles = Handles::new(ours).unwrap();
        drop(theirs);
        let null = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        assert!(handles.send(1, null).await.is_err());
    }
}
