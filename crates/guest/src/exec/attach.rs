//! Connects a command's standard streams: to pipes, one for each direction, or to a terminal.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use operations::KillEvidence;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use wire::worker::v1::output::Stream;

use crate::call::Call;
use crate::drain::{self, Drain};
use crate::exec::output::{Patience, Pumps};
use crate::exec::terminal::{self, Pty};
use crate::sys::Pipes;
use crate::terminal_input::TerminalInput;
use crate::threads::Threads;

/// Bytes of a file that one read takes.
const INPUT_BLOCK: usize = 64 * 1024;
/// Time in which pipes are read to their end if no process can add to them.
const DRAIN: Duration = Duration::from_secs(1);
/// The same if processes can: those that could not be ended, or that outlive the call.
const DRAIN_WITH_SURVIVORS: Duration = Duration::from_millis(200);
/// Time in which pipes reach their end if no process has them open.
const LAST_BYTES: Duration = Duration::from_millis(5);
/// Time for which a terminal's last output waits for credit. The call's deadline may be hours away.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Standard input of a command.
pub(super) enum Given {
    /// These bytes, and then the end.
    Bytes(Vec<u8>),
    /// Contents of a file from its position on, which one of these threads reads.
    File(File, Threads),
    Terminal(Pty, Arc<TerminalInput>),
    /// Input that a client sends, without a terminal.
    Said(Arc<TerminalInput>),
}

/// Streams of a command that runs.
pub(super) struct Attached {
    pub(super) pumps: Pumps,
    /// Ends when the command has read everything, or never.
    pub(super) feeder: JoinHandle<()>,
    /// Open until no process of the command is left.
    pub(super) terminal: Option<Pty>,
    /// Copies of the pipes' read ends, if processes may outlive the call.
    drains: Option<[OwnedFd; 2]>,
}

impl Given {
    /// Returns the command's end of its terminal, if it has one.
    pub(super) fn terminal(&self) -> io::Result<Option<OwnedFd>> {
        match self {
            Self::Terminal(pty, _) => pty.end().map(Some),
            Self::Bytes(_) | Self::File(..) | Self::Said(_) => Ok(None),
        }
    }
}

impl Attached {
    /// Returns true if no process can write into the command's pipes, and all output in them has been queued.
    ///
    /// For a terminal this is always false, because the guest has it open until the end.
    pub(super) async fn has_said_all(&mut self) -> bool {
        self.terminal.is_none() && self.pumps.have_ended(LAST_BYTES).await
    }

    /// Starts a reader for pipes that remaining processes have open, if they may stay. It begins when the value is dropped.
    pub(super) fn drain(&mut self) -> Option<Drain> {
        // Without a reader their next output ends them, which is no worse than to be ended now.
        self.drains.take().and_then(|pipes| drain::start(pipes).ok())
    }

    /// Sends the rest of the command's output, now that it is over and `kill` says what was left of it. Returns the bytes of each stream.
    ///
    /// Output of a command that ended by itself waits for credit like any other, while the call has time. Output of a command that was
    /// ended does not.
    pub(super) async fn finish(self, call: &mut Call, forced: bool, kill: &KillEvidence) -> (u64, u64) {
        let Self { pumps, feeder, terminal, drains: _ } = self;
        feeder.abort();
        // Send no report about input after the outcome.
        let _ = feeder.await;
        let now = Instant::now();
        let quiet = now + if kill.left == 0 && kill.running == 0 { DRAIN } else { DRAIN_WITH_SURVIVORS };
        let credit = match &terminal {
            _ if forced || kill.left > 0 => quiet,
            Some(_) => call.deadline.min(now + LAST_WORDS),
            None => call.deadline,
        };
        // Close this copy of the command's end. The stream then ends when the last other copy is closed.
        drop(terminal);
        pumps.finish(Patience { quiet, credit: credit.max(quiet) }, call.cancelled()).await
    }
}

/// Begins to read and write the command's streams.
pub(super) fn attach(call: &Call, given: Given, pipes: Option<Pipes>) -> io::Result<Attached> {
    match (given, pipes) {
        (Given::Terminal(pty, input), _) => {
            let pumps = Pumps::start(call, [(Stream::Stdout, pty.shows()?)]);
            let keys = pty.keys()?;
            let feeder = tokio::spawn(terminal::attend(call.id, input, keys, call.outbox.clone()));
            Ok(Attached { pumps, feeder, terminal: Some(pty), drains: None })
        }
        (Given::Bytes(bytes), Some(Pipes { stdin, stdout, stderr })) => {
            let drains = drains(call, &stdout, &stderr)?;
            let read = pipe::Receiver::from_owned_fd;
            let sources = [(Stream::Stdout, read(stdout)?), (Stream::Stderr, read(stderr)?)];
            let stdin = pipe::Sender::from_owned_fd(stdin)?;
            let feeder = tokio::spawn(feed(stdin, bytes));
            Ok(Attached { pumps: Pumps::start(call, sources), feeder, terminal: None, drains })
        }
        (Given::Said(input), Some(Pipes { stdin, stdout, stderr })) => {
            let read = pipe::Receiver::from_owned_fd;
            let sources = [(Stream::Stdout, read(stdout)?), (Stream::Stderr, read(stderr)?)];
            let stdin = pipe::Sender::from_owned_fd(stdin)?;
            let feeder = tokio::spawn(terminal::pass(call.id, input, stdin, call.outbox.clone()));
            Ok(Attached { pumps: Pumps::start(call, sources), feeder, terminal: None, drains: None })
        }
        (Given::File(file, threads), Some(Pipes { stdin, stdout, stderr })) => {
            let drains = drains(call, &stdout, &stderr)?;
            let read = pipe::Receiver::from_owned_fd;
            let sources = [(Stream::Stdout, read(stdout)?), (Stream::Stderr, read(stderr)?)];
            let stdin = pipe::Sender::from_owned_fd(stdin)?;
            let feeder = tokio::spawn(feed_file(stdin, file, threads));
            Ok(Attached { pumps: Pumps::start(call, sources), feeder, terminal: None, drains })
        }
        (Given::Bytes(_) | Given::File(..) | Given::Said(_), None) => {
            Err(io::Error::other("a command without pipes"))
        }
    }
}

/// Copies the read ends, if processes that the command leaves running may stay.
fn drains(call: &Call, stdout: &OwnedFd, stderr: &OwnedFd) -> io::Result<Option<[OwnedFd; 2]>> {
    let keeps = call.bounds.keep_background && call.placed;
    if keeps { Ok(Some([stdout.try_clone()?, stderr.try_clone()?])) } else { Ok(None) }
}

/// Writes the command's standard input and closes it. It is no error if the command does not read it.
async fn feed(mut stdin: pipe::Sender, bytes: Vec<u8>) {
    let _ = stdin.write_all(&bytes).await;
}

/// Writes standard input from a file, block by block. A thread that may block reads each block.
async fn feed_file(mut stdin: pipe::Sender, file: File, threads: Threads) {
    let mut file = Some(file);
    while let Some(mut open) = file.take() {
        let block = threads.run(move || {
            let mut block = vec![0; INPUT_BLOCK];
            let read = open.read(&mut block).unwrap_or(0);
            block.truncate(read);
            (open, block)
        });
        let Ok((open, block)) = block.await else { return };
        if block.is_empty() || stdin.write_all(&block).await.is_err() {
            return;
        }
        file = Some(open);
    }
}
