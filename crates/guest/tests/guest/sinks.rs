//! Sinks for output in tests, at the pace that a test sets.

use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use worker_protocol::client::{OutputSink, OutputStream};

/// Keeps what it takes.
#[derive(Default)]
pub(crate) struct Screen {
    shown: Mutex<Vec<u8>>,
    news: Notify,
}

impl Screen {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock()).into_owned()
    }

    /// Waits until it has shown this.
    pub(crate) async fn shows(&self, expected: &str) {
        let waiting = async {
            while !self.text().contains(expected) {
                self.news.notified().await;
            }
        };
        let shown = tokio::time::timeout(Duration::from_secs(60), waiting).await;
        assert!(shown.is_ok(), "no {expected:?} in {:?}", self.text());
    }
}

impl OutputSink for Screen {
    fn take(
        &self,
        stream: OutputStream,
        _: u64,
        data: Bytes,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        assert_eq!(stream, OutputStream::Stdout);
        self.shown.lock().extend_from_slice(&data);
        self.news.notify_one();
        Box::pin(async {})
    }
}

/// Counts what it takes, as soon as it is open.
pub(crate) struct Gate {
    counts: Mutex<[u64; 2]>,
    open: Semaphore,
    /// Pieces between two rests.
    rests: Option<u32>,
    pieces: AtomicU32,
}

impl Gate {
    /// One that is closed.
    pub(crate) fn closed() -> Self {
        Self { counts: Mutex::default(), open: Semaphore::new(0), rests: None, pieces: AtomicU32::new(0) }
    }

    /// One that is open, and rests for a millisecond after so many pieces.
    pub(crate) fn slow(pieces: u32) -> Self {
        let gate = Self { rests: Some(pieces), ..Self::closed() };
        gate.open();
        gate
    }

    pub(crate) fn open(&self) {
        self.open.add_permits(1);
    }

    /// Bytes of standard output and of standard error.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let [stdout, stderr] = *self.counts.lock();
        (stdout, stderr)
    }
}

impl OutputSink for Gate {
    fn take(
        &self,
        stream: OutputStream,
        offset: u64,
        data: Bytes,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            let _open = self.open.acquire().await.unwrap();
            let piece = self.pieces.fetch_add(1, Ordering::Relaxed);
            if self.rests.is_some_and(|rests| piece.is_multiple_of(rests)) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let counts = &mut *self.counts.lock();
            let count = &mut counts[usize::from(stream == OutputStream::Stderr)];
            assert_eq!(*count, offset);
            *count += data.len() as u64;
        })
    }
}
