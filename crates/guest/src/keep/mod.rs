//! The keeper of a process that stays: `coffer-guest keep`, one for each process.
//!
//! ```text
//!  engine's exec ─► hello ─► door ─► FRESH ─Start─► WAITING ─Go─► RUNNING ─► OVER ─Drain, Leave─► end
//!                             ▲
//!                             └── another stream of the daemon's, in every phase
//! ```
//!
//! It is the parent of the process and owns the other ends of its pipes or its terminal, so the process needs neither a
//! client nor a daemon. What the process writes waits here until the daemon has it, within bounds: when no daemon comes,
//! the process waits as it would for the reader of a pipe, and nothing is lost.
//!
//! Commands of the run have the keeper's uid. They can kill it, which ends its process with it; they can neither read it
//! nor speak in its name, because it is non-dumpable and its sockets have no name.
//!
//! The keeper of a session, whose process is a shell, has one thing more: the way on which the shell gets its lines
//! ([`control`]).
//!
//! One thread and one loop ([`keeper`]), so that a run at its limit of processes and threads keeps its processes.

mod connection;
mod control;
mod door;
mod input;
mod keeper;
mod output;
mod process;

use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::stdio::{dup2_stdin, dup2_stdout};
use worker_protocol::frame::{FrameBuffer, encode};

use crate::fault::Fault;
use crate::hello;

use door::Door;
use keeper::Keeper;

/// A hello is short.
const READ: usize = 1024;

/// Greets on descriptors 0 and 1, and keeps a process until nobody needs anything of it.
pub(crate) fn run() -> Result<(), Fault> {
    crate::sys::ignore_signals();
    let door = Door::make()?;
    if !greet(&door)? {
        return Ok(());
    }
    Keeper::new(door)?.run()
}

/// Answers the daemon's hello, and leaves the streams that the engine made. False when there was none, but the end.
fn greet(door: &Door) -> Result<bool, Fault> {
    let mut frames = FrameBuffer::new();
    let mut bytes = [0; READ];
    let first = loop {
        if let Some(first) = frames.pop()? {
            break first;
        }
        let count = io::stdin().read(&mut bytes)?;
        if count == 0 {
            return Ok(false);
        }
        frames.extend(&bytes[..count]);
    };
    // The variables of the run come with the process.
    let (answer, _) = hello::answer(first, door.number())?;
    let answer = encode(&answer)?;
    let mut output =
        std::fs::File::from(fcntl_dupfd_cloexec(io::stdout().as_fd(), 3).map_err(io::Error::from)?);
    output.write_all(&answer)?;
    drop(output);
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null).map_err(io::Error::from)?;
    dup2_stdout(&null).map_err(io::Error::from)?;
    Ok(true)
}
