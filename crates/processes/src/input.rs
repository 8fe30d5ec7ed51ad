//! Gives a process its input: records it, passes it on in order, and answers when the keeper has it.

use std::time::Duration;

use bytes::Bytes;
use executor::{KeeperLost, Link};
use operations::{Reason, ToolFailure};
use refusal::{Refusal, chain};
use runs::Run;
use store::recording::{Digest, Entry, Header, Recorder, Recording, RecordingError, Size};
use timestamp::UnixMillis;
use tokio::time::Instant;
use wire::v1::{self, signal_process_request::Signal as Wanted};
use wire::worker::v1::{Stdin, to_keeper};
use worker_protocol::client::{TerminalSignal, TerminalSize};
use worker_protocol::keeper::MAX_STDIN;

use crate::disk::ProcessFiles;
use crate::process::Given;
use crate::shared::Shared;

/// Time that a process has to read some input. Then the client gets the offset that was reached.
const PATIENCE: Duration = Duration::from_secs(10);
const NO_TERMINAL: (u32, u32) = (24, 80);
/// The remedy in the refusal of a start from a run whose allowance is used up.
pub(crate) const NOTHING_STARTED: &str = "nothing is started: end a process, or continue in another run; recordings are kept until the run is deleted";

pub(crate) struct Input {
    /// `None` if the process takes no input, and after a recording that failed.
    recorder: Option<Recorder>,
    /// Bytes that the keeper has.
    taken: u64,
    open: bool,
    current: Option<Current>,
    unrecorded: Unrecorded,
    /// True once the daemon's log says that the recording has failed.
    is_told: bool,
}

/// The input that a recording lacks because it was full or could not be written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Unrecorded {
    /// Signals that were sent all the same.
    pub(crate) signals: u64,
    /// Bytes that were refused, and so not given to the process. Bytes that a client sends again count again.
    pub(crate) refused_bytes: u64,
}

/// The input that is being given.
struct Current {
    given: Given,
    /// Position of its first byte.
    offset: u64,
    until: Instant,
}

impl Input {
    pub(crate) fn new(recorder: Option<Recorder>, taken: u64, open: bool) -> Self {
        Self { recorder, taken, open, current: None, unrecorded: Unrecorded::default(), is_told: false }
    }

    /// Returns true if new input may be given.
    pub(crate) fn is_free(&self) -> bool {
        self.current.is_none()
    }

    /// Returns when the writer gets its answer at the latest.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.current.as_ref().map(|current| current.until)
    }

    /// Begins to give some input.
    pub(crate) async fn give(&mut self, given: Given, link: &mut Link) -> Result<(), KeeperLost> {
        let offset = given.offset.unwrap_or(self.taken);
        if let Err(refusal) = self.check(offset, &given) {
            let _ = given.answer.send(Err(refusal));
            return Ok(());
        }
        // Bytes that the process has already are neither recorded nor given again.
        let skipped = usize::try_from(self.taken - offset).unwrap_or(usize::MAX);
        let data = given.data.slice(skipped.min(given.data.len())..);
        if !self.record(Entry::Input(data.clone())).await {
            self.unrecorded.refused_bytes += data.len() as u64;
            let _ = given.answer.send(Err(not_recorded()));
            return Ok(());
        }
        let given = Given { data, ..given };
        self.current = Some(Current { given, offset: self.taken, until: Instant::now() + PATIENCE });
        self.go_on(link).await
    }

    fn check(&self, offset: u64, given: &Given) -> Result<(), Refusal> {
        if offset > self.taken {
            let message = format!("offset: leaves a gap; the process has received {} bytes", self.taken);
            return Err(
                Refusal::new(Reason::PreconditionFailed, message).with("offset", self.taken.to_string())
            );
        }
        // A repeated request has no new bytes, and gets the same answer.
        let is_new = offset + given.data.len() as u64 > self.taken;
        if self.open || !is_new {
            return Ok(());
        }
        let message = "the process reads no further input: its standard input is closed";
        Err(Refusal::new(Reason::PreconditionFailed, message).with("offset", self.taken.to_string()))
    }

    /// Notes that the keeper has the bytes before `said.offset`.
    pub(crate) async fn taken(&mut self, said: &Stdin, link: &mut Link) -> Result<(), KeeperLost> {
        let sent = self
            .current
            .as_ref()
            .map_or(self.taken, |current| current.offset + current.given.data.len() as u64);
        if said.offset < self.taken || said.offset > sent {
            return Err(KeeperLost::Malformed("it acknowledges input that was not sent"));
        }
        (self.taken, self.open) = (said.offset, !said.close);
        self.go_on(link).await
    }

    /// Gives the next piece, or answers.
    async fn go_on(&mut self, link: &mut Link) -> Result<(), KeeperLost> {
        let Some(Current { given, offset, .. }) = &self.current else { return Ok(()) };
        let done = usize::try_from(self.taken - offset).unwrap_or(usize::MAX).min(given.data.len());
        let rest = given.data.slice(done..);
        if !self.open || rest.is_empty() && !given.close {
            self.answer();
            return Ok(());
        }
        let last = rest.len() <= MAX_STDIN;
        let piece = rest.slice(..rest.len().min(MAX_STDIN));
        let close = last && given.close;
        link.say(to_keeper::Body::Stdin(Stdin { offset: self.taken, data: piece.to_vec(), close })).await
    }

    /// Records a line for the shell of a session. Returns true if it is recorded.
    pub(crate) async fn told(&mut self, text: Bytes) -> bool {
        let bytes = text.len() as u64;
        let recorded = self.record(Entry::Input(text)).await;
        self.unrecorded.refused_bytes += if recorded { 0 } else { bytes };
        recorded
    }

    /// Answers the current writer with the offset that was reached.
    pub(crate) fn answer(&mut self) {
        if let Some(Current { given, .. }) = self.current.take() {
            let answer = v1::WriteStdinResponse { offset: self.taken, open: self.open };
            let _ = given.answer.send(Ok(answer));
        }
    }

    pub(crate) fn state(&self) -> (u64, bool) {
        (self.taken, self.open)
    }

    /// Records a new size. Returns an error if the terminal must not get it.
    pub(crate) async fn resized(&mut self, size: v1::TerminalSize) -> Result<(), Refusal> {
        let size = TerminalSize::new(size.rows, size.columns)
            .ok_or_else(|| Refusal::invalid("size", "is not that of a terminal"))?;
        if self.record(Entry::Resize(recorded(size))).await { Ok(()) } else { Err(not_recorded()) }
    }

    /// Records a signal. Returns an error if it must not be sent.
    pub(crate) async fn signalled(&mut self, wanted: Wanted) -> Result<(), Refusal> {
        let signal = TerminalSignal::from_number(i32::from(wanted).unsigned_abs());
        // A process without input has no recording.
        let Some(signal) = signal.filter(|_| self.recorder.is_some()) else { return Ok(()) };
        if self.record(Entry::Signal(signal.number())).await {
            return Ok(());
        }
        // A full recording must not keep a client from ending a process.
        if matches!(wanted, Wanted::Hup | Wanted::Int | Wanted::Term) {
            self.unrecorded.signals += 1;
            return Ok(());
        }
        Err(not_recorded())
    }

    pub(crate) fn unrecorded(&self) -> Unrecorded {
        self.unrecorded
    }

    async fn record(&mut self, entry: Entry) -> bool {
        let Some(recorder) = &mut self.recorder else { return false };
        match recorder.add(entry).await {
            Ok(()) => true,
            Err(error) => {
                // Logged only once, because the client may retry forever.
                if !std::mem::replace(&mut self.is_told, true) {
                    tracing::warn!(error = %chain(&error), "the input of a process can no longer be recorded");
                }
                false
            }
        }
    }

    /// Ends the recording and returns its digest.
    pub(crate) async fn finish(&mut self) -> Option<Digest> {
        self.answer();
        match self.recorder.take()?.finish().await {
            Ok(digest) => Some(digest),
            Err(error) => {
                tracing::error!(error = %chain(&error), "the recording of a process's input is incomplete");
                None
            }
        }
    }
}

fn not_recorded() -> Refusal {
    let message = "the input of a process must be recorded, and its recording is full or cannot be written";
    Refusal::new(Reason::WriteLimit, message)
}

/// Begins the recording of a process's input, beside those of terminals.
///
/// A daemon that takes the process over begins another recording, whose `segment` is in its name.
pub(crate) async fn recording(
    shared: &Shared,
    run: &Run,
    files: &ProcessFiles,
    process: &v1::Process,
    segment: u64,
) -> Result<Recorder, ToolFailure> {
    let directory = shared.runs.launcher.directories.recordings(&files.run.to_string());
    let suffix = if segment == 0 { String::new() } else { format!(".{segment}") };
    let path = directory.join(format!("process-{}{suffix}.cast", files.id));
    let size = process.request.as_ref().and_then(|request| request.terminal);
    let (rows, columns) = size.map_or(NO_TERMINAL, |size| (size.rows, size.columns));
    let (limit, allowance) = (shared.max_recording, run.allowance.clone());
    let title = format!("process {} in run {}", files.id, files.run);
    let begun = tokio::task::spawn_blocking(move || {
        let size = TerminalSize::new(rows, columns)
            .ok_or(std::io::ErrorKind::InvalidInput)
            .map_err(std::io::Error::from)?;
        let timestamp = UnixMillis::now().seconds();
        Recording::begin(
            &path,
            &Header { size: recorded(size), term: "", timestamp, title: &title },
            limit,
            &allowance,
        )
    });
    let failed = |why: String| {
        tracing::error!(why, "the recording of a process cannot begin");
        ToolFailure::new(
            Reason::Internal,
            "the input of the process could not be recorded, so it was not started",
        )
    };
    let begun = begun.await.map_err(|error| failed(error.to_string()))?;
    begun.map(Recorder::new).map_err(|error| match error {
        RecordingError::NoRoom => run.no_room(NOTHING_STARTED).into(),
        error => failed(chain(&error)),
    })
}

/// Returns the size in the form of a recording.
fn recorded(size: TerminalSize) -> Size {
    Size { rows: size.rows(), columns: size.columns() }
}
