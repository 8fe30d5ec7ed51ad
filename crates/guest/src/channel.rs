//! The offer of a direct channel: a socket pair, one end of which the daemon may take out of this process.
//!
//! No other process can do so: the guest is non-dumpable, so its descriptors are out of reach for the commands in the container.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

/// Both ends of a channel, until the daemon says whether it took its end.
pub(crate) struct Offer {
    ours: OwnedFd,
    theirs: OwnedFd,
}

impl Offer {
    /// Makes an offer. `None` if there are no sockets: the first stream is enough.
    pub(crate) fn make() -> Option<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
        Some(Self { ours, theirs })
    }

    /// Returns the descriptor by which the daemon finds its end.
    pub(crate) fn number(&self) -> u32 {
        u32::try_from(self.theirs.as_raw_fd()).unwrap_or(0)
    }

    /// Keeps this end after the daemon took its own. Closes the copy of the daemon's end, so that a hang-up is noticed.
    pub(crate) fn taken(self) -> io::Result<tokio::net::UnixStream> {
        drop(self.theirs);
        tokio::net::UnixStream::from_std(std::os::unix::net::UnixStream::from(self.ours))
    }
}
