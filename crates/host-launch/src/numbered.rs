//! Passes handles to a live process over a pair of sockets, one at a time, each with a number.
//!
//! Frames of the process's channel refer to the number. A message is the number in eight bytes, big-endian, and exactly one handle.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

const NUMBER: usize = size_of::<u64>();
/// Space for more handles than are valid, so that they are seen.
const SPACE: usize = 2;

/// Returns both ends. Neither of them waits.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Sends a handle. The error is `WouldBlock` while the other end has too many that it has not received.
pub fn send(to: impl AsFd, number: u64, handle: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let handles = [handle];
    if !ancillary.push(SendAncillaryMessage::ScmRights(&handles)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(to, &[IoSlice::new(&number.to_be_bytes())], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a handle. `None` if the other end is closed. The error is `WouldBlock` if there is none, and `InvalidData` for another message.
pub fn receive(from: impl AsFd) -> io::Result<Option<(u64, OwnedFd)>> {
    let mut bytes = [0; NUMBER];
    let (length, handles, is_cut) = receive_message(from, &mut bytes)?;
    if length == 0 && handles.is_empty() {
        return Ok(None);
    }
    match <[OwnedFd; 1]>::try_from(handles) {
        Ok([handle]) if length == NUMBER && !is_cut => Ok(Some((u64::from_be_bytes(bytes), handle))),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "not a number and one handle")),
    }
}

/// Receives a message: its length, its handles, and true if a part of it was cut.
pub(crate) fn receive_message(from: impl AsFd, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>, bool)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SPACE))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let message = rustix::io::retry_on_intr(|| {
        recvmsg(&from, &mut [IoSliceMut::new(bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    let mut handles = Vec::new();
    for part in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = part {
            handles.extend(received);
        }
    }
    let is_cut = message.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
    Ok((message.bytes, handles, is_cut))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Sends bytes with this number of handles.
    fn send_raw(to: &OwnedFd, bytes: &[u8], count: usize) {
        let file = std::fs::File::open("/dev/null").unwrap();
        let handles = vec![file.as_fd(); count];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(count == 0 || ancillary.push(SendAncillaryMessage::ScmRights(&handles)));
        sendmsg(to, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL).unwrap();
    }

    #[test]
    fn a_handle_comes_with_its_number_and_stays_usable() {
        let (ours, theirs) = pair().unwrap();
        let (mut one, two) = UnixStream::pair().unwrap();
        for number in [1, u64::MAX] {
            send(&ours, number, two.as_fd()).unwrap();
        }
        drop(two);
        assert_eq!(receive(&theirs).unwrap().unwrap().0, 1);
        let (number, two) = receive(&theirs).unwrap().unwrap();
        assert_eq!(number, u64::MAX);
        UnixStream::from(two).write_all(b"hello").unwrap();
        let mut read = String::new();
        one.read_to_string(&mut read).unwrap();
        assert_eq!(read, "hello");
        assert_eq!(receive(&theirs).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(ours);
        assert!(receive(&theirs).unwrap().is_none());
    }

    #[test]
    fn other_messages_are_refused_and_their_handles_closed() {
        let (ours, theirs) = pair().unwrap();
        let number = 1_u64.to_be_bytes();
        let long = vec![0; 64 * 1024];
        for (bytes, count) in [
            (&number[..], 0),
            (&number[..], 2),
            (&number[..], 8),
            (&number[..7], 1),
            (&[0; 9][..], 1),
            (&long[..], 0),
        ] {
            send_raw(&ours, bytes, count);
            assert_eq!(receive(&theirs).unwrap_err().kind(), io::ErrorKind::InvalidData, "{count}");
        }
        assert_eq!(receive(&theirs).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
