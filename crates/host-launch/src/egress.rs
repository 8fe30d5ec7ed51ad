//! Starts `coffer-egress`, for the daemon.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use crate::{WorkerProcess, handles, numbered};

/// The name (`argv[0]`) of the process.
const PROGRAM: &str = "coffer-egress";
/// Third argument of a process that serves no network namespace.
pub const UNSTEERED: &str = "unsteered";

/// A started `coffer-egress`.
#[derive(Debug)]
pub struct EgressProcess {
    pub worker: WorkerProcess,
    /// The end over which [`numbered::send`] passes further handles.
    pub handles: OwnedFd,
}

/// Starts an open file as `coffer-egress`, under a user and group with this id.
///
/// `sockets` are those of a steered network namespace: TCP, DNS, the raw sockets for answers, and the link. Without them it serves only
/// connections that the daemon gives it.
pub fn start_egress(
    program: BorrowedFd<'_>,
    id: u32,
    sockets: Option<[BorrowedFd<'_>; 5]>,
) -> io::Result<EgressProcess> {
    let (channel, theirs) = UnixStream::pair()?;
    let (ours, further) = numbered::pair()?;
    // Sent before there is a reader: a socket keeps one byte and its handles until then.
    match sockets {
        Some([tcp, dns, v4, v6, link]) => {
            handles::send(&channel, &[further.as_fd(), tcp, dns, v4, v6, link])?;
        }
        None => handles::send(&channel, &[further.as_fd()])?,
    }
    let child = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()))
        .arg0(PROGRAM)
        .args([id.to_string(), id.to_string()])
        .args(sockets.is_none().then_some(UNSTEERED))
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    Ok(EgressProcess { worker: WorkerProcess { channel, handles: None, child }, handles: ours })
}
