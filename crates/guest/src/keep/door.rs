//! The door through which a daemon reaches a keeper. The daemon takes the far end of a socket pair out of this process (`pidfd_getfd(2)`),
//! and passes one of its streams through it.
//!
//! Both ends stay here, so that the next daemon finds the far one at the same number. Only root of the host can take either: the keeper is
//! non-dumpable and starts no program that inherits a descriptor.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::IoSliceMut;
use rustix::net::sockopt::{socket_domain, socket_type};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg,
    socketpair,
};
use worker_protocol::keeper::DOOR;

pub(super) struct Door {
    near: OwnedFd,
    /// The far end, at [`DOOR`].
    far: OwnedFd,
}

impl Door {
    pub(super) fn make() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (near, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok(Self { near: crate::sys::above(near, DOOR)?, far: crate::sys::at(far, DOOR)? })
    }

    /// Returns the number of the far end, for the daemon.
    pub(super) fn number(&self) -> u32 {
        u32::try_from(self.far.as_raw_fd()).unwrap_or(0)
    }

    /// Returns the stream that a daemon has passed, if there is one now. Drops any other message.
    pub(super) fn take(&self) -> io::Result<Option<UnixStream>> {
        let mut byte = [0_u8; 1];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        match recvmsg(&self.near, &mut [IoSliceMut::new(&mut byte)], &mut control, flags) {
            Ok(_) => {}
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let passed = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut passed) => passed.next(),
            _ => None,
        });
        passed.filter(is_stream).map(stream).transpose()
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.near.as_fd()
    }
}

fn is_stream(fd: &OwnedFd) -> bool {
    socket_domain(fd).is_ok_and(|domain| domain == AddressFamily::UNIX)
        && socket_type(fd).is_ok_and(|kind| kind == SocketType::STREAM)
}

fn stream(fd: OwnedFd) -> io::Result<UnixStream> {
    let stream = UnixStream::from(fd);
    stream.set_nonblocking(true)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, Write as _};

    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

    use super::*;

    fn pass(door: &Door, fds: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
        }
        sendmsg(&door.far, &[IoSlice::new(b"x")], &mut control, SendFlags::empty()).unwrap();
    }

    #[test]
    fn only_streams_are_relayed() {
        let door = Door::make().unwrap();
        assert_eq!(door.number(), DOOR.unsigned_abs());
        assert!(door.take().unwrap().is_none());
        pass(&door, &[]);
        assert!(door.take().unwrap().is_none(), "a packet without a descriptor");
        pass(&door, &[std::fs::File::open("/dev/null").unwrap().as_fd()]);
        assert!(door.take().unwrap().is_none(), "no socket");
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        pass(&door, &[theirs.as_fd()]);
        drop(theirs);
        let passed = door.take().unwrap().unwrap();
        ours.write_all(b"hello").unwrap();
        let mut got = [0; 5];
        io::Read::read_exact(&mut &passed, &mut got).unwrap();
        assert_eq!(&got, b"hello");
    }
}
