//! Attempts of a process within the jail. The test needs root, as the daemon does.
#![allow(clippy::unwrap_used, clippy::expect_used)] // also outside of test functions

use std::fs::File;
use std::io;
use std::net::{SocketAddrV4, TcpListener};
use std::os::unix::net::UnixStream;
use std::process::exit;

use confinement::sys::{Fork, fork};
use egress_worker::jail;
use rustix::fs::{Gid, Uid};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Protocol, SocketType, bind, connect, ipproto, listen, socket};
use rustix::process::{WaitOptions, waitpid};

/// Number of the first attempt that did not end as it has to; 0 if all did.
fn attempt(elsewhere: SocketAddrV4, before: &File) -> i32 {
    let refused = |result: Result<(), Errno>| result == Err(Errno::PERM);
    let refused_by_std =
        |result: io::Result<()>| result.is_err_and(|error| error.raw_os_error() == Some(libc::EPERM));
    let unix = |kind| socket(AddressFamily::UNIX, kind, None).map(drop);
    let tcp = |protocol: Option<Protocol>| socket(AddressFamily::INET, SocketType::STREAM, protocol);
    let Ok(stream) = tcp(None) else { return 1 };
    match () {
        () if connect(&stream, &elsewhere).is_err() => 2,
        () if tcp(Some(ipproto::TCP)).is_err() => 3,
        () if !refused_by_std(File::open("/etc/passwd").map(drop)) => 4,
        () if !refused_by_std(std::fs::read_dir("/").map(drop)) => 5,
        () if !refused_by_std(std::fs::write("/x", "x")) => 6,
        // A descriptor from before opens nothing beneath it.
        () if !refused(rustix::fs::openat(before, "etc", rustix::fs::OFlags::RDONLY, 0.into()).map(drop)) => {
            7
        }
        () if !refused_by_std(fork().map(drop)) => 8,
        () if std::thread::Builder::new().spawn(|| {}).is_ok() => 9,
        () if !refused(tcp(None).and_then(|new| bind(&new, &elsewhere))) => 10,
        () if !refused(tcp(None).and_then(|new| listen(&new, 1))) => 11,
        () if !refused(unix(SocketType::STREAM)) || !refused(unix(SocketType::DGRAM)) => 12,
        () if !refused_by_std(UnixStream::connect("/run/docker.sock").map(drop)) => 13,
        () if !refused_by_std(UnixStream::pair().map(drop)) => 14,
        () if !refused(socket(AddressFamily::INET, SocketType::DGRAM, None).map(drop)) => 15,
        () if !refused(socket(AddressFamily::INET6, SocketType::RAW, Some(ipproto::RAW)).map(drop)) => 16,
        () if !refused(socket(AddressFamily::NETLINK, SocketType::RAW, None).map(drop)) => 17,
        () if !refused(socket(AddressFamily::PACKET, SocketType::RAW, None).map(drop)) => 18,
        () if !refused(tcp(Some(ipproto::MPTCP)).map(drop)) => 19,
        () if !refused(rustix::process::kill_process(
            rustix::process::getpid(),
            rustix::process::Signal::HUP,
        )) =>
        {
            20
        }
        () if !refused(rustix::process::setpgid(None, None)) => 21,
        () => 0,
    }
}

/// Enters the jail, and makes the attempts in it.
fn enter_and_attempt(elsewhere: SocketAddrV4) -> i32 {
    let before = File::open("/").unwrap();
    jail::enter(Uid::from_raw(64_321), Gid::from_raw(64_321), 16).unwrap();
    match fork().unwrap() {
        Fork::Child => {
            if File::open("/etc/passwd").is_ok() || std::fs::read_dir("/").unwrap().next().is_some() {
                exit(98);
            }
            if rustix::process::getpid().as_raw_nonzero().get() != 1 {
                exit(97);
            }
            jail::filters().unwrap().install().unwrap();
            exit(attempt(elsewhere, &before));
        }
        Fork::Parent(worker) => {
            let status = waitpid(Some(worker), WaitOptions::empty()).unwrap().unwrap().1;
            status.exit_status().unwrap_or(99)
        }
    }
}

#[test]
fn a_process_in_the_jail_connects_and_does_nothing_else() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let std::net::SocketAddr::V4(elsewhere) = listener.local_addr().unwrap() else { unreachable!() };
    match fork().unwrap() {
        Fork::Child => exit(enter_and_attempt(elsewhere)),
        Fork::Parent(jailed) => {
            let status = waitpid(Some(jailed), WaitOptions::empty()).unwrap().unwrap().1;
            assert_eq!(status.exit_status(), Some(0));
        }
    }
}
