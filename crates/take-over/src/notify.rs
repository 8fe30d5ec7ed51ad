//! Tells the service manager which process is the daemon, and that it is alive: sd_notify(3).

use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::process::Pid;

/// Name of the variable with the manager's socket.
pub(crate) const SOCKET: &str = "NOTIFY_SOCKET";

/// Time that the manager has to take a message.
const PATIENCE: Duration = Duration::from_secs(1);

/// Makes `pid` the main process of the service. Does nothing without a service manager.
pub(crate) fn main_process(pid: Pid) -> io::Result<()> {
    send(&format!("MAINPID={}", pid.as_raw_nonzero()))
}

/// Says that the process lives, while it watches a successor.
pub(crate) fn alive() {
    // A manager that cannot be reached ends the process, and the successor goes on.
    let _ = send("WATCHDOG=1");
}

fn send(state: &str) -> io::Result<()> {
    let Some(named) = env::var_os(SOCKET).filter(|named| !named.is_empty()) else { return Ok(()) };
    let address = match named.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(&named)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(PATIENCE))?;
    socket.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}
