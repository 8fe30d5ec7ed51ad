//! The socket `take-over.sock` of the state directory. Only root and the daemon's own user can connect to it.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::Path;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::fs::{AtFlags, Mode, OFlags, unlinkat};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, socket_with,
};
use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};

use crate::channel::Channel;

const NAME: &str = "take-over.sock";
/// Connections that may wait.
const WAITING: i32 = 8;

/// A process that connected.
pub(crate) struct Peer {
    pub(crate) pid: Pid,
    /// Handle of the process. It never is of another process, as the pid can be later.
    pub(crate) process: OwnedFd,
}

/// The directory of the socket, and the address of the socket in it.
///
/// The address goes by the directory's handle, because the path of a state directory can be longer than an address.
fn address(state_dir: &Path) -> io::Result<(OwnedFd, SocketAddrUnix)> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(state_dir, flags, Mode::empty())?;
    let path = format!("/proc/self/fd/{}/{NAME}", directory.as_raw_fd());
    Ok((directory, SocketAddrUnix::new(path)?))
}

fn new() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Listens. The caller has the lock of the state directory, so a socket that is there already has no server.
pub(crate) fn serve(state_dir: &Path) -> io::Result<OwnedFd> {
    let (directory, address) = address(state_dir)?;
    match unlinkat(&directory, NAME, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno.into()),
    }
    let socket = new()?;
    bind(&socket, &address)?;
    // Connections are refused before `listen`, so the earlier mode does not matter.
    rustix::fs::chmodat(&directory, NAME, Mode::RUSR | Mode::WUSR, AtFlags::empty())?;
    listen(&socket, WAITING)?;
    Ok(socket)
}

/// Connects to the daemon that serves this state directory.
pub(crate) fn reach(state_dir: &Path) -> io::Result<Channel> {
    let (_directory, address) = address(state_dir)?;
    let socket = new()?;
    retry_on_intr(|| connect(&socket, &address))?;
    Ok(Channel::from(socket))
}

/// Waits for a connection. `None` is one of a user who may not take over.
pub(crate) fn accept(socket: &OwnedFd) -> io::Result<Option<(Channel, Peer)>> {
    let stream = retry_on_intr(|| accept_with(socket.as_fd(), SocketFlags::CLOEXEC))?;
    let credentials = getsockopt(&stream, PeerCredentials)?;
    let is_trusted = credentials.uid() == 0 || credentials.uid() == geteuid().as_raw();
    // 0 is a process that this pid namespace cannot see.
    let Some(pid) = Pid::from_raw(credentials.pid()).filter(|_| is_trusted) else { return Ok(None) };
    // The process is the one that connected, if it answers after this: see `Channel::receive`.
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return Ok(None) };
    Ok(Some((Channel::from(stream), Peer { pid, process })))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    use std::time::Duration;

    use super::*;
    use crate::channel::Message;

    #[test]
    fn own_processes_connect_and_are_named_even_with_a_long_path() {
        let directory = tempfile::tempdir().unwrap();
        let state_dir = directory.path().join("s".repeat(200));
        assert!(reach(&state_dir).is_err());
        std::fs::create_dir(&state_dir).unwrap();
        // The second one replaces the first, which has no server any longer.
        drop(serve(&state_dir).unwrap());
        assert!(reach(&state_dir).is_err());
        let server = serve(&state_dir).unwrap();
        let file = std::fs::symlink_metadata(state_dir.join(NAME)).unwrap();
        assert_eq!((file.permissions().mode() & 0o777, file.uid()), (0o600, geteuid().as_raw()));
        let client = reach(&state_dir).unwrap();
        let (channel, peer) = accept(&server).unwrap().unwrap();
        assert_eq!(peer.pid, rustix::process::getpid());
        client.send(&Message::Released, &[]).unwrap();
        assert_eq!(channel.receive(Duration::from_secs(1)).unwrap().0, Message::Released);
    }
}
