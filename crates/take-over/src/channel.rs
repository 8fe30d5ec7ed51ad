//! Messages between two daemons, or a daemon and a request for an upgrade: JSON in packets, with descriptors.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::{Deserialize, Serialize};

use crate::Formats;

/// Largest message, bytes.
const MESSAGE: usize = 64 * 1024;
/// Most descriptors of a message.
const DESCRIPTORS: usize = 32;

/// A message. Descriptors are sent beside it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Message {
    /// Request: what would not survive an upgrade to a program with these formats?
    Check { formats: Formats },
    /// Answer to `Check`.
    Report { version: String, hindrances: Vec<String>, ends: Vec<String> },
    /// Request: start this program as the successor.
    Upgrade { program: PathBuf, formats: Formats },
    /// A program with these formats wants to be the successor.
    Take { formats: Formats },
    /// The request is refused, and nothing has changed.
    Refused { why: String },
    /// The daemon hands over. Has a descriptor for each listener, in this order: names and addresses.
    Listeners { of: Vec<(String, String)> },
    /// The daemon uses its state no longer.
    Released,
    /// The successor serves. Also the end of an upgrade, for the one who asked.
    Ready,
    /// The successor fails. Also the end of an upgrade, for the one who asked.
    Failed { why: String },
    /// To the program that watches a successor. Descriptors: the successor's channel, its process, the channel of the one who
    /// asked for an upgrade if there is one, and the listeners.
    Watch { pid: i32, has_requester: bool, config: PathBuf, kept: PathBuf, of: Vec<(String, String)> },
    /// To the daemon that goes on after a successor failed. Has the listeners, too.
    Resume { why: String, of: Vec<(String, String)> },
}

/// Reason that a message cannot be exchanged.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    #[error("the other process closed the connection")]
    Closed,
    #[error("the other process did not answer in time")]
    Late,
    #[error("the other process sent something that is no message of this version")]
    Unknown,
    #[error("the connection to the other process failed")]
    Io(#[from] io::Error),
}

impl From<Errno> for ChannelError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::PIPE | Errno::CONNRESET => Self::Closed,
            other => Self::Io(other.into()),
        }
    }
}

/// One end of a connection that keeps the bounds of messages.
#[derive(Debug)]
pub(crate) struct Channel(OwnedFd);

impl From<OwnedFd> for Channel {
    fn from(socket: OwnedFd) -> Self {
        Self(socket)
    }
}

impl From<Channel> for OwnedFd {
    fn from(channel: Channel) -> Self {
        channel.0
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Channel {
    pub(crate) fn pair() -> io::Result<(Self, Self)> {
        let (one, other) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self(one), Self(other)))
    }

    /// Sends a message. Does not wait: an end that takes nothing is an error.
    pub(crate) fn send(&self, message: &Message, descriptors: &[BorrowedFd<'_>]) -> Result<(), ChannelError> {
        let bytes = serde_json::to_vec(message).map_err(io::Error::from)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fits = descriptors.is_empty() || ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
        if !fits || descriptors.len() > DESCRIPTORS || bytes.len() > MESSAGE {
            return Err(io::Error::from(io::ErrorKind::InvalidInput).into());
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        retry_on_intr(|| sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut ancillary, flags))?;
        Ok(())
    }

    /// Waits for a message.
    pub(crate) fn receive(&self, patience: Duration) -> Result<(Message, Vec<OwnedFd>), ChannelError> {
        if !is_readable(self.as_fd(), patience)? {
            return Err(ChannelError::Late);
        }
        let mut bytes = vec![0; MESSAGE];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received =
            retry_on_intr(|| recvmsg(&self.0, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags))?;
        let mut descriptors = Vec::new();
        for part in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(handles) = part {
                descriptors.extend(handles);
            }
        }
        if received.bytes == 0 {
            return Err(ChannelError::Closed);
        }
        if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
            return Err(ChannelError::Unknown);
        }
        let message = serde_json::from_slice(&bytes[..received.bytes]).map_err(|_| ChannelError::Unknown)?;
        Ok((message, descriptors))
    }

    /// Returns true while the other end is open.
    pub(crate) fn is_open(&self) -> bool {
        let mut polled = [PollFd::new(&self.0, PollFlags::RDHUP)];
        match retry_on_intr(|| poll(&mut polled, Some(&Timespec::default()))) {
            Ok(_) => !polled[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR),
            Err(_) => false,
        }
    }
}

/// Waits until the descriptor can be read. Returns false if that takes longer than `patience`.
pub(crate) fn is_readable(descriptor: BorrowedFd<'_>, patience: Duration) -> io::Result<bool> {
    let until = Instant::now() + patience;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).unwrap_or_default();
        match poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    const SOON: Duration = Duration::from_millis(20);

    #[test]
    fn a_message_comes_with_its_descriptors_and_an_end_is_noticed() {
        let (one, other) = Channel::pair().unwrap();
        let file = File::open("/dev/null").unwrap();
        let message = Message::Listeners { of: vec![("api".to_owned(), "unix:/run/a.sock".to_owned())] };
        one.send(&message, &[file.as_fd()]).unwrap();
        let (received, descriptors) = other.receive(SOON).unwrap();
        assert_eq!((received, descriptors.len()), (message, 1));
        assert!(matches!(other.receive(SOON), Err(ChannelError::Late)));
        assert!(other.is_open());
        // A message that was sent before the end is still received.
        one.send(&Message::Released, &[]).unwrap();
        drop(one);
        assert!(!other.is_open());
        assert_eq!(other.receive(SOON).unwrap().0, Message::Released);
        assert!(matches!(other.receive(SOON), Err(ChannelError::Closed)));
        assert!(matches!(other.send(&Message::Ready, &[]), Err(ChannelError::Closed)));
    }

    #[test]
    fn anything_else_is_refused_and_its_descriptors_closed() {
        let (one, other) = Channel::pair().unwrap();
        for bytes in [&b"{}"[..], b"\"nonsense\"", &[0xff; 10], &vec![b' '; MESSAGE + 1]] {
            rustix::net::send(&one, bytes, SendFlags::empty()).unwrap();
            assert!(matches!(other.receive(SOON), Err(ChannelError::Unknown)), "{}", bytes.len());
        }
        let long = Message::Refused { why: "x".repeat(MESSAGE) };
        assert!(matches!(one.send(&long, &[]), Err(ChannelError::Io(_))));
        let file = File::open("/dev/null").unwrap();
        assert!(one.send(&Message::Released, &[file.as_fd(); DESCRIPTORS + 1]).is_err());
    }

    #[test]
    fn an_end_that_takes_nothing_holds_nobody_up() {
        let (one, _other) = Channel::pair().unwrap();
        let sent = (0..100_000).map(|_| one.send(&Message::Released, &[])).find(Result::is_err);
        assert!(
            matches!(sent, Some(Err(ChannelError::Io(error))) if error.kind() == io::ErrorKind::WouldBlock)
        );
    }
}
