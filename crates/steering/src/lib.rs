#![doc = include_str!("../README.md")]

mod bpf;
mod program;
mod remedy;
mod route;

pub use remedy::kernel_version;

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::Duration;

use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::socket::{setsockopt, sockopt};
use rustix::fs::{Mode, OFlags, open};
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepidle, set_tcp_keepintvl};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, ipproto, listen, socket_with};
use thiserror::Error;

/// Time without a packet after which a program is probed.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Connections that wait to be accepted.
const BACKLOG: i32 = 1_024;
/// Address of the loopback interface in a namespace that is tried (RFC 5737).
const TRIED: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// Error of a step. The namespace is not steered after it.
#[derive(Debug, Error)]
#[error("{step}: {source}")]
pub struct SteeringError {
    step: &'static str,
    source: io::Error,
}

/// Sockets to which a network namespace is steered, and the link that steers.
///
/// The steering ends when all copies of `link` are closed. Connections are refused then, because a route makes every address local.
#[derive(Debug)]
pub struct Steered {
    /// Listening TCP socket for IPv4 and IPv6. The local address of an accepted socket is the destination that the program meant.
    pub tcp: OwnedFd,
    /// UDP socket for queries over IPv4 and IPv6. `IPV6_PKTINFO` of a query has the address that was asked.
    pub dns: OwnedFd,
    /// Raw IPv4 and IPv6 sockets for answers. They take whole packets, so that an answer comes from the address that was asked.
    pub answers: [OwnedFd; 2],
    /// BPF link of the program.
    pub link: OwnedFd,
}

/// Steers the network namespace of a process: each TCP connection and DNS query that is not for the loopback.
///
/// `process` is a pidfd. It needs `CAP_SYS_ADMIN`, `CAP_NET_ADMIN`, `CAP_NET_RAW` and `CAP_BPF`, and Linux 5.9. The loopback interface gets
/// `address`, because C libraries ask for IPv4 addresses of a name only on a host that has one itself (`AI_ADDRCONFIG`, getaddrinfo(3)).
pub fn steer(process: BorrowedFd<'_>, address: Ipv4Addr) -> Result<Steered, SteeringError> {
    in_thread(|| {
        setns(process, CloneFlags::CLONE_NEWNET).map_err(step("entering the network namespace"))?;
        steer_thread(address)
    })
}

/// Tries the steering in a new network namespace, which ends with the call.
pub fn probe() -> Result<(), SteeringError> {
    in_thread(|| {
        unshare(CloneFlags::CLONE_NEWNET).map_err(step("making a network namespace"))?;
        steer_thread(TRIED).map(drop)
    })
}

/// Runs `work` in a new thread, because it moves its thread into another namespace.
fn in_thread<T: Send>(work: impl FnOnce() -> Result<T, SteeringError> + Send) -> Result<T, SteeringError> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("steering".to_owned()).spawn_scoped(scope, work);
        let thread = thread.map_err(step("starting a thread"))?;
        thread.join().unwrap_or_else(|_| Err(step("steering")(io::Error::other("the thread panicked"))))
    })
}

/// Steers the namespace of this thread.
fn steer_thread(address: Ipv4Addr) -> Result<Steered, SteeringError> {
    let namespace = open("/proc/thread-self/ns/net", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(step("opening the network namespace"))?;
    let tcp = socket(SocketType::STREAM).map_err(step("making the TCP socket"))?;
    keep_alive(&tcp).map_err(step("making the TCP socket"))?;
    listen(&tcp, BACKLOG).map_err(step("listening"))?;
    let dns = socket(SocketType::DGRAM).map_err(step("making the UDP socket"))?;
    setsockopt(&dns, sockopt::Ipv6RecvPacketInfo, &true).map_err(step("making the UDP socket"))?;
    let answers = [raw(AddressFamily::INET), raw(AddressFamily::INET6)];
    let [v4, v6] = answers.map(|socket| socket.map_err(step("making the raw sockets")));
    route::make_all_local().map_err(step("adding the route"))?;
    route::add_address(address).map_err(step("adding the address"))?;
    let sockets =
        bpf::SocketMap::new([tcp.as_fd(), dns.as_fd()]).map_err(step("making the map of sockets"))?;
    let program = bpf::load(&program::steer(&sockets)).map_err(step("loading the program"))?;
    let link = bpf::attach(program.as_fd(), namespace.as_fd()).map_err(step("attaching the program"))?;
    Ok(Steered { tcp, dns, answers: [v4?, v6?], link })
}

/// Makes a socket for IPv4 and IPv6, at a port that the kernel chooses.
fn socket(kind: SocketType) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::INET6, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    rustix::net::sockopt::set_ipv6_v6only(&socket, false)?;
    bind(&socket, &SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0))?;
    Ok(socket)
}

/// Has the kernel probe the programs of accepted connections, which inherit these options.
///
/// A program that has closed its side may wait for an answer, or may have left. Only a probe tells the two apart, once the kernel has
/// forgotten the connection of a program that left.
fn keep_alive(socket: &OwnedFd) -> io::Result<()> {
    set_socket_keepalive(socket, true)?;
    set_tcp_keepidle(socket, KEEPALIVE)?;
    set_tcp_keepintvl(socket, KEEPALIVE)?;
    Ok(())
}

/// Makes a socket that sends whole packets.
fn raw(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(family, SocketType::RAW, flags, Some(ipproto::RAW))?)
}

fn step<E: Into<io::Error>>(name: &'static str) -> impl FnOnce(E) -> SteeringError {
    move |source| SteeringError { step: name, source: source.into() }
}

#[cfg(test)]
mod tests;
