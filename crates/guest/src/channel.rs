//! The offer of a direct channel: a socket pair, of which the daemon may take its end out of this process.
//!
//! Nobody else can: the guest is non-dumpable, so that its descriptors are out of reach for what runs beside it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

/// Both ends of a channel, until the daemon has said whether it took its own.
pub(crate) struct Offer {
    ours: OwnedFd,
    theirs: OwnedFd,
}

impl Offer {
    /// `None` where there are no sockets: the first stream is enough.
    pub(crate) fn make() -> Option<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
        Some(Self { ours, theirs })
    }

    /// The number by which the daemon finds its end.
    pub(crate) fn number(&self) -> u32 {
        u32::try_from(self.theirs.as_raw_fd()).unwrap_or(0)
    }

    /// The daemon has its end: the copy of it goes, so that its hanging up is seen.
    pub(crate) fn taken(self) -> io::Result<tokio::net::UnixStream> {
        drop(self.theirs);
        tokio::net::UnixStream::from_std(std::os::unix::net::UnixStream::from(self.ours))
    }
}
