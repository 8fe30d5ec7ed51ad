//! One call's output on its way to the disk, with notifications for followers, who also get the pieces that are not stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Mutex, watch};

use super::files::Growing;
use super::ledger::Key;
use super::live::{Followers, Live, Unkept};
use super::trouble::NotKept;
use super::{Spool, Stream, files};

/// Time that the disk has to store one piece. The command waits meanwhile.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// Destination of a call's output. Cheap to clone.
#[derive(Clone)]
pub struct Output(Arc<Inner>);

struct Inner {
    spool: Arc<Spool>,
    key: Key,
    /// Held by a writer until the write is over, even if its caller no longer waits.
    open: Arc<Mutex<[Option<Growing>; 2]>>,
    /// Bytes of each stream that have come, kept or not.
    came: [AtomicU64; 2],
    /// Bytes of each stream that are kept.
    kept: watch::Sender<[u64; 2]>,
    /// True if the rest of the stream is not stored.
    stopped: [AtomicBool; 2],
    /// Followers, which get the pieces that are not stored.
    followers: Followers,
}

impl Output {
    pub(super) fn new(spool: Arc<Spool>, key: Key) -> Self {
        Self(Arc::new(Inner {
            spool,
            key,
            open: Arc::default(),
            came: Default::default(),
            kept: watch::Sender::new([0; 2]),
            stopped: Default::default(),
            followers: Followers::default(),
        }))
    }

    /// Returns the stored bytes of standard output and standard error.
    pub fn kept(&self) -> [u64; 2] {
        *self.0.kept.borrow()
    }

    /// Returns the bytes of standard output and standard error that have come, stored or not.
    pub fn came(&self) -> [u64; 2] {
        self.0.came.each_ref().map(|came| came.load(Ordering::Acquire))
    }

    /// Returns a receiver of the stored lengths, and from now on the pieces that are not stored.
    pub fn follow(&self) -> (watch::Receiver<[u64; 2]>, Live) {
        (self.0.kept.subscribe(), self.0.followers.add())
    }

    /// Ends the output. No piece is added after this.
    pub async fn finish(&self) {
        let inner = &self.0;
        for stopped in &inner.stopped {
            stopped.store(true, Ordering::Release);
        }
        // A write that hangs closes its file when it is over.
        if let Ok(mut open) = tokio::time::timeout(PATIENCE, inner.open.clone().lock_owned()).await
            && open.iter().any(Option::is_some)
        {
            let inner = inner.clone();
            let closing = tokio::task::spawn_blocking(move || {
                (0..open.len()).for_each(|at| inner.close(&mut open[at], at));
            });
            let _ = tokio::time::timeout(PATIENCE, closing).await;
        }
        if self.kept() != [0; 2] {
            inner.spool.ledger.lock().finish(inner.key);
        }
        inner.followers.end();
    }

    /// Stores a piece as far as possible, and passes it to the followers if a part was not stored.
    pub async fn put(&self, stream: Stream, offset: u64, data: Bytes) {
        let (inner, at) = (&self.0, stream.index());
        let end = offset + data.len() as u64;
        inner.came[at].fetch_max(end, Ordering::AcqRel);
        if !inner.stopped[at].load(Ordering::Acquire) {
            self.keep(stream, offset, data.clone()).await;
        }
        if self.kept()[at] < end {
            inner.followers.send(&Unkept { at, offset, data }, PATIENCE).await;
        }
    }

    async fn keep(&self, stream: Stream, offset: u64, data: Bytes) {
        let inner = &self.0;
        let writing = async {
            let open = inner.open.clone().lock_owned().await;
            let slot = inner.spool.writers.clone().acquire_owned().await;
            let inner = inner.clone();
            let write = tokio::task::spawn_blocking(move || {
                let (mut open, _slot) = (open, slot);
                let at = stream.index();
                if let Err(why) = inner.append(&mut open[at], at, offset, &data) {
                    inner.close(&mut open[at], at);
                    inner.stop(at, &why);
                }
            });
            let _ = write.await;
        };
        if tokio::time::timeout(PATIENCE, writing).await.is_err() {
            inner.stop(0, &NotKept::Slow);
            inner.stop(1, &NotKept::Slow);
        }
    }
}

impl Inner {
    /// Blocks on the disk.
    fn append(&self, open: &mut Option<Growing>, at: usize, offset: u64, data: &[u8]) -> Result<(), NotKept> {
        let key = self.key;
        let length = self.kept.borrow()[at];
        if offset != length {
            return Err(NotKept::Gap);
        }
        let granted = self.spool.make_room(key, at, length, data.len() as u64)?;
        let give_back = |length| self.spool.ledger.lock().settle(key, at, length);
        let file = match open {
            Some(file) => file,
            None => open.insert(self.spool.files.create(key, at).inspect_err(|_| give_back(length))?),
        };
        let whole = usize::try_from(granted).map_or(data, |granted| &data[..granted.min(data.len())]);
        let (written, result) = self.spool.files.write(key, at, file, whole);
        if written < granted {
            give_back(length + written);
        }
        self.kept.send_modify(|kept| kept[at] = length + written);
        result?;
        if whole.len() < data.len() { Err(NotKept::Full) } else { Ok(()) }
    }

    /// Marks the end of a stream's file, or removes a file without content. Blocks on the disk.
    fn close(&self, open: &mut Option<Growing>, at: usize) {
        let Some(growing) = open.take() else { return };
        if self.kept.borrow()[at] == 0 {
            let _ = self.spool.files.remove_stream(self.key, at);
        } else if let Err(error) = self.spool.files.end(self.key, at, &growing) {
            // The file of a run that was just deleted is gone, too.
            tracing::debug!(call = %self.key.call, %error, "the end of a command's output is not marked");
        }
    }

    fn stop(&self, at: usize, why: &NotKept) {
        if !self.stopped[at].swap(true, Ordering::AcqRel) {
            self.spool.trouble.report(self.key, files::END[at], why);
            self.spool.is_off(why);
        }
    }
}
