//! The process of a keeper, from its start before its first instruction to its end.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use operations::{Bounds, Environment, Exec, Process as Wanted, ProcessProgram, Reason, ToolFailure};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use seccompiler::BpfProgram;
use worker_protocol::terminal::TerminalSize;

use crate::args::Mounts;
use crate::exec::{self, Pty};
use crate::keep::control::Control;
use crate::sys::{self, Exit, Pipes, Spawned};

/// Value of `TERM` for a program on a terminal, unless the request sets another.
const TERM: &str = "xterm-256color";

pub(super) struct Process {
    pid: Pid,
    /// Readable when the process has ended.
    handle: OwnedFd,
    command: String,
    go: Option<OwnedFd>,
    /// Reports whether the program runs. `None` when that is known.
    fault: Option<File>,
    /// Standard input. `None` after it was closed.
    pub(super) stdin: Option<File>,
    /// Standard output and standard error. Each is `None` after its end.
    pub(super) streams: [Option<File>; 2],
    /// Open until all processes have ended.
    terminal: Option<Pty>,
    /// Sends the shell of a session its lines. `None` when the shell no longer reads.
    pub(super) control: Option<Control>,
    exit: Option<Exit>,
}

impl Process {
    /// Makes the process, stopped before its first instruction. Reads files, so it may take a while.
    pub(super) fn make(
        wanted: Wanted,
        bounds: &Bounds,
        mounts: &Mounts,
        run: &Environment,
        filters: &[BpfProgram],
        deadline: Instant,
    ) -> Result<Self, ToolFailure> {
        let pty = wanted.terminal.map(|size| size_of(size).and_then(Pty::sized)).transpose()?;
        let is_session = matches!(wanted.program, ProcessProgram::Session { .. });
        let exec = program(wanted.program, run, pty.is_some())?;
        let command = text::excerpt(&exec.command);
        let mut plan = exec::prepare(mounts, run, exec, bounds, deadline)?;
        let made = || -> io::Result<Self> {
            let mut control = None;
            plan.terminal = pty.as_ref().map(Pty::end).transpose()?;
            if let Some(pty) = pty.as_ref().filter(|_| is_session) {
                pty.plain()?;
                let (ours, shells) = Control::make()?;
                (control, plan.stdin) = (Some(ours), Some(shells));
            }
            let spawned = sys::spawn(&plan, filters)?;
            drop(plan);
            Ok(Self { control, ..Self::attach(spawned, command, pty, wanted.stdin)? })
        };
        made().map_err(|error| exec::not_forked(&error))
    }

    fn attach(spawned: Spawned, command: String, pty: Option<Pty>, stdin: bool) -> io::Result<Self> {
        let Spawned { pid, pipes, go, fault } = spawned;
        // The pid stays valid until the process is reaped, which only this code does.
        let pid = Pid::from_raw(pid).ok_or_else(|| io::Error::other("a child without a number"))?;
        let handle = pidfd_open(pid, PidfdFlags::empty())?;
        let (stdin, streams) = match (&pty, pipes) {
            (Some(pty), _) => (Some(pty.copy()?.into()), [Some(pty.copy()?.into()), None]),
            (None, Some(Pipes { stdin: input, stdout, stderr })) => {
                for end in [&input, &stdout, &stderr] {
                    rustix::io::ioctl_fionbio(end, true)?;
                }
                (stdin.then(|| input.into()), [Some(stdout.into()), Some(stderr.into())])
            }
            (None, None) => return Err(io::Error::other("a process without pipes")),
        };
        rustix::io::ioctl_fionbio(&fault, true)?;
        let fault = Some(fault.into());
        Ok(Self { pid, handle, command, go, fault, stdin, streams, terminal: pty, control: None, exit: None })
    }

    /// Lets the process run.
    pub(super) fn go(&mut self) {
        if let Some(go) = self.go.take() {
            // If the reader is gone, the end of the process reports that.
            let _ = rustix::io::write(&go, &[1]);
        }
    }

    /// Returns the descriptor to wait for until it is known whether the program runs.
    pub(super) fn fault(&self) -> Option<BorrowedFd<'_>> {
        self.fault.as_ref().map(AsFd::as_fd)
    }

    /// Returns why the program does not run. `None` if that is not known yet, and if the program runs.
    pub(super) fn failed(&mut self) -> Option<ToolFailure> {
        let mut errno = [0; 4];
        match rustix::io::read(self.fault.as_ref()?, &mut errno) {
            Err(Errno::AGAIN | Errno::INTR) => return None,
            Ok(4) => {
                self.fault = None;
                let errno = Errno::from_raw_os_error(i32::from_ne_bytes(errno));
                return Some(exec::not_started(&self.command, errno));
            }
            Ok(_) | Err(_) => self.fault = None,
        }
        None
    }

    pub(super) fn has_terminal(&self) -> bool {
        self.terminal.is_some()
    }

    /// Returns the descriptor to wait for until the process ends.
    pub(super) fn handle(&self) -> Option<BorrowedFd<'_>> {
        self.exit.is_none().then(|| self.handle.as_fd())
    }

    /// Reaps the process if it has ended. Returns true if it has.
    pub(super) fn reap(&mut self) -> bool {
        while let Some((pid, exit)) = sys::reap() {
            if pid == self.pid.as_raw_nonzero().get() {
                self.exit = Some(exit);
            }
        }
        self.exit.is_some()
    }

    pub(super) fn exit(&self) -> Option<Exit> {
        self.exit
    }

    pub(super) fn resize(&self, size: TerminalSize) {
        if let Some(pty) = &self.terminal {
            pty.resize(size);
        }
    }

    /// Sends a signal to its terminal's foreground, or to its own process group.
    ///
    /// Does nothing after its end, because the number of the group may then belong to another one.
    pub(super) fn signal(&self, signal: Signal) {
        if self.exit.is_some() {
            return;
        }
        let _ = kill_process_group(self.foreground().unwrap_or(self.pid), signal);
    }

    /// Kills the terminal's foreground, unless that is the first program: a shell that waits for its commands.
    pub(super) fn kill_foreground(&self) {
        if let Some(group) = self.foreground().filter(|group| *group != self.pid && self.exit.is_none()) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    /// Returns the foreground process group of its terminal.
    fn foreground(&self) -> Option<Pid> {
        self.terminal.as_ref().and_then(exec::foreground)
    }

    /// Closes the terminal after all processes have ended, as its last holder.
    pub(super) fn let_go(&mut self) {
        self.stdin = None;
        self.terminal = None;
    }
}

/// Returns the command of a program. The image's shell runs a script.
fn program(program: ProcessProgram, run: &Environment, on_terminal: bool) -> Result<Exec, ToolFailure> {
    let mut exec = match program {
        ProcessProgram::Command(exec) => exec,
        ProcessProgram::Script(shell) => exec::of_script(shell, run)?,
        ProcessProgram::Session { cwd, env } => return exec::of_session(cwd, env),
    };
    if on_terminal && run.get("TERM").is_none() {
        exec.env.entry("TERM".to_owned()).or_insert_with(|| TERM.to_owned());
    }
    Ok(exec)
}

fn size_of(size: operations::TerminalSize) -> Result<TerminalSize, ToolFailure> {
    TerminalSize::new(size.rows.into(), size.columns.into())
        .ok_or_else(|| ToolFailure::new(Reason::InvalidArgument, "there is no terminal of this size"))
}
