//! The way to the shell of a session: a socket that is its standard input. Its terminal is for the commands that it runs.
//!
//! The shell gets the daemon's lines here, so a command that uses its standard input does not disturb them. A socket cannot be opened
//! through `/proc`, and no program of the container may take descriptors of another process. So only the shell itself can read a line, and
//! only this process can write one.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, Shutdown, SocketFlags, SocketType, send, shutdown, socketpair};

use crate::sys;

/// Most bytes that wait for the shell.
const MOST: usize = 1 << 20;

/// Message of ash when it ignores an end of its input.
const IGNORED: &[u8] = b"Use \"exit\" to leave shell.";

/// Returns true if the shell says that it ignores an end of its input.
///
/// To an ash whose input is no terminal, each background job that ends while it waits for a line looks like that end: the signal interrupts
/// its `fgets`. It ignores 50 of them in a row, and any line starts the count again. So the session still ends after more than 50 of them
/// if this keeper does not run in between.
pub(super) fn is_end_ignored(shown: &[u8]) -> bool {
    shown.windows(IGNORED.len()).any(|window| window == IGNORED)
}

pub(super) struct Control {
    ours: OwnedFd,
    waiting: VecDeque<u8>,
}

impl Control {
    /// Makes the socket pair. Also returns the shell's end.
    pub(super) fn make() -> io::Result<(Self, OwnedFd)> {
        let (ours, shells) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        // The shell sends nothing here. A write to it fails instead of waiting.
        shutdown(&ours, Shutdown::Read)?;
        Ok((Self { ours, waiting: VecDeque::new() }, sys::above_stdio(shells)?))
    }

    /// Queues a line. With `if_read` it does so only if the shell has read everything before it.
    ///
    /// Returns whether the shell has read everything, or `None` if the line does not fit.
    pub(super) fn put(&mut self, data: &[u8], if_read: bool) -> Option<bool> {
        let idle = self.waiting.is_empty() && sys::is_read(self.ours.as_fd()).unwrap_or(true);
        if idle || !if_read {
            if self.waiting.len() + data.len() > MOST {
                return None;
            }
            self.waiting.extend(data);
        }
        Some(idle)
    }

    pub(super) fn has_something(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Sends as much as the shell accepts. Returns false if no process has the shell's end open.
    pub(super) fn write(&mut self) -> bool {
        loop {
            let next = self.waiting.as_slices().0;
            // Do not send an empty message: it would not show that the other end is closed.
            if next.is_empty() {
                return true;
            }
            match send(&self.ours, next, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => drop(self.waiting.drain(..count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ours.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn a_line_that_waits_for_the_last_one_is_not_there_before_it_was_read() {
        let (mut control, shells) = Control::make().unwrap();
        let mut shell = File::from(shells);
        assert_eq!(control.put(b"a\n", false), Some(true));
        assert!(control.write() && !control.has_something());
        assert_eq!(control.put(b"b\n", true), Some(false), "the first line is unread");
        assert!(!control.has_something());
        let mut line = [0; 2];
        shell.read_exact(&mut line).unwrap();
        assert_eq!(control.put(b"c\n", true), Some(true));
        assert!(control.write());
        shell.read_exact(&mut line).unwrap();
        assert_eq!(&line, b"c\n");
    }

    #[test]
    fn pending_commands_are_bounded_and_lost_shell_is_noticed() {
        let (mut control, shells) = Control::make().unwrap();
        assert_eq!(control.put(&vec![0; MOST], false), Some(true));
        assert_eq!(control.put(b"x", false), None);
        assert!(control.write() && control.has_something(), "the socket takes less than all");
        assert!(File::from(shells.try_clone().unwrap()).write_all(b"x").is_err(), "it has nothing to say");
        drop(shells);
        assert!(!control.write());
    }
}
