//! Queue of received output that waits for its sink. The reader adds to it without waiting, and the feeder takes from it.
//!
//! The call's window limits its bytes. The number of pieces is limited here: if a worker sends single bytes of both streams in turn, pieces
//! become longer and not more.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::client::OutputStream;

/// Most bytes that are handed out at once. A shorter piece may grow.
const PIECE: usize = 64 * 1024;
/// Number of waiting pieces up to which the order between the two streams is kept.
const PIECES: usize = 64;

/// Bytes of one stream.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) stream: OutputStream,
    /// Position of the first byte in that stream.
    pub(super) offset: u64,
    pub(super) data: Bytes,
}

#[derive(Debug)]
struct Waiting {
    stream: OutputStream,
    offset: u64,
    data: BytesMut,
}

/// The queue between the reader and a call's feeder.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    queue: Mutex<Queue>,
    news: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    pieces: VecDeque<Waiting>,
    /// True if no further output comes or is kept.
    closed: bool,
}

impl Backlog {
    pub(super) fn push(&self, stream: OutputStream, offset: u64, data: Bytes) {
        let mut queue = self.queue.lock();
        if queue.closed {
            return;
        }
        let full = queue.pieces.len() >= PIECES;
        let longer = match queue.pieces.back_mut() {
            Some(last) if last.stream == stream && last.data.len() + data.len() <= PIECE => Some(last),
            _ if full => queue.pieces.iter_mut().rev().find(|piece| piece.stream == stream),
            _ => None,
        };
        match longer {
            Some(piece) => piece.data.extend_from_slice(&data),
            None => queue.pieces.push_back(Waiting { stream, offset, data: data.into() }),
        }
        drop(queue);
        self.news.notify_one();
    }

    /// Ends the input of the queue. Waiting pieces can still be taken.
    pub(super) fn close(&self) {
        self.queue.lock().closed = true;
        self.news.notify_one();
    }

    /// Drops the waiting pieces, and all that come later, because the feeder has ended.
    pub(super) fn discard(&self) {
        *self.queue.lock() = Queue { pieces: VecDeque::new(), closed: true };
        self.news.notify_one();
    }

    /// Waits for the next piece. `None` if the queue is empty and closed.
    pub(super) async fn next(&self) -> Option<Piece> {
        loop {
            {
                let mut queue = self.queue.lock();
                if let Some(piece) = queue.take() {
                    return Some(piece);
                }
                if queue.closed {
                    return None;
                }
            }
            self.news.notified().await;
        }
    }
}

impl Queue {
    fn take(&mut self) -> Option<Piece> {
        let first = self.pieces.front_mut()?;
        let (stream, offset) = (first.stream, first.offset);
        let data = if first.data.len() > PIECE {
            first.offset += PIECE as u64;
            first.data.split_to(PIECE)
        } else {
            self.pieces.pop_front()?.data
        };
        Some(Piece { stream, offset, data: data.freeze() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl Backlog {
        fn taken(&self) -> Vec<Piece> {
            std::iter::from_fn(|| self.queue.lock().take()).collect()
        }
    }

    #[test]
    fn single_bytes_of_both_streams_become_few_pieces() {
        let backlog = Backlog::default();
        for offset in 0..100_000 {
            backlog.push(OutputStream::Stdout, offset, Bytes::from_static(b"o"));
            backlog.push(OutputStream::Stderr, offset, Bytes::from_static(b"e"));
            assert!(backlog.queue.lock().pieces.len() <= PIECES);
        }
        let taken = backlog.taken();
        assert!(taken.iter().all(|piece| piece.data.len() <= PIECE));
        assert!(taken.len() <= PIECES + 4, "{}", taken.len());
    }

    #[tokio::test]
    async fn pending_output_is_delivered_after_close() {
        let backlog = Backlog::default();
        backlog.push(OutputStream::Stdout, 0, Bytes::from_static(b"a"));
        backlog.close();
        backlog.push(OutputStream::Stdout, 1, Bytes::from_static(b"b"));
        assert_eq!(backlog.next().await.unwrap().data, "a");
        assert!(backlog.next().await.is_none());
        backlog.discard();
        assert!(backlog.next().await.is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn every_byte_is_returned_once_and_in_order(
            chunks in proptest::collection::vec((any::<bool>(), 1..70_000_usize, any::<bool>()), 1..150),
        ) {
            let backlog = Backlog::default();
            let (mut sent, mut got) = ([0_u64; 2], [0_u64; 2]);
            let mut check = |piece: Piece| {
                let stream = usize::from(piece.stream == OutputStream::Stderr);
                assert_eq!(piece.offset, got[stream]);
                for byte in piece.data {
                    assert_eq!(byte, (got[stream] % 251) as u8);
                    got[stream] += 1;
                }
            };
            for (stderr, length, take) in chunks {
                let stream = if stderr { OutputStream::Stderr } else { OutputStream::Stdout };
                let offset = &mut sent[usize::from(stderr)];
                let end = *offset + length as u64;
                backlog.push(stream, *offset, (*offset..end).map(|at| (at % 251) as u8).collect());
                *offset = end;
                if take {
                    backlog.queue.lock().take().into_iter().for_each(&mut check);
                }
            }
            backlog.taken().into_iter().for_each(&mut check);
            prop_assert_eq!(sent, got);
        }
    }
}
