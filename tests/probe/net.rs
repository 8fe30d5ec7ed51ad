//! Ways out over a network, and to sockets of others.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use crate::report;

const PATIENCE: Duration = Duration::from_secs(5);

/// Tries to reach each target: `tcp:ADDRESS`, `udp:ADDRESS`, `unix:PATH`, `abstract:NAME`, or `bind:ADDRESS`.
pub fn connect(targets: &[&str]) {
    for target in targets {
        let (kind, address) = target.split_once(':').unwrap();
        let reached = match kind {
            "tcp" => tcp(address.parse().unwrap()),
            "udp" => udp(address.parse().unwrap()),
            "bind" => std::net::TcpListener::bind(address).map(drop),
            "unix" => UnixStream::connect(Path::new(address)).map(drop),
            "abstract" => {
                abstract_address(address).and_then(|address| UnixStream::connect_addr(&address)).map(drop)
            }
            _ => panic!("{target}"),
        };
        report(target, reached);
    }
}

fn tcp(address: SocketAddr) -> io::Result<()> {
    TcpStream::connect_timeout(&address, PATIENCE)?.write_all(b"out")
}

fn udp(address: SocketAddr) -> io::Result<()> {
    let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any)?;
    socket.send_to(b"out", address).map(drop)
}

/// Listens under an abstract name, says so through the FIFO `ready`, and stays.
pub fn listen_abstract(name: &str, ready: &str) {
    let listener = abstract_address(name).and_then(|address| UnixListener::bind_addr(&address)).unwrap();
    std::fs::write(ready, "listening").unwrap();
    for stream in listener.incoming() {
        report("incoming", stream);
    }
}

fn abstract_address(name: &str) -> io::Result<UnixAddr> {
    UnixAddr::from_abstract_name(name)
}
