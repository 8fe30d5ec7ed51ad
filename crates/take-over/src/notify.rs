//! Tells the service manager which process is the daemon, and that it is alive: sd_notify(3).

use std::env;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::AsFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::io::retry_on_intr;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::Pid;

use crate::channel::{Channel, is_readable};

/// Name of the variable with the manager's socket.
pub(crate) const SOCKET: &str = "NOTIFY_SOCKET";

/// Time that the manager has to take a message.
const PATIENCE: Duration = Duration::from_secs(1);

/// Makes `pid` the main process of the service, and waits until the manager knows that. Does nothing without a service manager.
///
/// A request to stop that the manager sent to this process until then has arrived. Each later one goes to `pid`.
pub(crate) fn main_process(pid: Pid) -> io::Result<()> {
    send(&format!("MAINPID={}", pid.as_raw_nonzero()))?;
    if let Some(manager) = manager()? {
        // A manager that does not know the message closes the descriptor as well.
        let _ = barrier(&manager);
    }
    Ok(())
}

/// Waits until the manager has read all earlier messages: it then closes the descriptor of this one.
fn barrier(manager: &UnixDatagram) -> io::Result<()> {
    let (ours, theirs) = Channel::pair()?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [theirs.as_fd()];
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    let text = [IoSlice::new(b"BARRIER=1")];
    retry_on_intr(|| sendmsg(manager, &text, &mut ancillary, SendFlags::NOSIGNAL))?;
    drop(theirs);
    is_readable(ours.as_fd(), PATIENCE).map(drop)
}

/// Says that the process lives, while it watches a successor.
pub(crate) fn alive() {
    // A manager that cannot be reached ends the process, and the successor goes on.
    let _ = send("WATCHDOG=1");
}

fn send(state: &str) -> io::Result<()> {
    manager()?.map_or(Ok(()), |manager| manager.send(state.as_bytes()).map(drop))
}

/// Returns a connection to the service manager; `None` without one.
fn manager() -> io::Result<Option<UnixDatagram>> {
    let Some(named) = env::var_os(SOCKET).filter(|named| !named.is_empty()) else { return Ok(None) };
    let address = match named.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(&named)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(PATIENCE))?;
    socket.connect_addr(&address)?;
    Ok(Some(socket))
}

#[cfg(test)]
mod tests {
    use std::io::IoSliceMut;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use rustix::net::{RecvAncillaryBuffer, RecvFlags, recvmsg};

    use super::*;

    #[test]
    fn a_barrier_waits_until_the_manager_has_read_it() {
        let (ours, manager) = UnixDatagram::pair().unwrap();
        let has_read = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut text = [0; 64];
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
                let mut ancillary = RecvAncillaryBuffer::new(&mut space);
                let flags = RecvFlags::CMSG_CLOEXEC;
                let received =
                    recvmsg(&manager, &mut [IoSliceMut::new(&mut text)], &mut ancillary, flags).unwrap();
                assert_eq!(&text[..received.bytes], b"BARRIER=1");
                thread::sleep(Duration::from_millis(50));
                has_read.store(true, Ordering::SeqCst);
                ancillary.drain().for_each(drop);
            });
            barrier(&ours).unwrap();
            assert!(has_read.load(Ordering::SeqCst));
        });
    }

    #[test]
    fn a_manager_that_does_not_answer_is_waited_for_a_limited_time() {
        let (ours, _manager) = UnixDatagram::pair().unwrap();
        barrier(&ours).unwrap();
    }
}
