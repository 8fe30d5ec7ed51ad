//! The Unix socket: made with its mode, owned by one daemon, bounded in connections.

#![expect(clippy::disallowed_methods, reason = "the daemon's own socket")]

use std::fs::Permissions;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;
use tonic::transport::server::Connected;

use super::authority::AuthorityFilter;
use super::coalesce::Coalesce;

/// Read from a client at once, bytes.
const READ: usize = 16 * 1024;

/// Until a client has to have begun to speak: a silent one keeps another's place.
const GREETING: Duration = Duration::from_secs(10);
/// Between attempts to accept after one that failed.
const AGAIN: Duration = Duration::from_millis(100);

/// Who connected, as the kernel says, unix(7) `SO_PEERCRED`.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// A bound socket. The file goes with it.
pub(crate) struct Socket {
    listener: UnixListener,
    connections: Arc<Semaphore>,
    path: PathBuf,
}

impl Socket {
    /// Binds `path`. A socket that nobody serves any more is replaced; a living one is an error.
    pub(crate) fn bind(path: &Path, mode: u32, max_connections: usize) -> io::Result<Self> {
        if let Some(directory) = path.parent().filter(|directory| !directory.exists()) {
            std::fs::create_dir_all(directory)?;
            // The socket's own mode says who may connect.
            std::fs::set_permissions(directory, Permissions::from_mode(0o755))?;
        }
        match std::os::unix::net::UnixStream::connect(path) {
            Ok(_) => {
                return Err(io::Error::new(io::ErrorKind::AddrInUse, "another daemon serves this socket"));
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => remove_socket(path)?,
            Err(_) => {}
        }
        // Bound under another name and renamed, so that nobody connects before the mode is right.
        let draft = path.with_extension(format!("{}.new", std::process::id()));
        let _ = std::fs::remove_file(&draft);
        let listener = UnixListener::bind(&draft)?;
        std::fs::set_permissions(&draft, Permissions::from_mode(mode))?;
        std::fs::rename(&draft, path)?;
        Ok(Self { listener, connections: Arc::new(Semaphore::new(max_connections)), path: path.to_owned() })
    }

    /// The next connection, as soon as there is room for it.
    pub(crate) async fn accept(&self) -> io::Result<Connection> {
        let permit = self.connections.clone().acquire_owned().await.map_err(io::Error::other)?;
        let (stream, _) = match self.listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, most likely: it would fail again at once, and again.
                tokio::time::sleep(AGAIN).await;
                return Err(error);
            }
        };
        let credentials = stream.peer_cred()?;
        let peer = Peer { uid: credentials.uid(), gid: credentials.gid() };
        Ok(Connection::new(stream, peer, GREETING, permit))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Removes a socket that nobody serves, and nothing else: connecting to an ordinary file is refused as well.
fn remove_socket(path: &Path) -> io::Result<()> {
    if std::fs::symlink_metadata(path)?.file_type().is_socket() {
        return std::fs::remove_file(path);
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is something else than a socket at this path"))
}

/// One accepted connection.
pub(crate) struct Connection {
    stream: Coalesce<UnixStream>,
    peer: Peer,
    filter: AuthorityFilter,
    /// Filtered, and not yet read from `taken` on.
    ready: Vec<u8>,
    taken: usize,
    /// Set until the client has greeted.
    patience: Option<Pin<Box<Sleep>>>,
    _permit: OwnedSemaphorePermit,
}

impl Connection {
    fn new(stream: UnixStream, peer: Peer, patience: Duration, permit: OwnedSemaphorePermit) -> Self {
        Self {
            stream: Coalesce::new(stream),
            peer,
            filter: AuthorityFilter::new(),
            ready: Vec::new(),
            taken: 0,
            patience: Some(Box::pin(tokio::time::sleep(patience))),
            _permit: permit,
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Some(patience) = &mut this.patience
            && patience.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        while this.taken == this.ready.len() {
            let mut bytes = [MaybeUninit::uninit(); READ];
            let mut read = ReadBuf::uninit(&mut bytes);
            ready!(Pin::new(&mut this.stream).poll_read(context, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            this.ready.clear();
            this.taken = 0;
            this.filter.filter(read.filled(), &mut this.ready);
            if this.filter.is_greeted() {
                this.patience = None;
            }
        }
        let rest = &this.ready[this.taken..];
        let count = rest.len().min(buffer.remaining());
        buffer.put_slice(&rest[..count]);
        this.taken += count;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::UnixStream;
    use tokio::sync::Semaphore;

    use super::{Connection, Peer};

    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

    async fn after_patience(said: &[u8]) -> Result<usize, ErrorKind> {
        let (mut client, server) = UnixStream::pair().unwrap();
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let peer = Peer { uid: 0, gid: 0 };
        let patience = Duration::from_millis(50);
        let mut connection = Connection::new(server, peer, patience, permit);
        client.write_all(said).await.unwrap();
        let mut bytes = vec![0; said.len()];
        connection.read_exact(&mut bytes).await.unwrap();
        let more = tokio::spawn(async move { connection.read(&mut [0; 16]).await });
        tokio::time::sleep(patience * 2).await;
        // Where the connection has been given up nobody listens.
        let _ = client.write_all(&[0; 9]).await;
        more.await.unwrap().map_err(|error| error.kind())
    }

    #[tokio::test]
    async fn a_client_has_to_greet_in_time_and_may_be_silent_then() {
        assert_eq!(after_patience(b"").await, Err(ErrorKind::TimedOut));
        assert_eq!(after_patience(&PREFACE[..20]).await, Err(ErrorKind::TimedOut));
        assert_eq!(after_patience(PREFACE).await, Ok(9));
    }
}
