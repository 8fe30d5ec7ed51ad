//! The listening sockets of a daemon, by name: those that it got from its predecessor, and those that its successor gets.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::net::{TcpListener, UnixListener};

/// A listening socket.
#[derive(Debug)]
pub struct Named {
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) socket: OwnedFd,
}

/// All listening sockets of this daemon.
///
/// Each is kept open here beside its server. Connections wait in its queue while no server accepts them.
#[derive(Debug, Clone, Default)]
pub struct Listeners(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    handed: Mutex<Vec<Named>>,
    kept: Mutex<Vec<Named>>,
    are_left: AtomicBool,
}

impl Listeners {
    /// Has the sockets of a predecessor.
    pub(crate) fn of(handed: Vec<Named>) -> Self {
        Self(Arc::new(Inner { handed: Mutex::new(handed), ..Inner::default() }))
    }

    /// Listens on TCP, with the predecessor's socket if it has this name and address.
    ///
    /// Port 0 is any port. A socket of another address stays unused.
    pub async fn tcp(&self, name: &str, address: SocketAddr) -> io::Result<TcpListener> {
        let handed = self.take(name).and_then(|named| tcp_at(named.socket, address));
        let listener = match handed {
            Some(listener) => listener,
            None => TcpListener::bind(address).await?,
        };
        self.keep(name, format!("tcp:{}", listener.local_addr()?), &listener)?;
        Ok(listener)
    }

    /// Returns the predecessor's Unix socket of this name, if its file is still at `path`.
    ///
    /// A daemon that binds one itself gives it to [`Self::keep_unix`].
    pub fn unix(&self, name: &str, path: &Path) -> Option<UnixListener> {
        let named = self.take(name).filter(|named| named.address == unix_address(path))?;
        let is_there = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
        let listener = std::os::unix::net::UnixListener::from(named.socket);
        listener.set_nonblocking(true).ok().filter(|()| is_there)?;
        UnixListener::from_std(listener).ok()
    }

    /// Keeps a Unix socket for a successor.
    pub fn keep_unix(&self, name: &str, path: &Path, listener: &UnixListener) -> io::Result<()> {
        self.keep(name, unix_address(path), listener)
    }

    fn keep(&self, name: &str, address: String, listener: impl AsFd) -> io::Result<()> {
        let socket = listener.as_fd().try_clone_to_owned()?;
        self.0.kept.lock().push(Named { name: name.to_owned(), address, socket });
        Ok(())
    }

    fn take(&self, name: &str) -> Option<Named> {
        let mut handed = self.0.handed.lock();
        let index = handed.iter().position(|named| named.name == name)?;
        Some(handed.swap_remove(index))
    }

    /// Closes the predecessor's sockets that no server took: the configuration has no such listener any longer.
    pub fn close_unused(&self) {
        self.0.handed.lock().clear();
    }

    /// Closes all sockets, so that a daemon that stops refuses connections.
    pub fn close(&self) {
        self.0.kept.lock().clear();
    }

    /// Returns copies of the sockets, for a successor.
    pub(crate) fn copies(&self) -> io::Result<Vec<Named>> {
        let copy = |named: &Named| {
            let socket = named.socket.try_clone()?;
            Ok(Named { name: named.name.clone(), address: named.address.clone(), socket })
        };
        self.0.kept.lock().iter().map(copy).collect()
    }

    /// Says that the sockets stay open for a successor: their files are not removed. `false` takes that back.
    pub fn leave(&self, are_left: bool) {
        self.0.are_left.store(are_left, Ordering::Release);
    }

    /// Returns true if the sockets stay open for a successor.
    pub fn are_left(&self) -> bool {
        self.0.are_left.load(Ordering::Acquire)
    }
}

/// Gives each name and address the socket that came with it.
pub(crate) fn named(of: Vec<(String, String)>, sockets: Vec<OwnedFd>) -> Option<Vec<Named>> {
    let named = |((name, address), socket)| Named { name, address, socket };
    (of.len() == sockets.len()).then(|| of.into_iter().zip(sockets).map(named).collect())
}

/// Returns the names and addresses of sockets.
pub(crate) fn names(sockets: &[Named]) -> Vec<(String, String)> {
    sockets.iter().map(|named| (named.name.clone(), named.address.clone())).collect()
}

fn unix_address(path: &Path) -> String {
    format!("unix:{}", path.display())
}

fn tcp_at(socket: OwnedFd, address: SocketAddr) -> Option<TcpListener> {
    let listener = std::net::TcpListener::from(socket);
    let local = listener.local_addr().ok()?;
    let is_asked_for = local.ip() == address.ip() && (address.port() == 0 || local.port() == address.port());
    listener.set_nonblocking(true).ok().filter(|()| is_asked_for)?;
    TcpListener::from_std(listener).ok()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use tokio::io::AsyncWriteExt as _;
    use tokio::net::{TcpStream, UnixStream};

    use super::*;

    const ANY: &str = "127.0.0.1:0";

    /// Hands the sockets of one daemon to the next.
    fn hand(from: &Listeners) -> Listeners {
        let copies = from.copies().unwrap();
        Listeners::of(named(names(&copies), copies.into_iter().map(|named| named.socket).collect()).unwrap())
    }

    #[tokio::test]
    async fn a_connection_that_waits_is_accepted_by_the_successor() {
        let first = Listeners::default();
        let listener = first.tcp("api", ANY.parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"x").await.unwrap();
        let second = hand(&first);
        drop(first);
        let listener = second.tcp("api", address).await.unwrap();
        assert_eq!(listener.local_addr().unwrap(), address);
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = stream.into_std().unwrap();
        stream.set_nonblocking(false).unwrap();
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"x");
        // Its own successor gets it again.
        assert_eq!(names(&second.copies().unwrap()), [("api".to_owned(), format!("tcp:{address}"))]);
    }

    #[tokio::test]
    async fn a_socket_of_another_name_or_address_is_not_used() {
        let first = Listeners::default();
        let address = first.tcp("api", ANY.parse().unwrap()).await.unwrap().local_addr().unwrap();
        let second = hand(&first);
        drop(first);
        let other = second.tcp("metrics", ANY.parse().unwrap()).await.unwrap();
        assert_ne!(other.local_addr().unwrap(), address);
        let other = second.tcp("api", "127.0.0.2:0".parse().unwrap()).await.unwrap();
        assert_ne!(other.local_addr().unwrap().ip(), address.ip());
        second.close_unused();
        TcpStream::connect(address).await.unwrap_err();
    }

    #[tokio::test]
    async fn a_unix_socket_is_taken_while_its_file_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.sock");
        let first = Listeners::default();
        first.keep_unix("api", &path, &UnixListener::bind(&path).unwrap()).unwrap();
        let second = hand(&first);
        let third = hand(&first);
        assert!(hand(&first).unix("api", &directory.path().join("b.sock")).is_none());
        drop(first);
        let client = UnixStream::connect(&path).await.unwrap();
        let listener = second.unix("api", &path).unwrap();
        listener.accept().await.unwrap();
        drop(client);
        std::fs::remove_file(&path).unwrap();
        assert!(third.unix("api", &path).is_none());
    }
}
