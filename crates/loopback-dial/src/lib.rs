#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![allow(missing_docs)] // only the daemon calls it

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use nix::sched::{CloneFlags, setns};
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Time for each of the two addresses.
const CONNECT: Duration = Duration::from_secs(5);

/// Reason that there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The process has ended, or the daemon lacks a privilege.
    #[error("the network namespace cannot be entered")]
    Namespace(#[source] io::Error),
    /// No server accepts.
    #[error("no server accepts the connection")]
    Server(#[source] io::Error),
}

/// Connects to `port` of the loopback interface in the namespace of `network`, a pidfd.
///
/// It tries 127.0.0.1, then ::1.
pub async fn dial(network: OwnedFd, port: u16) -> Result<TcpStream, DialError> {
    let [v4, v6] = sockets(network).await.map_err(DialError::Namespace)?;
    let mut failure = io::Error::from(io::ErrorKind::ConnectionRefused);
    for (socket, address) in [(v4, IpAddr::from(Ipv4Addr::LOCALHOST)), (v6, Ipv6Addr::LOCALHOST.into())] {
        // A kernel without IPv6 has no socket for it.
        let Ok(socket) = socket else { continue };
        let socket = TcpSocket::from_std_stream(socket.into());
        match timeout(CONNECT, socket.connect(SocketAddr::new(address, port))).await {
            Ok(Ok(stream)) => {
                // Without it, small messages would wait for acknowledgements.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Ok(Err(error)) if address.is_ipv4() => failure = error,
            // A container without IPv6 has no ::1.
            Ok(Err(_)) => {}
            Err(_) => failure = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(DialError::Server(failure))
}

/// Makes a socket for IPv4 and one for IPv6 in the namespace, which they never leave.
///
/// A new thread makes them, because it moves into that namespace.
async fn sockets(network: OwnedFd) -> io::Result<[io::Result<OwnedFd>; 2]> {
    let (made, sockets) = oneshot::channel();
    let work = move || {
        let entered = setns(&network, CloneFlags::CLONE_NEWNET).map_err(io::Error::from);
        let socket = |family| {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP)).map_err(io::Error::from)
        };
        // The client may have left.
        let _ = made.send(entered.map(|()| [AddressFamily::INET, AddressFamily::INET6].map(socket)));
    };
    thread::Builder::new().name("dial".to_owned()).spawn(work)?;
    sockets.await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
    use std::os::fd::OwnedFd;
    use std::process::{Child, Command, Stdio};

    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    use super::{DialError, dial};

    /// A process with a separate network namespace, which ends with the value.
    struct Apart(Child);

    impl Apart {
        fn new() -> Self {
            let script = "ip link set lo up || ifconfig lo up; echo up; exec sleep 60";
            let mut child = Command::new("unshare")
                .args(["--net", "sh", "-c", script])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut line = String::new();
            std::io::BufRead::read_line(
                &mut std::io::BufReader::new(child.stdout.take().unwrap()),
                &mut line,
            )
            .unwrap();
            assert_eq!(line, "up\n");
            Self(child)
        }

        fn network(&self) -> OwnedFd {
            of(self.0.id())
        }
    }

    impl Drop for Apart {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    fn of(pid: u32) -> OwnedFd {
        pidfd_open(Pid::from_raw(pid.try_into().unwrap()).unwrap(), PidfdFlags::empty()).unwrap()
    }

    #[tokio::test]
    async fn a_server_on_either_loopback_address_is_found() {
        for address in [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), (Ipv6Addr::LOCALHOST, 0).into()] {
            let server = TcpListener::bind(address).unwrap();
            let found = dial(of(std::process::id()), server.local_addr().unwrap().port()).await.unwrap();
            assert_eq!(found.peer_addr().unwrap(), server.local_addr().unwrap());
        }
    }

    #[tokio::test]
    async fn servers_of_the_host_are_not_reached_from_another_namespace() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = server.local_addr().unwrap().port();
        let apart = Apart::new();
        let DialError::Server(error) = dial(apart.network(), port).await.unwrap_err() else {
            panic!("it was not entered")
        };
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
        // And this thread is where it was.
        assert!(std::net::TcpStream::connect(server.local_addr().unwrap()).is_ok());
    }

    #[tokio::test]
    async fn a_process_that_has_ended_has_no_network() {
        let mut child = Command::new("true").spawn().unwrap();
        let network = of(child.id());
        child.wait().unwrap();
        assert!(matches!(dial(network, 80).await, Err(DialError::Namespace(_))));
    }
}
