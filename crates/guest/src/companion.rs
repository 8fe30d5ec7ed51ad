//! `coffer-guest companion`: becomes the program of a companion, or of a check of one.
//!
//! The daemon sends program, variables and directory on standard input. So the engine knows none of the variables, which may be secret,
//! and neither does any argument list. The program gets an empty standard input.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::stdio::{dup2_stdin, stdin};
use wire::worker::v1::CompanionProgram;
use worker_protocol::frame::FrameBuffer;

use crate::fault::Fault;

/// Time in which the whole message has to come.
const WITHIN: Duration = Duration::from_secs(30);

/// Becomes the program. Returns only if that is not possible.
pub(crate) fn run() -> ExitCode {
    let program = match receive() {
        Ok(program) => program,
        Err(fault) => {
            eprintln!("coffer-guest: {fault}");
            return ExitCode::FAILURE;
        }
    };
    let CompanionProgram { args, env, directory } = program;
    let Some((name, rest)) = args.split_first() else {
        eprintln!("coffer-guest: a program without a name");
        return ExitCode::FAILURE;
    };
    let error = Command::new(name).args(rest).env_clear().envs(env).current_dir(directory).exec();
    eprintln!("coffer-guest: cannot execute {name}: {error}");
    // As shells say it.
    ExitCode::from(if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 })
}

/// Reads the message, and gives the program an empty standard input.
fn receive() -> Result<CompanionProgram, Fault> {
    let until = Instant::now() + WITHIN;
    let mut buffer = FrameBuffer::new();
    let mut bytes = [0; 4096];
    let program = loop {
        if let Some(program) = buffer.pop()? {
            break program;
        }
        let left = until.saturating_duration_since(Instant::now());
        let wait = Timespec::try_from(left).map_err(io::Error::other)?;
        let mut ready = [PollFd::from_borrowed_fd(stdin(), PollFlags::IN)];
        if left.is_zero() || poll(&mut ready, Some(&wait)).map_err(io::Error::from)? == 0 {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
        match rustix::io::read(stdin(), &mut bytes).map_err(io::Error::from)? {
            0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            read => buffer.extend(&bytes[..read]),
        }
    };
    let null = open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(io::Error::from)?;
    dup2_stdin(&null).map_err(io::Error::from)?;
    Ok(program)
}
