//! Passes directory handles over the channel, in the first message, before any frame.
//!
//! With handles instead of paths, exactly the directory that the daemon has verified is mounted, whatever happens to its name
//! meanwhile.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

const MOST: usize = 8;
const MARK: u8 = b'H';

/// Sends the handles with one byte.
pub fn send(channel: impl AsFd, handles: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(handles)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many handles"));
    }
    sendmsg(channel, &[IoSlice::new(&[MARK])], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives exactly `count` handles.
pub fn receive(channel: impl AsFd, count: usize) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut mark = [0];
    let message = rustix::io::retry_on_intr(|| {
        recvmsg(&channel, &mut [IoSliceMut::new(&mut mark)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    let handles: Vec<OwnedFd> = ancillary
        .drain()
        .filter_map(|part| match part {
            RecvAncillaryMessage::ScmRights(handles) => Some(handles),
            _ => None,
        })
        .flatten()
        .collect();
    if message.bytes == 1 && mark == [MARK] && handles.len() == count {
        Ok(handles)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidData, "not the expected directory handles"))
    }
}
