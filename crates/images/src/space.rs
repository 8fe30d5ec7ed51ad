//! Space on the engine's disk for a transfer.
//!
//! The engine's files are in no quota. So pieces are taken from a client only while the engine has space for them, and for as much again: it
//! keeps an archive before it writes the layers.

use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use disk_quotas::{Promise, Quotas};
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use refusal::Refusal;

use crate::passage::Pieces;

/// Space of one transfer, until this value is dropped.
pub(super) struct Space {
    promise: Promise,
    /// Reason why the pieces ended early.
    refused: Mutex<Option<Refusal>>,
}

impl Space {
    /// Begins with no space, on the disk where the engine has this directory.
    pub(super) fn on(quotas: &Quotas, directory: &Path) -> Arc<Self> {
        let promise = Promise::of(quotas.engine_disk(directory));
        Arc::new(Self { promise, refused: Mutex::default() })
    }

    /// Takes the space of a transfer whose size is known.
    pub(super) fn take(&self, bytes: u64) -> Result<(), Refusal> {
        self.promise.grow(bytes)
    }

    /// Returns the pieces, which end in an error when there is no space for the next one.
    pub(super) fn of_pieces(self: &Arc<Self>, pieces: Pieces) -> Pieces {
        // A client that is silent may keep its pieces after the transfer has ended.
        let space = Arc::downgrade(self);
        Box::pin(pieces.map(move |piece: io::Result<Bytes>| -> io::Result<Bytes> {
            let piece = piece?;
            let space = space.upgrade().ok_or(io::ErrorKind::ConnectionAborted)?;
            space.take(piece.len() as u64).map_err(|refusal| {
                *space.refused.lock() = Some(refusal);
                io::Error::from(io::ErrorKind::StorageFull)
            })?;
            Ok(piece)
        }))
    }

    /// Puts a failure down to the missing space, if that ended the pieces.
    pub(super) fn judge<T>(&self, made: Result<T, Refusal>) -> Result<T, Refusal> {
        made.map_err(|failure| self.refused.lock().take().unwrap_or(failure))
    }
}

#[cfg(test)]
mod tests {
    use disk_quotas::Thresholds;
    use futures_util::stream;
    use operations::Reason;

    use super::*;

    fn quotas(directory: &Path) -> Quotas {
        Quotas::open(directory, Thresholds { warn_free: 0, min_free: 0 }).unwrap()
    }

    #[tokio::test]
    async fn pieces_end_when_the_engine_has_no_space_and_the_failure_says_so() {
        let place = tempfile::tempdir().unwrap();
        let quotas = quotas(place.path());
        let space = Space::on(&quotas, place.path());
        let three = ["a", "b", "c"].map(|piece| Ok::<_, io::Error>(Bytes::from(piece)));
        let whole: Vec<_> = space.of_pieces(Box::pin(stream::iter(three))).collect().await;
        assert!(whole.len() == 3 && whole.iter().all(Result::is_ok), "{whole:?}");
        let failure = || Refusal::new(Reason::Cancelled, "incomplete");
        assert_eq!(space.judge::<()>(Err(failure())), Err(failure()), "another failure stays");

        // Another transfer was promised all that there is, but for a mebibyte.
        let other = Space::on(&quotas, place.path());
        let mut step = 1_u64 << 60;
        while step >= 1 << 20 {
            if other.take(step).is_err() {
                step /= 2;
            }
        }
        let large = Ok::<_, io::Error>(Bytes::from(vec![7; 64 << 20]));
        let mut pieces = space.of_pieces(Box::pin(stream::iter([large])));
        let error = pieces.next().await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        let judged = space.judge::<()>(Err(failure())).unwrap_err();
        assert!(judged.reason == Reason::WriteLimit && judged.message.contains("no space"), "{judged:?}");
        assert_eq!(space.judge(Ok(7)), Ok(7));
        drop(other);
        space.take(1).unwrap();
    }

    #[tokio::test]
    async fn pieces_that_outlive_their_transfer_keep_no_space() {
        let place = tempfile::tempdir().unwrap();
        let space = Space::on(&quotas(place.path()), place.path());
        let two = ["a", "b"].map(|piece| Ok::<_, io::Error>(Bytes::from(piece)));
        let mut pieces = space.of_pieces(Box::pin(stream::iter(two)));
        pieces.next().await.unwrap().unwrap();
        assert_eq!(Arc::strong_count(&space), 1);
        drop(space);
        let error = pieces.next().await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
    }
}
