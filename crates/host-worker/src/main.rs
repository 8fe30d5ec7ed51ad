#![doc = include_str!("../README.md")]

mod child;
mod copying;
mod fill;
mod git;
mod job;
mod layer;
mod location;
mod order;
mod ready;
mod receive;
mod recovery;
mod restore;
mod save;
mod serve;
mod setup;
mod sys;
mod tree;
mod tree_stream;
mod turns;
mod way_out;
mod worker_pool;

use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use prost::Message as _;
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, WaitOptions, set_parent_process_death_signal, waitpid};
use rustix::stdio::{dup2_stderr, dup2_stdin, stdin};
use rustix::thread::set_name;
use thiserror::Error;

use confinement::SetupError;
use confinement::sys::{Fork, close_from, fork};
use host_launch::Report;
use host_launch::ancestry;
use host_launch::args::{Args, BadArgs, Task};
use host_launch::handles;
use way_out::{WayOut, WaysOut};

/// Time after which a walk over commits ends by itself, seconds. The daemon ends it much earlier.
const ABANDONED: u32 = 60;

/// The error with which the host worker ends: one line on standard error, and an exit code.
#[derive(Debug, Error)]
enum Failure {
    #[error(transparent)]
    Args(#[from] BadArgs),
    #[error("cannot start: {0}")]
    Start(#[from] io::Error),
    #[error(transparent)]
    Setup(#[from] SetupError),
    #[error(transparent)]
    Serve(#[from] serve::ServeError),
    #[error("{0}")]
    Clone(git::CloneFailure),
    #[error("{0}")]
    Mirrored(git::CloneFailure),
    #[error(transparent)]
    Mirror(#[from] git::MirrorFailure),
    #[error(transparent)]
    Layer(#[from] layer::LayerFailure),
    #[error(transparent)]
    Tree(#[from] tree::TreeFailure),
    #[error(transparent)]
    Receive(#[from] receive::ReceiveFailure),
    #[error(transparent)]
    Fill(#[from] fill::FillFailure),
}

impl Failure {
    fn code(&self) -> u8 {
        match self {
            Self::Args(_) => 2,
            Self::Setup(_) => 3,
            Self::Clone(git::CloneFailure::Excess(_)) | Self::Mirrored(git::CloneFailure::Excess(_)) => {
                git::EXCESS
            }
            Self::Mirror(failure) => failure.code(),
            // After the first, the daemon does not use the mirror again.
            Self::Mirrored(git::CloneFailure::Library(_)) | Self::Start(_) | Self::Serve(_) => 1,
            Self::Clone(_)
            | Self::Mirrored(_)
            | Self::Layer(_)
            | Self::Tree(_)
            | Self::Receive(_)
            | Self::Fill(_) => 4,
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
    set_name(c"coffer-host-worker").map_err(io::Error::from)?;
    let args = Args::parse(std::env::args_os().skip(1))?;
    let has_further = args.task.has_further_handle();
    let mut handles = handles::receive(stdin(), args.jail_mounts.len() + usize::from(has_further))?;
    let further = if has_further { handles.pop() } else { None };
    let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(io::Error::from)?;
    let report = setup::enter(&args, &handles)?;
    drop(handles);
    match fork()? {
        Fork::Parent(host_worker) => {
            // Handles are for the host worker alone.
            drop(further);
            keep(host_worker, null)
        }
        Fork::Child => {
            set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from)?;
            work(args.task, report, null, further)
        }
    }
}

/// Waits for the host worker and ends as it ended, as its parent. It gave up its privileges together with the host worker.
fn keep(host_worker: Pid, null: OwnedFd) -> Result<ExitCode, Failure> {
    dup2_stdin(&null).map_err(io::Error::from)?;
    dup2_stderr(&null).map_err(io::Error::from)?;
    drop(null);
    let status = rustix::io::retry_on_intr(|| waitpid(Some(host_worker), WaitOptions::empty()))
        .map_err(io::Error::from)?;
    let code = status.and_then(|(_, status)| status.exit_status()).and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

fn work(task: Task, report: Report, null: OwnedFd, further: Option<OwnedFd>) -> Result<ExitCode, Failure> {
    match task {
        Task::Report => eprintln!("{report}"),
        Task::Recover => {
            dup2_stdin(null).map_err(io::Error::from)?;
            recovery::claim_private()?;
            setup::ChildFilter::new()?.forbid_processes()?;
            if let Some(words) = child::recover_everything()? {
                eprintln!("{words}");
            }
        }
        Task::Clone { revision, work_tree, most } => {
            dup2_stdin(null).map_err(io::Error::from)?;
            setup::ChildFilter::new()?.forbid_processes()?;
            git::clone(&revision, &work_tree, most).map_err(Failure::Clone)?;
        }
        Task::Mirror { url, most, seconds } => {
            let socket = further.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
            dup2_stdin(null).map_err(io::Error::from)?;
            setup::ChildFilter::new()?.forbid_processes()?;
            let deadline = Instant::now() + Duration::from_secs(seconds.into());
            git::refresh_mirror(&url, most, &WayOut::new(Some(socket), deadline))?;
        }
        Task::CloneMirror { url, revision, depth, most, seconds } => {
            // A process of a killed daemon would keep its mirror and its workspace busy.
            sys::end_after(seconds);
            setup::ChildFilter::new()?.forbid_processes()?;
            let commit = git::clone_mirror(&url, &revision, depth, most).map_err(Failure::Mirrored)?;
            let found = wire::v1::CloneWorkspace { revision: commit.to_string(), ..Default::default() };
            layer::answer(&found.encode_to_vec())?;
        }
        Task::Identify { revision, work_tree } => {
            setup::ChildFilter::new()?.forbid_processes()?;
            let revision = git::identity(&revision, &work_tree).map_err(Failure::Clone)?;
            let found = wire::v1::CloneWorkspace { revision, ..Default::default() };
            layer::answer(&found.encode_to_vec())?;
        }
        Task::Ancestry(pairs) => {
            setup::limit_memory()?;
            // A FIFO among the objects would keep a process of a killed daemon forever.
            sys::end_after(ABANDONED);
            setup::ChildFilter::new()?.forbid_processes()?;
            layer::answer(&ancestry::answers_to_bytes(&git::ancestry(&pairs)).encode_to_vec())?;
        }
        Task::PreviewPush(updates) => {
            setup::limit_memory()?;
            sys::end_after(ABANDONED);
            setup::ChildFilter::new()?.forbid_processes()?;
            layer::answer(&git::preview_push(&updates).encode_to_vec())?;
        }
        Task::Copy(most) | Task::Digest(most) => {
            setup::ChildFilter::new()?.forbid_processes()?;
            let tree = if matches!(task, Task::Copy(_)) { tree::copy(most) } else { tree::digest(most) };
            layer::answer(&tree?.encode_to_vec())?;
        }
        Task::Export(most) | Task::Import(most) => {
            let stream = further.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
            setup::ChildFilter::new()?.forbid_processes()?;
            let found = match task {
                Task::Export(_) => tree::send(stream, most)?,
                _ => receive::receive(stream, most)?,
            };
            layer::answer(&found.encode_to_vec())?;
        }
        Task::Fill => {
            setup::ChildFilter::new()?.forbid_processes()?;
            fill::fill()?;
        }
        Task::Restore { is_layer } => {
            setup::ChildFilter::new()?.forbid_processes()?;
            restore::restore(is_layer)?;
        }
        Task::Save(most, marks) => {
            setup::ChildFilter::new()?.forbid_processes()?;
            layer::answer(&save::save(most, marks)?.encode_to_vec())?;
        }
        Task::Diff(..) | Task::Accept(..) | Task::Measure | Task::Read(_) | Task::MakeLogs => {
            setup::ChildFilter::new()?.forbid_processes()?;
            match task {
                Task::Diff(since, most) => layer::diff(since, most)?,
                Task::Accept(since, force) => layer::accept(since, force)?,
                Task::Read(path) => layer::read(&path)?,
                Task::MakeLogs => layer::make_logs()?,
                _ => layer::measure()?,
            }
        }
        Task::Serve { .. } => {
            // No library may write to the operator's terminal, and no later file may become descriptor 2.
            dup2_stderr(&null).map_err(io::Error::from)?;
            drop(null);
            recovery::claim_private()?;
            let further = further.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
            serve::serve(stdin(), WaysOut::new(further))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
