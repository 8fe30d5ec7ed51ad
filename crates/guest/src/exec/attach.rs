//! What a command's standard streams lead to: pipes, one way each, or a terminal.

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

/// Bytes of a file that are read at once.
const INPUT_BLOCK: usize = 64 * 1024;
/// What is in the pipes is read to its end when nobody can add to it,
const DRAIN: Duration = Duration::from_secs(1);
/// and given up soon when somebody can: processes that could not be ended, or that stay.
const DRAIN_WITH_SURVIVORS: Duration = Duration::from_millis(200);
/// The end of pipes that nobody has open any more is read within moments.
const LAST_BYTES: Duration = Duration::from_millis(5);
/// What a terminal showed last may wait so long for credit: its deadline may be hours away.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// What a command is given to read.
pub(super) enum Given {
    /// These bytes, and then the end.
    Bytes(Vec<u8>),
    /// What a file has from its position on, read on one of these threads.
    File(File, Threads),
    Terminal(Pty, Arc<TerminalInput>),
    /// What somebody writes, without a terminal.
    Said(Arc<TerminalInput>),
}

/// The streams of a command that runs.
pub(super) struct Attached {
    pub(super) pumps: Pumps,
    /// Ends when the command has read everything, or never.
    pub(super) feeder: JoinHandle<()>,
    /// Open until nothing of the command is left.
    pub(super) terminal: Option<Pty>,
    /// Copies of the pipes' read ends, where what the command leaves running may stay.
    drains: Option<[OwnedFd; 2]>,
}

impl Given {
    /// The command's end of its terminal, if it has one.
    pub(super) fn terminal(&self) -> io::Result<Option<OwnedFd>> {
        match self {
            Self::Terminal(pty, _) => pty.end().map(Some),
            Self::Bytes(_) | Self::File(..) | Self::Said(_) => Ok(None),
        }
    }
}

impl Attached {
    /// Whether nobody can write into the command's pipes any more, and all that was in them is on its way. Never of a
    /// terminal, which is open here until the end.
    pub(super) async fn has_said_all(&mut self) -> bool {
        self.terminal.is_none() && self.pumps.have_ended(LAST_BYTES).await
    }

    /// A reader for the pipes that others have open, where they may stay. It begins when it is dropped.
    pub(super) fn drain(&mut self) -> Option<Drain> {
        // Without one they are ended by what they write next, which is no worse than not to be kept.
        self.drains.take().and_then(|pipes| drain::start(pipes).ok())
    }

    /// Sends what the command has written, now that it is over and `kill` says what was left of it. Returns how many bytes
    /// each stream had. Output of a command that ended by itself waits for credit like any other, as long as the call
    /// has time; that of one that was ended does not.
    pub(super) async fn finish(self, call: &mut Call, forced: bool, kill: &KillEvidence) -> (u64, u64) {
        let Self { pumps, feeder, terminal, drains: _ } = self;
        feeder.abort();
        // Nothing of it is said after the outcome.
        let _ = feeder.await;
        let now = Instant::now();
        let quiet = now + if kill.left == 0 && kill.running == 0 { DRAIN } else { DRAIN_WITH_SURVIVORS };
        let credit = match &terminal {
            _ if forced || kill.left > 0 => quiet,
            Some(_) => call.deadline.min(now + LAST_WORDS),
            None => call.deadline,
        };
        // Our copy of its end: without it the last of the others is the end.
        drop(terminal);
        pumps.finish(Patience { quiet, credit: credit.max(quiet) }, call.cancelled()).await
    }
}

/// Begins to read and to write.
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

/// Copies of the read ends, where what the command leaves running may stay.
fn drains(call: &Call, stdout: &OwnedFd, stderr: &OwnedFd) -> io::Result<Option<[OwnedFd; 2]>> {
    let keeps = call.bounds.keep_background && call.placed;
    if keeps { Ok(Some([stdout.try_clone()?, stderr.try_clone()?])) } else { Ok(None) }
}

/// Writes the command's standard input and closes it. A command that does not read it is no error.
async fn feed(mut stdin: pipe::Sender, bytes: Vec<u8>) {
    let _ = stdin.write_all(&bytes).await;
}

/// The same from a file, block by block, each read where blocking is allowed.
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
