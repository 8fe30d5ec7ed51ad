//! The loop of a keeper. It handles all events that are ready, and never waits for a single one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use operations::{CommandLimits, Environment, Process as Wanted, ToolFailure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use seccompiler::BpfProgram;
use wire::worker::v1::keeper_state::Phase;
use wire::worker::v1::{
    Attach, Drained, Heard, KeeperStart, KeeperState, Output as Written, Stdin, ToKeeper, from_keeper,
    output::Stream, to_keeper::Body,
};
use worker_protocol::convert::bounds_from_wire;
use worker_protocol::keeper::signal_of;
use worker_protocol::terminal::TerminalSize;

use crate::args::Mounts;
use crate::fault::Fault;
use crate::{children, exec};

use super::connection::Connection;
use super::control;
use super::door::Door;
use super::input::Input;
use super::output::Output;
use super::process::Process;

/// Bytes that one read takes, and most bytes of one Output.
const CHUNK: usize = 64 * 1024;
/// Time for which a keeper without a process waits for a daemon.
const UNUSED: Duration = Duration::from_secs(30);
/// Time for checking the files that a start names.
const PREPARE: Duration = Duration::from_secs(30);

pub(super) struct Keeper {
    door: Door,
    connection: Option<Connection>,
    filters: Vec<BpfProgram>,
    phase: Phase,
    process: Option<Process>,
    outputs: [Output; 2],
    input: Input,
    /// True if all processes have ended, so that no output will be added to the pipes.
    draining: bool,
    drained: bool,
    began: Instant,
    /// Buffer for reads.
    chunk: Box<[u8]>,
}

/// Sources of events.
#[derive(Clone, Copy)]
enum Source {
    Door,
    Daemon,
    Fault,
    Exit,
    Stream(usize),
    Stdin,
    Control,
    /// No process has the shell's end of the control socket.
    Closed,
}

/// Result of an event, for the loop.
#[derive(PartialEq, Eq)]
enum Next {
    Go,
    End,
}

impl Keeper {
    pub(super) fn new(door: Door) -> Result<Self, Fault> {
        Ok(Self {
            door,
            connection: None,
            filters: children::filters(children::Kernel::Linux)?,
            phase: Phase::Fresh,
            process: None,
            outputs: Default::default(),
            input: Input::new(false),
            draining: false,
            drained: false,
            chunk: vec![0; CHUNK].into(),
            began: Instant::now(),
        })
    }

    /// Runs until the daemon no longer needs the keeper.
    pub(super) fn run(mut self) -> Result<(), Fault> {
        loop {
            if let Some(process) = self.process.as_mut().filter(|process| !process.has_terminal())
                && self.input.is_done()
            {
                process.stdin = None;
            }
            self.fill()?;
            for source in self.wait()? {
                if self.handle(source)? == Next::End {
                    return Ok(());
                }
            }
            // The process was not let run yet, or was not made, so the next daemon would not know of it.
            let unstarted = matches!(self.phase, Phase::Fresh | Phase::Waiting);
            if unstarted && self.connection.is_none() && self.began.elapsed() > self.patience() {
                return Ok(());
            }
        }
    }

    fn patience(&self) -> Duration {
        if self.phase == Phase::Waiting { Duration::ZERO } else { UNUSED }
    }

    /// Waits until sources are ready, and returns them.
    fn wait(&self) -> Result<Vec<Source>, Fault> {
        let mut sources: Vec<(Source, BorrowedFd<'_>, PollFlags)> =
            vec![(Source::Door, self.door.as_fd(), PollFlags::IN)];
        if let Some(connection) = &self.connection {
            let out = if connection.has_something() { PollFlags::OUT } else { PollFlags::empty() };
            sources.push((Source::Daemon, connection.as_fd(), PollFlags::IN | out));
        }
        if let Some(process) = &self.process {
            let reads = |fd| (fd, PollFlags::IN);
            let fault = process.fault().map(reads).map(|(fd, flags)| (Source::Fault, fd, flags));
            let exit = process.handle().map(reads).map(|(fd, flags)| (Source::Exit, fd, flags));
            sources.extend(fault.into_iter().chain(exit));
            for (at, stream) in process.streams.iter().enumerate() {
                if let Some(stream) = stream.as_ref().filter(|_| self.outputs[at].free() > 0) {
                    sources.push((Source::Stream(at), stream.as_fd(), PollFlags::IN));
                }
            }
            if let Some(stdin) = process.stdin.as_ref().filter(|_| !self.input.next().is_empty()) {
                sources.push((Source::Stdin, stdin.as_fd(), PollFlags::OUT));
            }
            if let Some(control) = &process.control {
                let out = if control.has_something() { PollFlags::OUT } else { PollFlags::empty() };
                sources.push((Source::Control, control.as_fd(), out));
            }
        }
        let mut fds: Vec<PollFd<'_>> =
            sources.iter().map(|(_, fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
        let patience = self.process.is_none().then_some(Timespec { tv_sec: 1, tv_nsec: 0 });
        match poll(&mut fds, patience.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
        let ready = fds.iter().zip(&sources).filter(|(fd, _)| !fd.revents().is_empty());
        Ok(ready
            .map(|(fd, (source, ..))| match source {
                Source::Control if fd.revents().intersects(PollFlags::HUP | PollFlags::ERR) => Source::Closed,
                source => *source,
            })
            .collect())
    }

    fn handle(&mut self, source: Source) -> Result<Next, Fault> {
        match source {
            Source::Door => {
                // A new daemon's stream replaces the previous one.
                if let Some(stream) = self.door.take()? {
                    self.connection = Some(Connection::new(stream));
                }
            }
            Source::Daemon => return self.daemon(),
            Source::Fault => {
                let failed = self.process.as_mut().and_then(Process::failed);
                if let Some(failure) = failed {
                    self.say(from_keeper::Body::Failed(failure.into()))?;
                } else if self.process.as_ref().is_some_and(|process| process.fault().is_none()) {
                    self.say_state()?;
                }
            }
            Source::Exit => {
                if self.process.as_mut().is_some_and(Process::reap) {
                    self.phase = Phase::Over;
                    self.input.close();
                    self.say_state()?;
                }
            }
            Source::Stream(at) => self.read(at)?,
            Source::Stdin => self.write()?,
            Source::Control => self.write_control(),
            Source::Closed => {
                if let Some(process) = &mut self.process {
                    process.control = None;
                }
                self.say_heard(false)?;
            }
        }
        Ok(Next::Go)
    }

    /// Reads messages of the daemon, and sends waiting output.
    fn daemon(&mut self) -> Result<Next, Fault> {
        let Some(connection) = &mut self.connection else { return Ok(Next::Go) };
        if !connection.send() || !connection.read() {
            self.connection = None;
            return Ok(Next::Go);
        }
        while let Some(connection) = &mut self.connection {
            let Some(ToKeeper { body }) = connection.next()? else { break };
            let body = body.ok_or(Fault::Unexpected("an empty frame"))?;
            if self.obey(body)? == Next::End {
                return Ok(Next::End);
            }
        }
        Ok(Next::Go)
    }

    fn obey(&mut self, body: Body) -> Result<Next, Fault> {
        match body {
            Body::Attach(Attach { stdout, stderr }) => {
                let known = self.outputs[0].attach(stdout) & self.outputs[1].attach(stderr);
                if !known {
                    return Err(Fault::Unexpected("output that was never written"));
                }
                if let Some(connection) = &mut self.connection {
                    connection.attached = true;
                }
                self.drained = false;
                self.say_state()?;
                self.say_drained()?;
            }
            Body::Start(start) if self.phase == Phase::Fresh && self.process.is_none() => {
                self.start(start)?;
            }
            Body::Go(_) if self.phase == Phase::Waiting => {
                self.phase = Phase::Running;
                if let Some(process) = &mut self.process {
                    process.go();
                }
            }
            Body::Kept(Attach { stdout, stderr }) => {
                if !(self.outputs[0].acknowledged(stdout) & self.outputs[1].acknowledged(stderr)) {
                    return Err(Fault::Unexpected("output that was never written"));
                }
                self.drain()?;
            }
            Body::Stdin(Stdin { offset, data, close }) => {
                if !self.input.put(offset, &data, close) {
                    return Err(Fault::Unexpected("a gap in the input"));
                }
                self.say_taken()?;
            }
            Body::Resize(size) => {
                let size = TerminalSize::new(size.rows, size.columns)
                    .ok_or(Fault::Unexpected("a terminal without a size"))?;
                self.process.iter().for_each(|process| process.resize(size));
            }
            Body::Signal(signal) => {
                let signal =
                    signal_of(signal.number).ok_or(Fault::Unexpected("a signal that is not sent"))?;
                let signal = Signal::from_named_raw(signal).ok_or(Fault::Unexpected("an unknown signal"))?;
                self.process.iter().for_each(|process| process.signal(signal));
            }
            Body::Control(line) => {
                let control = self.process.as_mut().and_then(|process| process.control.as_mut());
                let taken = match control {
                    Some(control) => control
                        .put(&line.data, line.if_read)
                        .ok_or(Fault::Unexpected("too long for a shell"))?,
                    None => false,
                };
                self.write_control();
                self.say_heard(taken)?;
            }
            Body::KillForeground(_) => self.process.iter().for_each(Process::kill_foreground),
            Body::Drain(_) => {
                self.draining = true;
                if let Some(process) = &mut self.process {
                    process.let_go();
                }
                self.drain()?;
            }
            Body::Leave(_) => return Ok(Next::End),
            Body::Start(_) | Body::Go(_) => return Err(Fault::Unexpected("a frame that cannot come here")),
        }
        Ok(Next::Go)
    }

    fn start(&mut self, start: KeeperStart) -> Result<(), Fault> {
        let bounds = bounds_from_wire(start.bounds);
        let environment = Environment::from_daemon(start.environment);
        let made = match Wanted::parse_within(start.process.unwrap_or_default(), CommandLimits::WIDEST) {
            Ok(wanted) => {
                self.input = Input::new(wanted.stdin || wanted.terminal.is_some());
                let deadline = Instant::now() + PREPARE;
                Process::make(wanted, &bounds, &Mounts::default(), &environment, &self.filters, deadline)
            }
            Err(malformed) => Err(ToolFailure::new(malformed.reason, malformed.to_string())),
        };
        match made {
            Ok(process) => {
                self.process = Some(process);
                self.phase = Phase::Waiting;
                self.say_state()
            }
            Err(failure) => self.say(from_keeper::Body::Failed(failure.into())),
        }
    }

    /// Reads output of the process, or notices that it has closed the stream.
    fn read(&mut self, at: usize) -> Result<(), Fault> {
        let Some(process) = &mut self.process else { return Ok(()) };
        let Some(stream) = &process.streams[at] else { return Ok(()) };
        let most = self.outputs[at].free().min(CHUNK);
        let chunk = &mut self.chunk[..most];
        match rustix::io::read(stream, &mut *chunk) {
            // No space: the next acknowledgement of the daemon frees some.
            Ok(0) if most == 0 => {}
            Ok(0) => process.streams[at] = None,
            Ok(count) => {
                let read = &chunk[..count];
                self.outputs[at].push(read);
                if let Some(control) = process.control.as_mut().filter(|_| control::is_end_ignored(read)) {
                    // If the queue is full, the shell has lines to read anyway.
                    let _ = control.put(b"\n", true);
                    self.write_control();
                }
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if !self.draining => {}
            // No live process has the other end.
            Err(_) => process.streams[at] = None,
        }
        self.say_drained()
    }

    /// Reads the remaining output, as far as they fit.
    fn drain(&mut self) -> Result<(), Fault> {
        if !self.draining {
            return Ok(());
        }
        for at in 0..self.outputs.len() {
            while self.outputs[at].free() > 0
                && self.process.as_ref().is_some_and(|process| process.streams[at].is_some())
            {
                self.read(at)?;
            }
        }
        self.say_drained()
    }

    /// Writes input to the process.
    fn write(&mut self) -> Result<(), Fault> {
        let Some(stdin) = self.process.as_ref().and_then(|process| process.stdin.as_ref()) else {
            return Ok(());
        };
        let wanted = match rustix::io::write(stdin, self.input.next()) {
            Ok(count) => self.input.read(count),
            Err(Errno::AGAIN | Errno::INTR) => false,
            Err(_) => {
                self.input.close();
                true
            }
        };
        if wanted { self.say_taken() } else { Ok(()) }
    }

    fn write_control(&mut self) {
        if let Some(process) = &mut self.process
            && process.control.as_mut().is_some_and(|control| !control.write())
        {
            process.control = None;
        }
    }

    /// Queues output on the connection, as far as it fits.
    fn fill(&mut self) -> Result<(), Fault> {
        let Some(connection) = &mut self.connection else { return Ok(()) };
        for (output, stream) in self.outputs.iter_mut().zip([Stream::Stdout, Stream::Stderr]) {
            while connection.has_space()
                && let Some((offset, data)) = output.next(CHUNK)
            {
                let written = Written { stream: stream.into(), offset, data: data.into() };
                connection.say(from_keeper::Body::Output(written))?;
            }
        }
        if !connection.send() {
            self.connection = None;
        }
        Ok(())
    }

    fn say(&mut self, body: from_keeper::Body) -> Result<(), Fault> {
        // A daemon that has not attached yet gets the full state when it does.
        if let Some(connection) = self.connection.as_mut().filter(|connection| connection.attached) {
            connection.say(body)?;
        }
        Ok(())
    }

    fn say_taken(&mut self) -> Result<(), Fault> {
        let (offset, close) = (self.input.taken(), !self.input.is_open());
        self.say(from_keeper::Body::Taken(Stdin { offset, data: Vec::new(), close }))
    }

    fn say_heard(&mut self, taken: bool) -> Result<(), Fault> {
        let open = self.process.as_ref().is_some_and(|process| process.control.is_some());
        self.say(from_keeper::Body::Heard(Heard { taken, open }))
    }

    fn say_state(&mut self) -> Result<(), Fault> {
        let exit = self.process.as_ref().and_then(Process::exit);
        let state = KeeperState {
            phase: self.phase.into(),
            stdin: self.input.taken(),
            stdin_open: self.input.is_open(),
            exit_code: exit.and_then(|exit| exit.code),
            signal: exit.and_then(|exit| exit.signal),
            cpu_time_us: exit.map_or(0, |exit| exec::micros(exit.cpu)),
            peak_memory_bytes: exit.map_or(0, |exit| exit.peak_memory),
        };
        self.say(from_keeper::Body::State(state))
    }

    /// Reports the end of the output once everything has been read. The output that was read is sent first.
    fn say_drained(&mut self) -> Result<(), Fault> {
        let open = self.process.as_ref().is_some_and(|process| process.streams.iter().any(Option::is_some));
        if !self.draining || open {
            return Ok(());
        }
        if self.drained {
            return Ok(());
        }
        self.drained = true;
        let end = Attach { stdout: self.outputs[0].end(), stderr: self.outputs[1].end() };
        self.say(from_keeper::Body::Drained(Drained { end: Some(end) }))
    }
}
