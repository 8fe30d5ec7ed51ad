//! Listens on the Unix socket: sets its mode, lets only one daemon serve it, and bounds its connections.

#![expect(clippy::disallowed_methods, reason = "the daemon's own socket")]

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use take_over::Listeners;
use tokio::net::UnixListener;
use tokio::sync::Semaphore;
use tokio_util::either::Either;

use super::connection::{Connection, Hold};
use super::{AGAIN, Peer};

/// Name of the socket among the daemon's listeners.
const NAME: &str = "api";

/// A bound socket. Dropping it removes its file, unless the socket is left to another daemon.
pub struct Socket {
    listener: UnixListener,
    connections: Arc<Semaphore>,
    path: PathBuf,
    listeners: Listeners,
}

impl Socket {
    /// Binds `path`, for `group` or, without one, the daemon's group.
    ///
    /// A socket without a server is replaced. A socket that is served is an error. One that a predecessor has handed over is served.
    pub fn bind(
        path: &Path,
        mode: u32,
        group: Option<u32>,
        max_connections: usize,
        listeners: &Listeners,
    ) -> io::Result<Self> {
        let listener = match listeners.unix(NAME, path) {
            Some(listener) => {
                // The predecessor may have had another group.
                give(path, mode, group.or_else(|| Some(rustix::process::getegid().as_raw())))?;
                listener
            }
            None => bind(path, mode, group)?,
        };
        listeners.keep_unix(NAME, path, &listener)?;
        let connections = Arc::new(Semaphore::new(max_connections));
        Ok(Self { listener, connections, path: path.to_owned(), listeners: listeners.clone() })
    }

    /// Returns the next connection, once there is a slot for it.
    pub async fn accept(&self) -> io::Result<Connection> {
        let permit = self.connections.clone().acquire_owned().await.map_err(io::Error::other)?;
        let (stream, _) = match self.listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // The descriptors are probably used up, so another attempt would fail again at once.
                tokio::time::sleep(AGAIN).await;
                return Err(error);
            }
        };
        let credentials = stream.peer_cred()?;
        let peer = Peer::Local { uid: credentials.uid(), gid: credentials.gid() };
        Ok(Connection::new(Either::Left(stream), peer, Hold::Local { _permit: permit }))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if !self.listeners.are_left() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Binds a new socket.
fn bind(path: &Path, mode: u32, group: Option<u32>) -> io::Result<UnixListener> {
    if let Some(directory) = path.parent().filter(|directory| !directory.exists()) {
        std::fs::create_dir_all(directory)?;
        // The mode of the socket decides who may connect.
        std::fs::set_permissions(directory, Permissions::from_mode(0o755))?;
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another daemon serves this socket"));
        }
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => remove_socket(path)?,
        Err(_) => {}
    }
    // Bound under another name and then renamed, so that no client connects before the mode is right.
    let draft = path.with_extension(format!("{}.new", std::process::id()));
    let _ = std::fs::remove_file(&draft);
    let listener = UnixListener::bind(&draft)?;
    give(&draft, mode, group)?;
    std::fs::rename(&draft, path)?;
    Ok(listener)
}

/// Gives the file of a socket to those who may connect.
fn give(path: &Path, mode: u32, group: Option<u32>) -> io::Result<()> {
    if group.is_some() {
        std::os::unix::fs::chown(path, None, group)?;
    }
    std::fs::set_permissions(path, Permissions::from_mode(mode))
}

/// Removes a socket that no daemon serves, and no other file: connecting to an ordinary file is refused as well.
fn remove_socket(path: &Path) -> io::Result<()> {
    if std::fs::symlink_metadata(path)?.file_type().is_socket() {
        return std::fs::remove_file(path);
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, "this path exists and is not a socket"))
}
