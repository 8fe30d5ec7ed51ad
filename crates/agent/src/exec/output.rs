//! What a command writes, on its way to the daemon.
//!
//! A pipe is read only when there is room for the frame: whoever floods waits in the kernel, not in memory. Beyond
//! the profile's limit bytes are counted and dropped, so that the count stays true until the command is ended.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::unix::pipe;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use wire::worker::v1::output::Stream;

use crate::call::Call;
use crate::outbox::Outbox;

/// Bytes read at once: half of what a pipe holds, and of what a frame may carry.
const CHUNK: usize = 32 * 1024;

/// Both streams of one command.
pub(super) struct Pumps {
    shared: Arc<Shared>,
    tasks: [JoinHandle<()>; 2],
}

struct Shared {
    limit: u64,
    sent: AtomicU64,
    /// Bytes read of standard output and of standard error.
    read: [AtomicU64; 2],
    over_limit: Notify,
}

impl Pumps {
    /// Begins to read both pipes.
    pub(super) fn start(call: &Call, stdout: OwnedFd, stderr: OwnedFd) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            limit: call.bounds.max_spool_bytes,
            sent: AtomicU64::new(0),
            read: Default::default(),
            over_limit: Notify::new(),
        });
        let pump = |stream, pipe| {
            let pump = Pump {
                id: call.id,
                stream,
                pipe: pipe::Receiver::from_owned_fd(pipe)?,
                outbox: call.outbox.clone(),
                shared: Arc::clone(&shared),
            };
            Ok::<_, io::Error>(tokio::spawn(pump.run()))
        };
        let tasks = [pump(Stream::Stdout, stdout)?, pump(Stream::Stderr, stderr)?];
        Ok(Self { shared, tasks })
    }

    /// Waits until the command has written more than it may.
    pub(super) async fn over_limit(&self) {
        self.shared.over_limit.notified().await;
    }

    /// Reads what is still in the pipes, for at most so long. How many bytes each stream had.
    pub(super) async fn finish(mut self, limit: Duration) -> (u64, u64) {
        let deadline = Instant::now() + limit;
        for task in &mut self.tasks {
            if timeout_at(deadline, &mut *task).await.is_err() {
                // A pump gives nothing up between reading and sending, so the counts hold.
                task.abort();
                let _ = task.await;
            }
        }
        let [stdout, stderr] = &self.shared.read;
        (stdout.load(Ordering::Relaxed), stderr.load(Ordering::Relaxed))
    }
}

struct Pump {
    id: u64,
    stream: Stream,
    pipe: pipe::Receiver,
    outbox: Outbox,
    shared: Arc<Shared>,
}

impl Pump {
    async fn run(self) {
        let mut chunk = vec![0; CHUNK];
        let mut offset = 0;
        while self.pipe.readable().await.is_ok() {
            let Some(room) = self.outbox.room().await else { return };
            match self.pipe.try_read(&mut chunk) {
                Ok(0) => return,
                Ok(count) => {
                    let granted = self.shared.admit(self.stream, count);
                    if granted > 0 {
                        room.send(self.id, self.stream, offset, &chunk[..granted]);
                        offset += granted as u64;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }
}

impl Shared {
    /// Counts bytes that were read: how many of them, from the first, may be sent.
    fn admit(&self, stream: Stream, count: usize) -> usize {
        let index = usize::from(stream == Stream::Stderr);
        self.read[index].fetch_add(count as u64, Ordering::Relaxed);
        let room = self.limit.saturating_sub(self.sent.load(Ordering::Relaxed));
        let granted = usize::try_from(room).unwrap_or(usize::MAX).min(count);
        self.sent.fetch_add(granted as u64, Ordering::Relaxed);
        if granted < count {
            self.over_limit.notify_one();
        }
        granted
    }
}
