//! The Unix socket: made with its mode, owned by one daemon, bounded in connections.

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
use tonic::transport::server::Connected;

use super::authority::AuthorityFilter;

/// Read from a client at once, bytes.
const READ: usize = 16 * 1024;

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
        Ok(Connection {
            stream,
            peer,
            filter: AuthorityFilter::new(),
            ready: Vec::new(),
            taken: 0,
            _permit: permit,
        })
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
    stream: UnixStream,
    peer: Peer,
    filter: AuthorityFilter,
    /// Filtered, and not yet read from `taken` on.
    ready: Vec<u8>,
    taken: usize,
    _permit: OwnedSemaphorePermit,
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
