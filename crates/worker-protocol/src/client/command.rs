//! Checks the frames that a worker sends about one command, and keeps the beginning and end of its output.

use std::sync::Arc;
use std::time::Duration;

use operations::{Bounds, CommandReport, KillEvidence, Written};
use wire::worker::v1::{self, output::Stream};

use crate::client::backlog::Backlog;
use crate::client::line::Line;
use crate::client::output::HeadTail;
use crate::client::window::Window;
use crate::client::{OutputStream, Usage, Violation};

/// Most bytes in one Output frame.
pub(super) const MAX_CHUNK: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct Command {
    stage: Stage,
    stdout: HeadTail,
    stderr: HeadTail,
    /// Most bytes of output that may come.
    limit: u64,
    window: Window,
    backlog: Arc<Backlog>,
    /// Input of the terminal, if there is one.
    input: Option<Input>,
    /// Evidence that the daemon itself found when it ended the command.
    evidence: Option<KillEvidence>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Placed. No frame came yet.
    Begun,
    /// Its process was placed before. It counts as running unless the worker announces another process.
    Prepared,
    Spawned,
    /// It runs, as far as the daemon knows.
    Running,
    /// The daemon is ending the processes that it left.
    Ended,
    /// The daemon has ended the processes that it left.
    Cleared,
    /// It runs without a placement, and the worker ends it.
    Unplaced,
}

/// Bytes that were sent to a terminal.
#[derive(Debug)]
struct Input {
    untaken: usize,
    line: Arc<Line>,
}

impl Command {
    /// Makes the state of a command whose Start is about to be sent.
    ///
    /// `line` leads to its terminal, if it has one. Then output goes only to the sink, and the result contains none of it.
    pub(super) fn new(bounds: &Bounds, placed: bool, backlog: Arc<Backlog>, line: Option<Arc<Line>>) -> Self {
        let kept = if line.is_some() { 0 } else { bounds.max_output_bytes };
        Self {
            stage: if placed { Stage::Begun } else { Stage::Unplaced },
            stdout: HeadTail::new(kept),
            stderr: HeadTail::new(kept),
            limit: bounds.max_spool_bytes,
            window: Window::new(),
            backlog,
            input: line.map(|line| Input { untaken: 0, line }),
            evidence: None,
        }
    }

    /// Marks the command's process as placed already.
    pub(super) fn prepared(self) -> Self {
        Self { stage: Stage::Prepared, ..self }
    }

    /// Records that the command was placed and is about to run.
    pub(super) fn release(&mut self) {
        self.stage = Stage::Running;
    }

    /// Records that its processes were ended. The caller informs the worker next.
    pub(super) fn clear(&mut self, evidence: KillEvidence) {
        self.stage = Stage::Cleared;
        self.evidence = Some(evidence);
    }

    /// Permits more output.
    pub(super) fn grant(&mut self, bytes: u64) {
        self.window.grant(bytes);
    }

    /// Records input that is about to be sent. The caller has checked that it fits.
    pub(super) fn typed(&mut self, bytes: usize) {
        if let Some(input) = &mut self.input {
            input.untaken += bytes;
        }
    }

    pub(super) fn spawned(&mut self, pid: u32) -> Result<(), Violation> {
        // 1 is the container's own first process.
        let expected = match self.stage {
            Stage::Begun => true,
            Stage::Prepared => self.received() == 0,
            _ => false,
        };
        if !expected || pid < 2 || i32::try_from(pid).is_err() {
            return Err(Violation::Spawned);
        }
        self.stage = Stage::Spawned;
        Ok(())
    }

    pub(super) fn ended(&mut self) -> Result<(), Violation> {
        if !matches!(self.stage, Stage::Running | Stage::Prepared) {
            return Err(Violation::Ended);
        }
        self.stage = Stage::Ended;
        Ok(())
    }

    pub(super) fn output(&mut self, output: v1::Output) -> Result<(), Violation> {
        let free = self.limit - self.received();
        let (stream, kept) = match output.stream() {
            Stream::Stdout => (OutputStream::Stdout, &mut self.stdout),
            // A terminal has one stream.
            Stream::Stderr if self.input.as_ref().is_none_or(|input| input.line.pipes) => {
                (OutputStream::Stderr, &mut self.stderr)
            }
            Stream::Stderr | Stream::Unspecified => return Err(Violation::Output),
        };
        let v1::Output { offset, data, .. } = output;
        let length = data.len() as u64;
        let early = matches!(self.stage, Stage::Begun | Stage::Spawned);
        if early || data.is_empty() || data.len() > MAX_CHUNK || length > free || offset != kept.total() {
            return Err(Violation::Output);
        }
        if !self.window.spend(length) {
            return Err(Violation::Window);
        }
        kept.push(&data);
        self.backlog.push(stream, offset, data);
        Ok(())
    }

    pub(super) fn taken(&mut self, bytes: u64) -> Result<(), Violation> {
        let early = matches!(self.stage, Stage::Begun | Stage::Spawned);
        let input = self.input.as_mut().filter(|_| !early).ok_or(Violation::Taken)?;
        let bytes = usize::try_from(bytes).ok().filter(|bytes| (1..=input.untaken).contains(bytes));
        let bytes = bytes.ok_or(Violation::Taken)?;
        input.untaken -= bytes;
        input.line.space.add_permits(bytes);
        Ok(())
    }

    /// Returns true if the command may end in a failure. A failure must not hide the effects of a command that ran.
    pub(super) fn may_fail(&self) -> bool {
        self.received() == 0 && !matches!(self.stage, Stage::Ended | Stage::Cleared)
    }

    /// Returns true if the command may end with this report now.
    pub(super) fn may_end(&self, report: &CommandReport) -> bool {
        let ended = match self.stage {
            Stage::Prepared | Stage::Running | Stage::Cleared | Stage::Unplaced => true,
            Stage::Begun | Stage::Spawned | Stage::Ended => false,
        };
        let said = (report.stdout.bytes, report.stderr.bytes);
        let had = (self.stdout.total(), self.stderr.total());
        // The counts may exceed what came only if the worker could send no further output: at the limit, or without credit.
        let stopped = self.received() == self.limit || self.window.may_be_used_up();
        let counted = said == had || (stopped && said.0 >= had.0 && said.1 >= had.1);
        ended && counted
    }

    /// Adds the kept output and the daemon's own evidence to the report, limits its usage to possible values, and returns that.
    pub(super) fn complete(self, report: &mut CommandReport, took: Duration) -> Usage {
        for (kept, written) in [(self.stdout, &mut report.stdout), (self.stderr, &mut report.stderr)] {
            *written = if self.input.is_some() {
                Written { omitted: written.bytes, ..std::mem::take(written) }
            } else {
                let shown = kept.into_text(written.bytes);
                Written { text: shown.text, bytes: written.bytes, omitted: shown.omitted }
            };
        }
        if let Some(evidence) = self.evidence {
            report.kill = evidence;
        }
        let usage = Usage {
            cpu_time_us: Some(report.usage.cpu_time_us),
            peak_memory_bytes: Some(report.usage.peak_memory_bytes),
        };
        let usage = usage.bounded(took);
        report.usage.cpu_time_us = usage.cpu_time_us.unwrap_or_default();
        report.usage.peak_memory_bytes = usage.peak_memory_bytes.unwrap_or_default();
        usage
    }

    fn received(&self) -> u64 {
        self.stdout.total() + self.stderr.total()
    }
}
