//! What a command writes, on its way to the daemon.
//!
//! ```text
//! flowing ─► quiet: nobody adds any more, so an empty pipe is at its end ─► hurried: nobody waits for credit any more
//! ```
//!
//! A pipe is read only when there is room for the frame and credit for its bytes: whoever floods, or is read slowly,
//! waits in the kernel, not in memory. Beyond the profile's limit, and without credit when there is no more time,
//! bytes are counted and dropped, so that the count stays true. After the first of them nothing is sent any more:
//! what the daemon has is the beginning of each stream.

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

/// Bytes read at once: half of what a pipe holds, and of what a frame may carry.
const CHUNK: usize = 32 * 1024;
/// The most that a pipe can hold, unless somebody with privileges made it larger.
const LARGEST_PIPE: usize = 1024 * 1024;

/// All streams of one command.
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

/// How patient to be with output once the command is over.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// With processes that may still write.
    pub(super) quiet: Instant,
    /// With the daemon's credit for what was written.
    pub(super) credit: Instant,
}

struct Shared {
    limit: u64,
    credit: Arc<Credit>,
    sent: AtomicU64,
    /// Bytes read of standard output and of standard error.
    read: [AtomicU64; 2],
    /// Some were not sent: none may follow them.
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

    /// Whether all streams come to their end within this time.
    pub(super) async fn have_ended(&mut self, within: Duration) -> bool {
        timeout(within, ended(&mut self.tasks)).await.is_ok()
    }

    /// Sends what is still in the pipes, with at most so much patience, and none once `enough` resolves. How many bytes
    /// each stream had.
    pub(super) async fn finish(mut self, patience: Patience, enough: impl Future<Output = ()>) -> (u64, u64) {
        tokio::select! {
            biased;
            () = self.drained(patience) => {}
            () = enough => {}
        }
        // What is left is counted without waiting, or sent before the outcome, which waits for the same writer.
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
            let Some(room) = outbox.room().await else { return };
            let phase = *self.phase.borrow();
            // The other stream may have used the credit.
            let Some(most) = self.shared.most(phase) else { continue };
            match self.read(&mut chunk[..most], phase) {
                Ok(0) => return,
                Ok(count) => {
                    let granted = self.shared.admit(self.stream, count);
                    if granted > 0 {
                        room.send(self.id, self.stream, self.offset, &chunk[..granted]);
                        self.offset += granted as u64;
                    }
                    if phase > Phase::Flowing {
                        rest = rest.saturating_sub(count);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && phase == Phase::Flowing => {}
                // Empty and quiet; or a terminal that nobody has open any more.
                Err(_) => return,
            }
        }
    }

    fn read(&self, chunk: &mut [u8], phase: Phase) -> io::Result<usize> {
        if phase == Phase::Flowing {
            return self.source.try_read(chunk);
        }
        // The kernel is asked, not the reactor, which may not have been told yet of what was written last.
        Ok(rustix::io::read(&self.source, chunk)?)
    }

    /// Waits for credit, unless none is needed, or there is no time.
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
        // Nobody will say so any more.
        std::future::pending::<()>().await;
    }
}

impl Shared {
    /// Whether what is read is only counted.
    fn only_counts(&self) -> bool {
        self.dropped.load(Ordering::Relaxed) || self.sent.load(Ordering::Relaxed) >= self.limit
    }

    async fn credited(&self) {
        if !self.only_counts() {
            self.credit.more(|| self.sent.load(Ordering::Relaxed)).await;
        }
    }

    /// How many bytes may be read now; `None` when credit has to be waited for.
    fn most(&self, phase: Phase) -> Option<usize> {
        if self.only_counts() {
            return Some(CHUNK);
        }
        match self.credit.left(self.sent.load(Ordering::Relaxed)) {
            0 => (phase == Phase::Hurried).then_some(CHUNK),
            left => Some(usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK)),
        }
    }

    /// Counts bytes that were read: how many of them, from the first, may be sent.
    fn admit(&self, stream: Stream, count: usize) -> usize {
        let index = usize::from(stream == Stream::Stderr);
        self.read[index].fetch_add(count as u64, Ordering::Relaxed);
        if self.dropped.load(Ordering::Relaxed) {
            return 0;
        }
        let sent = self.sent.load(Ordering::Relaxed);
        let room = self.limit.saturating_sub(sent);
        let granted = room.min(self.credit.left(sent)).min(count as u64);
        self.sent.store(sent + granted, Ordering::Relaxed);
        if granted < count as u64 {
            self.dropped.store(true, Ordering::Relaxed);
        }
        if room < count as u64 {
            self.over_limit.notify_one();
        }
        usize::try_from(granted).unwrap_or(count)
    }
}
