//! Listens on the Unix socket: sets its mode, lets only one daemon serve it, and bounds its connections.

#![expect(clippy::disallowed_methods, reason = "the daemon's own socket")]

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::UnixListener;
use tokio::sync::Semaphore;
use tokio_util::either::Either;

use super::connection::{Connection, Hold};
use super::{AGAIN, Peer};

/// A bound socket. Dropping it removes its file.
pub struct Socket {
    listener: UnixListener,
    connections: Arc<Semaphore>,
    path: PathBuf,
}

impl Socket {
    /// Binds `path`, for `group` or, without one, the daemon's group.
    ///
    /// A socket without a server is replaced. A socket that is served is an error.
    pub fn bind(path: &Path, mode: u32, group: Option<u32>, max_connections: usize) -> io::Result<Self> {
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
        if group.is_some() {
            std::os::unix::fs::chown(&draft, None, group)?;
        }
        std::fs::set_permissions(&draft, Permissions::from_mode(mode))?;
        std::fs::rename(&draft, path)?;
        Ok(Self { listener, connections: Arc::new(Semaphore::new(max_connections)), path: path.to_owned() })
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
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Removes a socket that no daemon serves, and no other file: connecting to an ordinary file is refused as well.
fn remove_socket(path: &Path) -> io::Result<()> {
    if std::fs::symlink_metadata(path)?.file_type().is_socket() {
        return std::fs::remove_file(path);
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, "this path exists and is not a socket"))
}
