//! The keeper of a process that outlives its call: `coffer-guest keep`, one for each process.
//!
//! ```text
//!  engine's exec ─► hello ─► door ─► FRESH ─Start─► WAITING ─Go─► RUNNING ─► OVER ─Drain, Leave─► end
//!                             ▲
//!                             └── another stream of the daemon's, in every phase
//! ```
//!
//! The keeper is the parent of the process and owns the other ends of its pipes or its terminal. So the process needs neither a client nor
//! a daemon. Its output waits here until the daemon has it, within bounds. If no daemon comes, the process blocks like the writer of a full
//! pipe, and no output is lost.
//!
//! Commands of the run have the keeper's uid. They can kill it, which ends its process with it. They can neither read its memory nor send
//! messages in its name, because it is non-dumpable and its sockets have no name.
//!
//! The process of a session is a shell. Its keeper also has the way on which the shell gets its lines ([`control`]).
//!
//! The keeper has one thread and one loop ([`keeper`]). So a run at its limit of processes and threads keeps its processes.

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

/// Bytes that one read of the hello takes. A hello is short.
const READ: usize = 1024;

/// Exchanges hellos on descriptors 0 and 1, and then keeps a process until the daemon no longer needs it.
pub(crate) fn run() -> Result<(), Fault> {
    crate::sys::ignore_signals();
    let door = Door::make()?;
    if !greet(&door)? {
        return Ok(());
    }
    Keeper::new(door)?.run()
}

/// Answers the daemon's hello, and closes the engine's streams. Returns false if the input ended without a hello.
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
