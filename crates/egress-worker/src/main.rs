//! Program `coffer-egress`: `coffer-egress UID GID [unsteered]`, with the channel as its standard input.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use confinement::SetupError;
use confinement::sys::{Fork, close_from, fork};
use egress_worker::jail;
use egress_worker::serve::{Heard, ServeError, Started, Steered, runtime, serve};
use host_launch::{UNSTEERED, handles};
use rustix::fs::{Gid, Mode, OFlags, Uid, open};
use rustix::process::{Pid, Signal, WaitOptions, set_parent_process_death_signal, waitpid};
use rustix::stdio::{dup2_stderr, dup2_stdin, stdin};
use rustix::thread::set_name;
use thiserror::Error;

/// The error with which the process ends: one line on standard error, and an exit code.
#[derive(Debug, Error)]
enum Failure {
    #[error("usage: coffer-egress UID GID [unsteered]")]
    Args,
    #[error("cannot start: {0}")]
    Start(#[from] io::Error),
    #[error(transparent)]
    Setup(#[from] SetupError),
    #[error(transparent)]
    Serve(#[from] ServeError),
}

impl Failure {
    fn code(&self) -> u8 {
        match self {
            Self::Args => 2,
            Self::Setup(_) => 3,
            Self::Start(_) | Self::Serve(_) => 1,
        }
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::from(failure.code())
        }
    }
}

fn run() -> Result<ExitCode, Failure> {
    close_from(3)?;
    set_name(c"coffer-egress").map_err(io::Error::from)?;
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let is_steered = arguments.pop_if(|last| last == UNSTEERED).is_none();
    let number = |argument: &OsString| argument.to_str().and_then(|text| text.parse().ok());
    let ids: Option<Vec<u32>> = arguments.iter().map(number).collect();
    let Some([uid, gid]) = ids.as_deref() else { return Err(Failure::Args) };
    let (heard, link) = heard(is_steered)?;
    let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(io::Error::from)?;
    let channel = UnixStream::from(rustix::io::fcntl_dupfd_cloexec(stdin(), 3).map_err(io::Error::from)?);
    dup2_stdin(&null).map_err(io::Error::from)?;
    let started = Started::read(channel)?;
    let missing = jail::enter(Uid::from_raw(*uid), Gid::from_raw(*gid), started.max_connections())?;
    match fork()? {
        Fork::Parent(worker) => {
            drop((started, heard, link));
            keep(worker, null)
        }
        Fork::Child => {
            set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from)?;
            let runtime = runtime()?;
            let filters = jail::filters()?;
            // The daemon reads the line of an error in the set-up, and nothing later.
            dup2_stderr(&null).map_err(io::Error::from)?;
            drop(null);
            filters.install()?;
            serve(&runtime, started, heard, missing)?;
            // Held until here, so that the end of the daemon detaches nothing.
            drop(link);
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Receives the first handles. Returns them, and the link of the steering.
fn heard(is_steered: bool) -> io::Result<(Heard, Option<OwnedFd>)> {
    let invalid = |_| io::Error::from(io::ErrorKind::InvalidData);
    if is_steered {
        let all: [OwnedFd; 6] = handles::receive(stdin(), 6)?.try_into().map_err(invalid)?;
        let [handles, tcp, dns, v4, v6, link] = all;
        let steered = Some(Steered { tcp, dns, answers: [v4, v6] });
        return Ok((Heard { handles, steered }, Some(link)));
    }
    let [handles]: [OwnedFd; 1] = handles::receive(stdin(), 1)?.try_into().map_err(invalid)?;
    Ok((Heard { handles, steered: None }, None))
}

/// Waits for the worker and ends as it ended, as its parent. It gave up its privileges together with the worker.
fn keep(worker: Pid, null: OwnedFd) -> Result<ExitCode, Failure> {
    let filters = jail::filters()?;
    dup2_stderr(&null).map_err(io::Error::from)?;
    drop(null);
    filters.install()?;
    let status =
        rustix::io::retry_on_intr(|| waitpid(Some(worker), WaitOptions::empty())).map_err(io::Error::from)?;
    let code = status.and_then(|(_, status)| status.exit_status()).and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}
