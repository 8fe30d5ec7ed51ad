//! Starts `coffer-egress`, for the daemon.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use crate::{WorkerProcess, handles};

/// The name (`argv[0]`) of the process.
const PROGRAM: &str = "coffer-egress";

/// Starts an open file as `coffer-egress`, under a user and group with this id.
///
/// `sockets` are those of a steered network namespace: TCP, DNS, the raw sockets for answers, and the link.
pub fn start_egress(
    program: BorrowedFd<'_>,
    id: u32,
    sockets: [BorrowedFd<'_>; 5],
) -> io::Result<WorkerProcess> {
    let (channel, theirs) = UnixStream::pair()?;
    // Sent before there is a reader: a socket keeps one byte and its handles until then.
    handles::send(&channel, &sockets)?;
    let child = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()))
        .arg0(PROGRAM)
        .args([id.to_string(), id.to_string()])
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    Ok(WorkerProcess { channel, child })
}
