//! Sends a command's output to the daemon.
//!
//! ```text
//! flowing ─► quiet: no process writes, so an empty pipe is at its end ─► hurried: output no longer waits for credit
//! ```
//!
//! A pipe is read only when there is space for the frame and credit for its bytes. So a command that floods, or whose output is read slowly,
//! waits in the kernel and uses no memory here. Bytes beyond the profile's limit are counted and dropped, so that the count is true. So are
//! bytes without credit when the time is up. After the first dropped byte all further output is dropped, so the daemon has the beginning of
//! each stream.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::unix::pipe;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use wire::worker::v1::output::Stream;

use crate::call::Call;
use crate::credit::Credit;
use crate::outbox::Outbox;

/// Bytes that one read takes: half of a pipe's capacity, and half of a frame's.
const CHUNK: usize = 32 * 1024;
/// Largest capacity of a pipe, unless a privileged process enlarged it.
const LARGEST_PIPE: usize = 1024 * 1024;

/// The output streams of one command.
pub(super) struct Pumps {
    shared: Arc<Shared>,
    phase: watch::Sender<Phase>,
    tasks: JoinSet<()>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Flowing,
    Quiet,
    Hurried,
}

/// Deadlines for output once the command is over.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Time until which processes may still write.
    pub(super) quiet: Instant,
    /// Time until which output waits for the daemon's credit.
    pub(super) credit: Instant,
}

struct Shared {
    limit: u64,
    credit: Arc<Credit>,
    sent: AtomicU64,
    /// Bytes that were read from standard output and from standard error.
    read: [AtomicU64; 2],
    /// Some bytes were dropped, so none may follow them.
    dropped: AtomicBool,
    over_limit: Notify,
}

impl Pumps {
    /// Begins to read the streams.
    pub(super) fn start(call: &Call, sources: impl IntoIterator<Item = (Stream, pipe::Receiver)>) -> Self {
        let shared = Arc::new(Shared {
            limit: call.bounds.max_spool_bytes,
            credit: Arc::clone(&call.credit),
            sent: AtomicU64::new(0),
            read: Default::default(),
            dropped: AtomicBool::new(false),
            over_limit: Notify::new(),
        });
        let phase = watch::Sender::new(Phase::Flowing);
        let pumps = sources.into_iter().map(|(stream, source)| Pump {
            id: call.id,
            stream,
            source,
            outbox: call.outbox.clone(),
            phase: phase.subscribe(),
            shared: Arc::clone(&shared),
            offset: 0,
        });
        let tasks = pumps.map(Pump::run).collect();
        Self { shared, phase, tasks }
    }

    /// Waits until the command has written more than it may.
    pub(super) async fn over_limit(&self) {
        self.shared.over_limit.notified().await;
    }

    /// Returns true if all streams end within this time.
    pub(super) async fn have_ended(&mut self, within: Duration) -> bool {
        timeout(within, ended(&mut self.tasks)).await.is_ok()
    }

    /// Sends the output that is still in the pipes, until the deadlines or until `enough` resolves. Returns the bytes of each stream.
    pub(super) async fn finish(mut self, patience: Patience, enough: impl Future<Output = ()>) -> (u64, u64) {
        tokio::select! {
            biased;
            () = self.drained(patience) => {}
            () = enough => {}
        }
        // The rest is counted without waiting, or sent before the outcome, which uses the same writer.
        self.phase.send_replace(Phase::Hurried);
        ended(&mut self.tasks).await;
        let [stdout, stderr] = &self.shared.read;
        (stdout.load(Ordering::Relaxed), stderr.load(Ordering::Relaxed))
    }

    async fn drained(&mut self, patience: Patience) {
        if timeout_at(patience.quiet, ended(&mut self.tasks)).await.is_err() {
            self.phase.send_replace(Phase::Quiet);
            let _ = timeout_at(patience.credit, ended(&mut self.tasks)).await;
        }
    }
}

async fn ended(tasks: &mut JoinSet<()>) {
    while tasks.join_next().await.is_some() {}
}

struct Pump {
    id: u64,
    stream: Stream,
    source: pipe::Receiver,
    outbox: Outbox,
    phase: watch::Receiver<Phase>,
    shared: Arc<Shared>,
    /// Bytes of this stream that were sent.
    offset: u64,
}

impl Pump {
    async fn run(mut self) {
        let outbox = self.outbox.clone();
        let mut chunk = vec![0; CHUNK];
        let mut rest = LARGEST_PIPE;
        while rest > 0 {
            tokio::select! {
                biased;
                ready = self.source.readable() => if ready.is_err() { return },
                () = reached(&mut self.phase, Phase::Quiet) => {}
            }
            self.credited().await;
            let Some(slot) = outbox.slot().await else { return };
            let phase = *self.phase.borrow();
            // The other stream may have used the credit.
            let Some(most) = self.shared.most(phase) else { continue };
            match self.read(&mut chunk[..most], phase) {
                Ok(0) => return,
                Ok(count) => {
                    let granted = self.shared.admit(self.stream, count);
                    if granted > 0 {
                        slot.send(self.id, self.stream, self.offset, &chunk[..granted]);
                        self.offset += granted as u64;
                    }
                    if phase > Phase::Flowing {
                        rest = rest.saturating_sub(count);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && phase == Phase::Flowing => {}
                // The pipe is empty and quiet, or no process has the terminal open.
                Err(_) => return,
            }
        }
    }

    fn read(&self, chunk: &mut [u8], phase: Phase) -> io::Result<usize> {
        if phase == Phase::Flowing {
            return self.source.try_read(chunk);
        }
        // This reads from the kernel directly. The reactor may not know yet of the last bytes that were written.
        Ok(rustix::io::read(&self.source, chunk)?)
    }

    /// Waits for credit, unless none is needed or the time is up.
    async fn credited(&mut self) {
        tokio::select! {
            biased;
            () = self.shared.credited() => {}
            () = reached(&mut self.phase, Phase::Hurried) => {}
        }
    }
}

async fn reached(phase: &mut watch::Receiver<Phase>, at_least: Phase) {
    if phase.wait_for(|phase| *phase >= at_least).await.is_err() {
        // The sender is gone, so the phase never changes.
        std::future::pending::<()>().await;
    }
}

impl Shared {
    /// Returns true if further bytes are only counted.
    fn only_counts(&self) -> bool {
        self.dropped.load(Ordering::Relaxed) || self.sent.load(Ordering::Relaxed) >= self.limit
    }

    async fn credited(&self) {
        if !self.only_counts() {
            self.credit.more(|| self.sent.load(Ordering::Relaxed)).await;
        }
    }

    /// Returns how many bytes may be read now. `None` if the stream has to wait for credit.
    fn most(&self, phase: Phase) -> Option<usize> {
        if self.only_counts() {
            return Some(CHUNK);
        }
        match self.credit.left(self.sent.load(Ordering::Relaxed)) {
            0 => (phase == Phase::Hurried).then_some(CHUNK),
            left => Some(usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK)),
        }
    }

    /// Counts bytes that were read, and returns how many of the first ones may be sent.
    fn admit(&self, stream: Stream, count: usize) -> usize {
        let index = usize::from(stream == Stream::Stderr);
        self.read[index].fetch_add(count as u64, Ordering::Relaxed);
        if self.dropped.load(Ordering::Relaxed) {
            return 0;
        }
        let sent = self.sent.load(Ordering::Relaxed);
        let left = self.limit.saturating_sub(sent);
        let granted = left.min(self.credit.left(sent)).min(count as u64);
        self.sent.store(sent + granted, Ordering::Relaxed);
        if granted < count as u64 {
            self.dropped.store(true, Ordering::Relaxed);
        }
        if left < count as u64 {
            self.over_limit.notify_one();
        }
        usize::try_from(granted).unwrap_or(count)
    }
}
