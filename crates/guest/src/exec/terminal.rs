//! A terminal for a command: a pty of the container, whose master side is here.
//!
//! The guest never blocks on the master. Input that the program does not read stays in the queue, and then with the daemon. The other side
//! also stays open here until the end. So a program that closes all of its standard streams and later opens `/dev/tty` finds its terminal
//! again.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use operations::{Reason, ToolFailure};
use rustix::fs::{Mode, OFlags, fstat, major, minor, open};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getsid, kill_process_group};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, ptsname, unlockpt};
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, OutputModes, Winsize, tcgetattr, tcgetpgrp, tcgetsid, tcsetattr,
    tcsetwinsize,
};
use tokio::net::unix::pipe;
use worker_protocol::terminal::{TerminalSignal, TerminalSize};

use crate::outbox::Outbox;
use crate::sys;
use crate::terminal_input::TerminalInput;

pub(crate) struct Pty {
    /// The guest's side. It does not block.
    master: OwnedFd,
    slave: OwnedFd,
}

impl Pty {
    /// Opens a new terminal with the size that the input asks for.
    pub(super) fn open(input: &TerminalInput) -> Result<Self, ToolFailure> {
        let pty = pair().map_err(not_opened)?;
        obey(&pty.master, input);
        Ok(pty)
    }

    /// Opens a new terminal of this size, for a caller that reads and writes the master itself.
    pub(crate) fn sized(size: TerminalSize) -> Result<Self, ToolFailure> {
        let pty = pair().map_err(not_opened)?;
        pty.resize(size);
        Ok(pty)
    }

    /// Turns off the echo of input and the translation of newlines in the output.
    pub(crate) fn plain(&self) -> io::Result<()> {
        let mut modes = tcgetattr(&self.slave)?;
        modes.local_modes.remove(LocalModes::ECHO | LocalModes::ECHONL);
        modes.output_modes.remove(OutputModes::ONLCR);
        Ok(tcsetattr(&self.slave, OptionalActions::Now, &modes)?)
    }

    /// Sets the size. A closed terminal ignores it.
    pub(crate) fn resize(&self, size: TerminalSize) {
        let _ = tcsetwinsize(&self.master, winsize(size));
    }

    /// Returns a copy of the master. It does not block.
    pub(crate) fn copy(&self) -> io::Result<OwnedFd> {
        self.master.try_clone()
    }

    /// Returns the command's end, for its standard streams.
    pub(crate) fn end(&self) -> io::Result<OwnedFd> {
        sys::above_stdio(self.slave.try_clone()?)
    }

    /// Returns the stream of the terminal's output. It is read like a pipe.
    pub(super) fn shows(&self) -> io::Result<pipe::Receiver> {
        pipe::Receiver::from_owned_fd_unchecked(self.master.try_clone()?)
    }

    pub(super) fn keys(&self) -> io::Result<pipe::Sender> {
        pipe::Sender::from_owned_fd_unchecked(self.master.try_clone()?)
    }

    /// Tells the foreground processes that the line is gone.
    pub(super) fn hang_up(&self) {
        signal(&self.master, Signal::HUP);
        // A stopped process handles it only after it continues.
        signal(&self.master, Signal::CONT);
    }
}

impl AsFd for Pty {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.master.as_fd()
    }
}

fn pair() -> Result<Pty, Errno> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags)?;
    unlockpt(&master)?;
    // Through the master itself, because the container could replace the file at a path.
    let slave = match ioctl_tiocgptpeer(&master, flags) {
        Err(Errno::NOTTY) => by_name(&master)?,
        opened => opened?,
    };
    rustix::io::ioctl_fionbio(&master, true)?;
    let mut modes = tcgetattr(&slave)?;
    // Erasing removes whole characters.
    modes.input_modes |= InputModes::IUTF8;
    tcsetattr(&slave, OptionalActions::Now, &modes)?;
    Ok(Pty { master, slave })
}

/// Opens the other side in gVisor, which supports only its name.
///
/// No process in a container can mount over that name, and no command may write in `/dev`. The opened device is checked all the same.
fn by_name(master: &OwnedFd) -> Result<OwnedFd, Errno> {
    /// Linux's major number of these devices.
    const UNIX98: u32 = 136;
    let name = ptsname(master, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let slave = open(name.as_c_str(), flags, Mode::empty())?;
    let device = fstat(&slave)?.st_rdev;
    let number = name.to_str().ok().and_then(|name| name.rsplit('/').next()?.parse().ok());
    if major(device) == UNIX98 && Some(minor(device)) == number { Ok(slave) } else { Err(Errno::NXIO) }
}

fn not_opened(errno: Errno) -> ToolFailure {
    let (reason, why) = match errno {
        Errno::NOENT | Errno::NXIO | Errno::NODEV | Errno::ACCESS | Errno::PERM => {
            (Reason::Internal, "this container has none (no usable /dev/ptmx)")
        }
        Errno::NOSPC | Errno::MFILE | Errno::NFILE | Errno::NOMEM => {
            (Reason::Overloaded, "too many are open; close one and try again")
        }
        _ => (Reason::Internal, "the kernel refused it"),
    };
    ToolFailure::new(reason, format!("the terminal could not be opened: {why}"))
        .with("errno", errno.raw_os_error().to_string())
}

/// Forwards input, sizes and signals to a terminal until it is closed.
pub(super) async fn attend(id: u64, input: Arc<TerminalInput>, keys: pipe::Sender, outbox: Outbox) {
    forward_input(id, input, keys, outbox, |keys, input| obey(keys, input)).await;
}

/// Forwards input to a pipe, which has no size and no foreground.
pub(super) async fn pass(id: u64, input: Arc<TerminalInput>, stdin: pipe::Sender, outbox: Outbox) {
    forward_input(id, input, stdin, outbox, |_, input| drop(input.orders())).await;
}

async fn forward_input(
    id: u64,
    input: Arc<TerminalInput>,
    keys: pipe::Sender,
    outbox: Outbox,
    heed: impl Fn(&pipe::Sender, &TerminalInput),
) {
    loop {
        heed(&keys, &input);
        tokio::select! {
            biased;
            () = input.news() => {}
            ready = keys.writable(), if input.has_input() => {
                if ready.is_err() {
                    return;
                }
                let taken = input.take(|bytes| match keys.try_write(bytes) {
                    Ok(count) => count,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
                    // No process can read it. Drop the input, so that the sender does not wait.
                    Err(_) => bytes.len(),
                });
                if taken > 0 {
                    outbox.taken(id, taken).await;
                }
            }
        }
    }
}

/// Executes orders. A closed terminal ignores them, like a line that was hung up.
fn obey(master: impl AsFd, input: &TerminalInput) {
    let orders = input.orders();
    if let Some(size) = orders.size {
        let _ = tcsetwinsize(&master, winsize(size));
    }
    for wanted in orders.signals {
        signal(&master, kernels(wanted));
    }
}

/// Sends a signal to the foreground process group.
fn signal(master: impl AsFd, signal: Signal) {
    if let Some(group) = foreground(master) {
        let _ = kill_process_group(group, signal);
    }
}

/// Returns the foreground process group, if it is of the terminal's session. The kernel accepts no other.
///
/// The kernel still names a group after its last process has ended. The number may belong to another group by then, which has another
/// session.
pub(crate) fn foreground(master: impl AsFd) -> Option<Pid> {
    let (group, session) = (tcgetpgrp(&master).ok()?, tcgetsid(&master).ok()?);
    let is_anothers = getsid(Some(group)).is_ok_and(|of_group| of_group != session);
    (!is_anothers).then_some(group)
}

fn winsize(size: TerminalSize) -> Winsize {
    Winsize { ws_row: size.rows(), ws_col: size.columns(), ws_xpixel: 0, ws_ypixel: 0 }
}

fn kernels(signal: TerminalSignal) -> Signal {
    match signal {
        TerminalSignal::Hup => Signal::HUP,
        TerminalSignal::Int => Signal::INT,
        TerminalSignal::Quit => Signal::QUIT,
        TerminalSignal::Kill => Signal::KILL,
        TerminalSignal::Term => Signal::TERM,
        TerminalSignal::Cont => Signal::CONT,
        TerminalSignal::Tstp => Signal::TSTP,
        TerminalSignal::Winch => Signal::WINCH,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_also_found_by_its_name() {
        let device = |fd: &OwnedFd| fstat(fd).map(|stat| (stat.st_dev, stat.st_ino, stat.st_rdev)).unwrap();
        let (one, other) = (pair().unwrap(), pair().unwrap());
        for pty in [&one, &other] {
            assert_eq!(device(&by_name(&pty.master).unwrap()), device(&pty.slave));
        }
        assert_ne!(device(&one.slave), device(&other.slave));
    }
}
