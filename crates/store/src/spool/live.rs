//! Passes output that the spool does not store directly to the followers of a call.
//!
//! A follower reads the spool to its end, and then the pieces from here, without a gap. The queue is short. A command whose output is not
//! stored waits for its followers, as it would for the reader of a pipe. It does not wait for a follower that no longer reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc;

/// Pieces that are queued for one follower.
const PIECES: usize = 8;

/// A piece of output that is not stored.
#[derive(Debug, Clone)]
pub struct Unkept {
    /// Index of the stream, as in [`super::Stream::index`].
    pub at: usize,
    /// Offset of the piece in its stream.
    pub offset: u64,
    pub data: Bytes,
}

#[derive(Debug)]
pub struct Live {
    pieces: mpsc::Receiver<Unkept>,
    taken: Arc<AtomicU64>,
}

impl Live {
    /// Returns the next piece if there is one now.
    pub fn try_next(&mut self) -> Option<Unkept> {
        self.pieces.try_recv().ok()
    }

    /// Returns the next piece, or `None` after the last.
    pub async fn next(&mut self) -> Option<Unkept> {
        self.pieces.recv().await
    }

    /// Records that the follower's client has read something. It may be slow, but it is there.
    pub fn has_taken(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }
}

/// Sending end of a [`Live`].
#[derive(Debug, Clone)]
struct Follower {
    pieces: mpsc::Sender<Unkept>,
    taken: Arc<AtomicU64>,
}

impl Follower {
    /// Sends the piece. Returns false if the follower has read nothing for `patience`.
    async fn take(&self, piece: &Unkept, patience: Duration) -> bool {
        let room = self.pieces.reserve();
        tokio::pin!(room);
        let mut before = self.taken.load(Ordering::Relaxed);
        loop {
            match tokio::time::timeout(patience, &mut room).await {
                Ok(Ok(room)) => {
                    room.send(piece.clone());
                    return true;
                }
                // Its client has gone.
                Ok(Err(_)) => return false,
                Err(_) => {
                    let now = self.taken.load(Ordering::Relaxed);
                    if now == before {
                        return false;
                    }
                    before = now;
                }
            }
        }
    }
}

/// All followers of one call.
#[derive(Debug, Default)]
pub(super) struct Followers(Mutex<Vec<Follower>>);

impl Followers {
    pub(super) fn add(&self) -> Live {
        let (sender, pieces) = mpsc::channel(PIECES);
        let taken = Arc::new(AtomicU64::new(0));
        self.0.lock().push(Follower { pieces: sender, taken: taken.clone() });
        Live { pieces, taken }
    }

    /// Sends a piece to all followers. One that takes nothing for `patience` is dropped, and gets no further piece.
    pub(super) async fn send(&self, piece: &Unkept, patience: Duration) {
        let followers = self.0.lock().clone();
        for follower in followers {
            if !follower.take(piece, patience).await {
                self.0.lock().retain(|other| !Arc::ptr_eq(&other.taken, &follower.taken));
            }
        }
    }

    pub(super) fn end(&self) {
        self.0.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    fn piece(offset: u64) -> Unkept {
        Unkept { at: 0, offset, data: Bytes::from_static(b"x") }
    }

    #[tokio::test(start_paused = true)]
    async fn stalled_follower_is_dropped_and_slow_one_is_awaited() {
        let followers = Arc::new(Followers::default());
        let (mut slow, mut stalled) = (followers.add(), followers.add());
        let pieces = 3 * PIECES as u64;
        let writing = tokio::spawn({
            let followers = followers.clone();
            async move {
                for offset in 0..pieces {
                    followers.send(&piece(offset), PATIENCE).await;
                }
                followers.end();
            }
        });
        let mut offsets = Vec::new();
        loop {
            // Nearly too slow.
            tokio::time::sleep(PATIENCE.saturating_sub(Duration::from_millis(1))).await;
            slow.has_taken();
            let Some(piece) = slow.next().await else { break };
            offsets.push(piece.offset);
        }
        assert_eq!(offsets, (0..pieces).collect::<Vec<_>>());
        writing.await.unwrap();
        let got = std::iter::from_fn(|| stalled.try_next()).count();
        assert_eq!(got, PIECES);
    }

    #[tokio::test]
    async fn departed_follower_is_removed() {
        let followers = Followers::default();
        drop(followers.add());
        let mut live = followers.add();
        followers.send(&piece(7), PATIENCE).await;
        assert_eq!(live.try_next().map(|piece| piece.offset), Some(7));
        assert_eq!(followers.0.lock().len(), 1);
        followers.end();
        assert!(live.next().await.is_none());
    }
}
