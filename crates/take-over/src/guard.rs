//! The predecessor during a hand-over: a process of one thread without any state, that waits for its successor.
//!
//! It is the same process as the daemon that served, so a service manager and a parent notice nothing. If the successor fails, it
//! executes itself as the daemon again, with the same listening sockets.
//!
//! A request to stop (SIGTERM, SIGINT) is held back until one of the two is the daemon. Then it stops that one, in order:
//!
//! ```text
//!  the successor serves ──► SIGTERM to it, wait for its end, end
//!  it failed            ──► executes itself as the daemon, which finds the signal
//! ```

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, pidfd_send_signal, waitpid};

use crate::channel::{Channel, ChannelError, Message, is_readable};
use crate::listeners::{named, names};
use crate::program::{again, drop_held_reloads, hold_signals, was_asked_to_stop};
use crate::{Listeners, Named, RESUME, notify};

/// Time that a successor has to take over: it examines all runs.
const SUCCEED: Duration = Duration::from_secs(180);
/// Time between two signs of life for the service manager.
const SIGN: Duration = Duration::from_secs(2);
/// Time that a successor has to end by itself after it failed.
const END: Duration = Duration::from_secs(10);
/// Time that a successor has to stop in order.
const STOP: Duration = Duration::from_secs(120);
/// Time in which a killed process ends.
const KILLED: Duration = Duration::from_secs(30);
/// Time for a message that was sent before this process began.
const SENT: Duration = Duration::from_secs(1);

struct Task {
    channel: Channel,
    process: OwnedFd,
    pid: Pid,
    requester: Option<Channel>,
    config: PathBuf,
    /// Configuration that was in force.
    kept: PathBuf,
    listeners: Vec<Named>,
}

/// Watches the successor that the input names. Goes on as the daemon if it fails.
pub fn guard() -> ExitCode {
    // The daemon held them back. Without that, this process ends at a signal, as always.
    let held = hold_signals().is_ok();
    let Some(task) = Task::read().filter(|_| held) else {
        eprintln!("cofferd: this option is for the daemon alone, during a hand-over");
        return ExitCode::FAILURE;
    };
    // Before this process ends, because systemd stops a service whose main process ends.
    let replaced = task.outcome().and_then(|()| {
        let told = notify::main_process(task.pid);
        told.map_err(|error| format!("the service manager cannot be told of the new process: {error}"))
    });
    match replaced {
        Ok(()) => task.give_way(),
        Err(why) => task.go_on(why),
    }
}

impl Task {
    fn read() -> Option<Self> {
        let (message, descriptors) = input()?.receive(SENT).ok()?;
        let Message::Watch { pid, has_requester, config, kept, of } = message else { return None };
        let mut descriptors = descriptors.into_iter();
        let (channel, process) = (Channel::from(descriptors.next()?), descriptors.next()?);
        let requester = if has_requester { Some(Channel::from(descriptors.next()?)) } else { None };
        let listeners = named(of, descriptors.collect())?;
        Some(Self { channel, process, pid: Pid::from_raw(pid)?, requester, config, kept, listeners })
    }

    /// Waits until the successor serves. Returns the reason if it does not.
    fn outcome(&self) -> Result<(), String> {
        // An error is an end, which the next message shows.
        let _ = self.channel.send(&Message::Released, &[]);
        let until = Instant::now() + SUCCEED;
        loop {
            notify::alive();
            let left = until.saturating_duration_since(Instant::now());
            match self.channel.receive(SIGN.min(left)) {
                Ok((Message::Ready, _)) => return Ok(()),
                Ok((Message::Failed { why }, _)) => return Err(why),
                Ok(_) => return Err("it sent something unexpected".to_owned()),
                Err(ChannelError::Late) if Instant::now() < until => {}
                Err(ChannelError::Late) => return Err(format!("it was not ready after {SUCCEED:?}")),
                Err(error) => return Err(format!("it ended before it was ready: {error}")),
            }
        }
    }

    fn give_way(&self) -> ExitCode {
        for told in self.requester.iter().chain([&self.channel]) {
            let _ = told.send(&Message::Ready, &[]);
        }
        // The service manager knows the new process by now. Its later requests go there.
        if !was_asked_to_stop() {
            return ExitCode::SUCCESS;
        }
        eprintln!("cofferd: the daemon was told to stop during a hand-over, so its successor stops");
        let _ = pidfd_send_signal(&self.process, Signal::TERM);
        // Until then this process stays: to a manager that stops the service, it is the service.
        if has_ended(&self.process, STOP) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn go_on(self, why: String) -> ExitCode {
        if !has_ended(&self.process, END) {
            let _ = pidfd_send_signal(&self.process, Signal::KILL);
            has_ended(&self.process, KILLED);
        }
        // A successor that this process started would stay as a zombie.
        let _ = waitpid(Some(self.pid), WaitOptions::NOHANG);
        if let Some(requester) = &self.requester {
            let _ = requester.send(&Message::Failed { why: why.clone() }, &[]);
        }
        let input =
            drop_held_reloads().map_err(ChannelError::Io).and_then(|()| resumption(why, &self.listeners));
        let error = match input {
            Ok(input) => again(RESUME, &self.config, Some(&self.kept), input).to_string(),
            Err(error) => error.to_string(),
        };
        eprintln!("cofferd: the successor failed, and this daemon cannot go on: {error}");
        ExitCode::FAILURE
    }
}

/// Returns true if the process ends in this time.
fn has_ended(process: &OwnedFd, patience: Duration) -> bool {
    let until = Instant::now() + patience;
    loop {
        notify::alive();
        let left = until.saturating_duration_since(Instant::now());
        // A pidfd can be read when its process has ended.
        match is_readable(process.as_fd(), SIGN.min(left)) {
            Ok(true) => return true,
            Ok(false) if Instant::now() < until => {}
            _ => return false,
        }
    }
}

/// Returns a channel from which the daemon that goes on reads its listening sockets.
fn resumption(why: String, listeners: &[Named]) -> Result<Channel, ChannelError> {
    let sockets: Vec<_> = listeners.iter().map(|named| named.socket.as_fd()).collect();
    let (ours, input) = Channel::pair()?;
    ours.send(&Message::Resume { why, of: names(listeners) }, &sockets)?;
    Ok(input)
}

/// The state of a daemon that goes on after its successor failed.
pub struct Resumed {
    /// Reason that the successor gave.
    pub why: String,
    pub listeners: Listeners,
}

/// Reads from the input what a guard left for the daemon that goes on.
pub fn resumed() -> Option<Resumed> {
    let (Message::Resume { why, of }, sockets) = input()?.receive(SENT).ok()? else { return None };
    Some(Resumed { why, listeners: Listeners::of(named(of, sockets)?) })
}

/// Returns the channel that is this process's standard input.
fn input() -> Option<Channel> {
    rustix::stdio::stdin().try_clone_to_owned().ok().map(Channel::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(channel: Channel, process: OwnedFd) -> Task {
        let pid = rustix::process::getpid();
        let (config, kept) = ("/c.yaml".into(), "/kept.yaml".into());
        Task { channel, process, pid, requester: None, config, kept, listeners: Vec::new() }
    }

    fn own_process() -> OwnedFd {
        let flags = rustix::process::PidfdFlags::empty();
        rustix::process::pidfd_open(rustix::process::getpid(), flags).unwrap()
    }

    #[test]
    fn only_a_successor_that_says_ready_replaces_the_daemon() {
        for (answer, expected) in [
            (Some(Message::Ready), Ok(())),
            (Some(Message::Failed { why: "no engine".to_owned() }), Err("no engine")),
            (Some(Message::Released), Err("it sent something unexpected")),
            (None, Err("it ended before it was ready: the other process closed the connection")),
        ] {
            let (ours, theirs) = Channel::pair().unwrap();
            if let Some(answer) = answer {
                theirs.send(&answer, &[]).unwrap();
            } else {
                drop(theirs);
            }
            let outcome = task(ours, own_process()).outcome();
            assert_eq!(outcome.as_ref().map_err(String::as_str), expected.as_ref().map_err(|why| *why));
        }
    }

    #[test]
    fn a_stop_that_was_asked_for_stops_the_successor_that_serves() {
        use std::os::unix::process::ExitStatusExt as _;

        for asked in [false, true] {
            // Started before signals are held back, as children inherit that.
            let mut successor = std::process::Command::new("sleep").arg("600").spawn().unwrap();
            let pid = Pid::from_raw(successor.id().try_into().unwrap()).unwrap();
            let process = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
            let (ours, theirs) = Channel::pair().unwrap();
            hold_signals().unwrap();
            if asked {
                crate::program::ask_to_stop().unwrap();
            }
            let _ = task(ours, process).give_way();
            assert_eq!(theirs.receive(SENT).unwrap().0, Message::Ready);
            assert_eq!(successor.try_wait().unwrap().is_some(), asked);
            if asked {
                assert_eq!(successor.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
            } else {
                successor.kill().unwrap();
                successor.wait().unwrap();
            }
            crate::program::release_stops().unwrap();
        }
    }

    #[test]
    fn an_ended_process_is_noticed_and_a_living_one_is_not_taken_for_it() {
        assert!(!has_ended(&own_process(), Duration::from_millis(10)));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = Pid::from_raw(child.id().try_into().unwrap()).unwrap();
        let process = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
        assert!(has_ended(&process, Duration::from_secs(10)));
        child.wait().unwrap();
    }

    #[test]
    fn the_daemon_that_goes_on_gets_the_reason_and_the_sockets() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let listener =
            Named { name: "api".to_owned(), address: "tcp:x".to_owned(), socket: OwnedFd::from(socket) };
        let input = resumption("no engine".to_owned(), &[listener]).unwrap();
        let (message, sockets) = input.receive(SENT).unwrap();
        let of = vec![("api".to_owned(), "tcp:x".to_owned())];
        assert_eq!((message, sockets.len()), (Message::Resume { why: "no engine".to_owned(), of }, 1));
    }
}
