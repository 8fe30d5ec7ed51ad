//! Sends frames to the worker: at once if no other frame waits, otherwise through a queue.
//!
//! A frame that the worker's socket takes at once saves a turn of the task that empties the queue. If the socket takes only a part, the
//! rest waits first in the queue, and no frame overtakes a waiting one.

use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::client::channel::Now;

/// Capacity of the queue in frames.
const FRAMES: usize = 64;

/// The sending side, shared by all senders.
#[derive(Debug)]
pub(super) struct Outbound {
    queue: mpsc::Sender<Vec<u8>>,
    line: Mutex<Line>,
}

#[derive(Debug)]
struct Line {
    /// Frames in the queue, or being written.
    waiting: usize,
    /// Socket that takes frames without waiting. Only a direct channel has one.
    now: Option<Now>,
}

/// Slot for one frame in the queue.
pub(super) struct FrameSlot<'o> {
    outbound: &'o Outbound,
    permit: mpsc::Permit<'o, Vec<u8>>,
}

impl Outbound {
    /// Returns the sending side, and the receiving end of its queue.
    pub(super) fn new(now: Option<Now>) -> (Self, mpsc::Receiver<Vec<u8>>) {
        let (queue, frames) = mpsc::channel(FRAMES);
        (Self { queue, line: Mutex::new(Line { waiting: 0, now }) }, frames)
    }

    /// Waits for a slot. `None` if the stream is gone.
    pub(super) async fn slot(&self) -> Option<FrameSlot<'_>> {
        self.queue.reserve().await.ok().map(|permit| FrameSlot { outbound: self, permit })
    }

    /// Records that a frame of the queue has been written.
    pub(super) fn written(&self) {
        self.line.lock().waiting -= 1;
    }
}

impl FrameSlot<'_> {
    /// Sends the frame at once or queues it.
    pub(super) fn send(self, mut frame: Vec<u8>) {
        let mut line = self.outbound.line.lock();
        if line.waiting == 0
            && let Some(now) = &line.now
        {
            // The writer will find any error of the stream.
            let sent = now.send(&frame).unwrap_or(0);
            if sent == frame.len() {
                return;
            }
            frame.drain(..sent);
        }
        line.waiting += 1;
        self.permit.send(frame);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::client::channel::Channel;

    /// Many send, more than the socket takes, to a reader who is slow at first.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn frames_stay_whole_and_in_their_order_whether_they_wait_or_not() {
        const SENDERS: u8 = 8;
        const FRAMES: u8 = 200;
        const LENGTH: usize = 5_000;
        let (ours, mut theirs) = tokio::net::UnixStream::pair().unwrap();
        let ours = ours.into_std().unwrap();
        let (mut outgoing, _incoming) = Channel::new(ours.into()).unwrap().split();
        let (outbound, mut frames) = Outbound::new(Some(outgoing.now()));
        let outbound = Arc::new(outbound);
        let written = Arc::clone(&outbound);
        tokio::spawn(async move {
            while let Some(frame) = frames.recv().await {
                outgoing.write_all(&frame).await.unwrap();
                written.written();
            }
        });
        let senders: Vec<_> = (0..SENDERS)
            .map(|sender| {
                let outbound = Arc::clone(&outbound);
                tokio::spawn(async move {
                    for number in 0..FRAMES {
                        let mut frame = vec![sender; LENGTH];
                        frame[1] = number;
                        outbound.slot().await.unwrap().send(frame);
                    }
                })
            })
            .collect();
        // Until the socket is full and frames wait.
        while outbound.line.lock().waiting == 0 {
            tokio::task::yield_now().await;
        }
        let mut next = [0; SENDERS as usize];
        for _ in 0..usize::from(SENDERS) * usize::from(FRAMES) {
            let mut frame = [0; LENGTH];
            theirs.read_exact(&mut frame).await.unwrap();
            let [sender, number, rest @ ..] = frame;
            assert!(rest.iter().all(|byte| *byte == sender), "a frame was torn");
            assert_eq!(number, next[usize::from(sender)]);
            next[usize::from(sender)] += 1;
        }
        for sender in senders {
            sender.await.unwrap();
        }
        assert_eq!(outbound.line.lock().waiting, 0);
        // What can be sent at once does not wait.
        outbound.slot().await.unwrap().send(vec![1; 10]);
        assert_eq!(outbound.line.lock().waiting, 0);
    }
}
