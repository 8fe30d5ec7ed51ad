//! Runs one command.
//!
//! ```text
//! planned ─► spawned ─► (placed: Spawned … Go) ─► running ─► ended by itself │ forced
//!                                                                │
//!                  outcome ◄─ drained ◄─ nothing left ◄──────────┘ (placed: Ended … Go; else: ended here)
//!                  outcome ◄─ (placed) drained already, ended by itself
//! ```
//!
//! Output frames carry all bytes that it writes, and the result has their number. To end a command means to end everything that it started.
//! A background process never keeps a call open. It outlives the call only if the profile keeps it and the daemon has moved it into another
//! cgroup. A command at a terminal differs in two ways: its streams lead to the terminal, and it is hung up on first.

mod attach;
mod end;
mod output;
mod plan;
mod program;
mod space;
mod terminal;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use jail::SandboxPath;
use operations::{CommandLimits, Environment, Exec, KillEvidence, Limit, Reason, Shell, ToolFailure};
use rustix::io::Errno;
use rustix::process::Signal as Kernels;
use tokio::io::AsyncReadExt;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use wire::worker::v1::CommandReport;
use wire::worker::v1::command_report::Stop;

pub(crate) use plan::prepare;
pub(crate) use terminal::{Pty, foreground};

use crate::call::{Call, Signal};
use crate::exec::attach::{Attached, Given, attach};
use crate::exec::program::{CANNOT_RUN, NO_PROGRAM};
use crate::lane::Lane;
use crate::streams;
use crate::sys::{Exit, Spawned};
use crate::terminal_input::TerminalInput;

/// Time in which the daemon has to answer. It has its own grace and bounds, and a daemon that takes longer is lost.
const DAEMON_PATIENCE: Duration = Duration::from_secs(15);
/// Time in which a file system has to report its free space. Only one on another machine takes longer.
const SPACE: Duration = Duration::from_millis(200);
/// Time in which an ended process is reaped, unless the kernel blocks it.
const REAP: Duration = Duration::from_secs(1);
/// Time between the hang-up of a terminal and the next step to end its command.
const HANG_UP: Duration = Duration::from_millis(500);

/// A command from its fork to its end.
struct Running {
    exited: oneshot::Receiver<Exit>,
    attached: Attached,
    began: Instant,
}

/// Reason that a command ends.
enum End {
    /// The command ended by itself.
    Natural(Option<Exit>),
    TimedOut,
    /// The daemon cancelled the call, or the command wrote more than it may.
    Forced,
}

/// What was found when nothing of a command was to be left.
struct Cleared {
    kill: KillEvidence,
    by_daemon: bool,
}

impl Default for Cleared {
    /// Nothing is left in this process's sight, and the daemon looks for itself.
    fn default() -> Self {
        Self { kill: KillEvidence::default(), by_daemon: true }
    }
}

/// Runs the command to its end, and the end of everything that it started.
pub(crate) async fn run(call: &mut Call, lane: &Lane, mut exec: Exec) -> Result<CommandReport, ToolFailure> {
    let until = Some(exec.timeout);
    let given = match exec.stdin_file.take() {
        Some(path) => Given::File(input_file(call, lane, path).await?, lane.threads.clone()),
        None => Given::Bytes(std::mem::take(&mut exec.stdin)),
    };
    conduct(call, lane, exec, until, given).await
}

/// Opens the file that a command reads as its standard input, with the checks of `read`.
async fn input_file(call: &Call, lane: &Lane, path: SandboxPath) -> Result<File, ToolFailure> {
    let (mounts, bounds) = (lane.mounts.clone(), call.bounds.clone());
    let opened = lane.threads.run(move || -> Result<File, ToolFailure> {
        let jail = Lane::jail(mounts.iter(), &bounds);
        Ok(jail.readable(&path)?.open_file()?.file)
    });
    opened.await.unwrap_or_else(|_| Err(ToolFailure::new(Reason::Cancelled, "the guest is ending")))
}

/// Runs the command, or the login shell, at a terminal or on pipes that a client writes to, until the call's deadline.
pub(crate) async fn session(
    call: &mut Call,
    lane: &Lane,
    input: Arc<TerminalInput>,
    mut exec: Exec,
) -> Result<CommandReport, ToolFailure> {
    if input.login_shell {
        let shell = program::login_shell()?;
        if exec.args.is_empty() {
            exec.env.extend(program::READS_NOTHING.map(|(name, value)| (name.to_owned(), value.to_owned())));
        }
        exec.args = program::terminal_options(shell, &exec.args);
        shell.clone_into(&mut exec.command);
    }
    let given = if input.pipes { Given::Said(input) } else { Given::Terminal(Pty::open(&input)?, input) };
    conduct(call, lane, exec, None, given).await
}

async fn conduct(
    call: &mut Call,
    lane: &Lane,
    exec: Exec,
    limit: Option<Duration>,
    given: Given,
) -> Result<CommandReport, ToolFailure> {
    // Whatever comes in between, it is this call's.
    let waiting = lane.preforks.take(call.prepared);
    let command = text::excerpt(&exec.command);
    let terminal = given.terminal().map_err(|error| not_forked(&error))?;
    let plan = plan::make(call, lane, exec, terminal).await?;
    let ready = waiting.and_then(|waiting| waiting.become_command(&plan, &lane.children));
    let (spawned, mut exited) = match ready {
        Some(ready) => ready,
        None => lane.children.spawn(&plan).map_err(|error| not_forked(&error))?,
    };
    drop(plan);
    let Spawned { pid, pipes, go, fault } = spawned;
    if let Some(go) = go {
        admitted(call, pid, go, &mut exited).await?;
    }
    if let Err(failure) = started(fault, call.deadline, &command).await {
        lane.children.signal(pid, Kernels::KILL);
        return Err(failure);
    }
    let began = Instant::now();
    let attached = attach(call, given, pipes).map_err(|error| {
        lane.children.signal(pid, Kernels::KILL);
        not_forked(&error)
    })?;
    let mut running = Running { exited, attached, began };

    let deadline = limit.map_or(call.deadline, |limit| call.deadline.min(began + limit));
    let end = running.ended(call, deadline).await;
    let (stop, mut exit) = match end {
        End::Natural(exit) => (Stop::Itself, Some(exit)),
        End::TimedOut => (Stop::Deadline, None),
        End::Forced => (Stop::Stopped, None),
    };
    let forced = stop != Stop::Itself;
    if let (Some(pty), true) = (&running.attached.terminal, forced) {
        // Twice: a shell that gets the signal just before it reads notices it only after the next key.
        for _ in 0..2 {
            lane.children.signal(pid, Kernels::HUP);
            lane.children.signal(pid, Kernels::CONT);
            pty.hang_up();
            exit = timeout(HANG_UP / 2, &mut running.exited).await.ok().map(Result::ok);
            if exit.is_some() {
                break;
            }
        }
    }
    let over =
        matches!(exit, Some(Some(_))) && !forced && call.placed && running.attached.has_said_all().await;
    // The daemon ends or keeps the remaining processes, and needs nothing else from the guest.
    let drain = if over || forced { None } else { running.attached.drain() };
    let drain_pid = drain.as_ref().map_or(0, |drain| drain.pid);
    let mut cleared = if over { Cleared::default() } else { clear(call, lane, pid, forced, drain_pid).await };
    let exit = match exit {
        Some(exit) => exit,
        None => timeout(REAP, &mut running.exited).await.ok().and_then(Result::ok),
    };
    if exit.is_none() {
        cleared.kill.left = cleared.kill.left.max(1);
    }
    let wall = running.began.elapsed();
    let (stdout_bytes, stderr_bytes) = running.attached.finish(call, forced, &cleared.kill).await;
    // From here on the drain reads the rest of the output and drops it.
    drop(drain);
    let failed = exit.is_none_or(|exit| exit.code != Some(0));
    let full = if failed { full(lane).await } else { Vec::new() };
    Ok(CommandReport {
        exit_code: exit.and_then(|exit| exit.code),
        signal: exit.and_then(|exit| exit.signal),
        stop: stop.into(),
        stdout_bytes,
        stderr_bytes,
        cpu_time_us: exit.map_or(0, |exit| micros(exit.cpu)),
        peak_memory_bytes: exit.map_or(0, |exit| exit.peak_memory),
        wall_time_us: micros(wall),
        kill: (!cleared.by_daemon).then_some(cleared.kill),
        full: full.into_iter().map(Into::into).collect(),
    })
}

/// Runs a shell script like a command: with bash, or with the image's `sh` where there is none.
pub(crate) async fn shell(call: &mut Call, lane: &Lane, shell: Shell) -> Result<CommandReport, ToolFailure> {
    let exec = of_script(shell, &lane.environment())?;
    run(call, lane, exec).await
}

/// Returns the command that runs a script.
pub(crate) fn of_script(shell: Shell, run: &Environment) -> Result<Exec, ToolFailure> {
    let Shell { script, cwd, env, stdin, stdin_file, timeout } = shell;
    let command = program::login_shell()?.to_owned();
    let home = env.get("HOME").map(String::as_str).or_else(|| run.get("HOME"));
    let option = program::script_option(home.unwrap_or(plan::home())).to_owned();
    Ok(Exec { cwd, env, stdin, stdin_file, timeout, ..Exec::new(command, [option, script]) })
}

/// Returns the command for the shell of a session: an interactive shell without a prompt.
///
/// It reads no startup files, because no reviewer has consented to them.
pub(crate) fn of_session(cwd: SandboxPath, mut env: BTreeMap<String, String>) -> Result<Exec, ToolFailure> {
    let command = program::login_shell()?.to_owned();
    let options: &[&str] =
        if command == "bash" { &["--noprofile", "--norc", "--noediting", "-i"] } else { &["-i"] };
    for (name, value) in [("PS1", ""), ("PS2", ""), ("ENV", "/dev/null")] {
        env.insert(name.to_owned(), value.to_owned());
    }
    Ok(Exec {
        cwd,
        env,
        timeout: CommandLimits::LONGEST_TIMEOUT,
        ..Exec::new(command, options.iter().copied())
    })
}

impl Running {
    async fn ended(&mut self, call: &mut Call, deadline: Instant) -> End {
        tokio::select! {
            biased;
            exit = &mut self.exited => End::Natural(exit.ok()),
            () = sleep_until(deadline) => End::TimedOut,
            () = call.cancelled() => End::Forced,
            () = self.attached.pumps.over_limit() => End::Forced,
        }
    }
}

/// Waits until the daemon has put the command into its cgroup, and lets it run.
///
/// In every other case `go` is dropped, which ends the command before it has run a single instruction of its program.
async fn admitted(
    call: &mut Call,
    pid: i32,
    go: OwnedFd,
    exited: &mut oneshot::Receiver<Exit>,
) -> Result<(), ToolFailure> {
    call.outbox.spawned(call.id, pid).await;
    let signal = tokio::select! {
        signal = call.signals.recv() => signal,
        () = sleep_until(call.deadline) => {
            return Err(ToolFailure::new(Reason::TimedOut, "the command did not begin before the call's deadline"));
        }
        _ = exited => return Err(ToolFailure::new(Reason::Internal, "the command was killed before it began")),
    };
    match signal {
        Some(Signal::Go(_)) => {
            // If the reader is gone, the next step notices it.
            let _ = rustix::io::write(&go, &[1]);
            Ok(())
        }
        Some(Signal::Cancel) | None => {
            Err(ToolFailure::new(Reason::Cancelled, "cancelled before the command began; nothing has run"))
        }
    }
}

/// Waits until the program has replaced the guest's copy, or failed to.
async fn started(fault: OwnedFd, deadline: Instant, command: &str) -> Result<(), ToolFailure> {
    let read = async {
        let mut errno = Vec::with_capacity(4);
        streams::input(fault)?.take(4).read_to_end(&mut errno).await?;
        Ok::<_, io::Error>(errno)
    };
    match timeout_at(deadline, read).await {
        Ok(Ok(errno)) => match <[u8; 4]>::try_from(errno) {
            Ok(errno) => Err(not_started(command, Errno::from_raw_os_error(i32::from_ne_bytes(errno)))),
            Err(_) => Ok(()),
        },
        Ok(Err(error)) => Err(not_forked(&error)),
        Err(_) => {
            Err(ToolFailure::new(Reason::TimedOut, format!("{command}: did not begin before the deadline")))
        }
    }
}

pub(crate) fn not_started(command: &str, errno: Errno) -> ToolFailure {
    let (reason, why, code) = match errno {
        Errno::NOENT => {
            (Reason::NotFound, "it, or the loader that it names, does not exist in this image", NO_PROGRAM)
        }
        Errno::ACCESS | Errno::PERM => (
            Reason::PermissionDenied,
            "permission denied: it may not be executed (mode, or a noexec mount)",
            CANNOT_RUN,
        ),
        Errno::NOTDIR => (Reason::NotFound, "a part of its path is not a directory", NO_PROGRAM),
        Errno::LOOP => (Reason::NotFound, "its path has too many links", CANNOT_RUN),
        Errno::NOEXEC => (
            Reason::InvalidArgument,
            "it is not a program for this machine: neither a binary for its processor, nor a script with \
             `#!`, nor text for /bin/sh",
            CANNOT_RUN,
        ),
        Errno::TXTBSY => (Reason::PreconditionFailed, "it is open for writing; try again", CANNOT_RUN),
        Errno::TOOBIG => (Reason::InvalidArgument, "its arguments and environment are too long", CANNOT_RUN),
        Errno::NOMEM | Errno::AGAIN => {
            (Reason::Overloaded, "the run is out of memory or processes", CANNOT_RUN)
        }
        _ => (Reason::Internal, "the kernel refused to execute it", CANNOT_RUN),
    };
    let message = format!("{command}: {why}");
    program::unusable(reason, &message, code).with("errno", errno.raw_os_error().to_string())
}

pub(crate) fn not_forked(error: &io::Error) -> ToolFailure {
    let why = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::AGAIN) => "the run has its maximum of processes",
        Some(Errno::NOMEM) => "the run is out of memory",
        _ => &error.to_string(),
    };
    ToolFailure::new(
        Reason::Overloaded,
        format!(
            "the command could not be started: {why}; wait until a running command ends, or cancel one, and try again"
        ),
    )
}

/// Returns the limits of file systems that have no space left. A disk that does not answer is not reported as full.
async fn full(lane: &Lane) -> Vec<Limit> {
    let mounts = lane.mounts.clone();
    let looked = timeout(SPACE, lane.threads.run(move || space::full(&mounts))).await;
    looked.ok().and_then(Result::ok).unwrap_or_default()
}

/// Makes sure that nothing of the command is left, but what may stay. `drain` is the reader of its pipes, or 0.
async fn clear(call: &mut Call, lane: &Lane, pid: i32, forced: bool, drain: u32) -> Cleared {
    if call.placed {
        call.outbox.ended(call.id, forced, drain).await;
        if let Ok(Some(kill)) = timeout(DAEMON_PATIENCE, evidence(call)).await {
            return Cleared { kill, by_daemon: true };
        }
    }
    Cleared { kill: end::end(lane, pid, forced).await, by_daemon: false }
}

/// Waits for the daemon's result. `None` if the daemon is gone or found out nothing.
async fn evidence(call: &mut Call) -> Option<KillEvidence> {
    loop {
        match call.signals.recv().await? {
            Signal::Go(evidence) => return evidence,
            Signal::Cancel => call.is_cancelled = true,
        }
    }
}

pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
