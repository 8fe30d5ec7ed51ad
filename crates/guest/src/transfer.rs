//! A download. A thread reads the file, and its pieces go to the daemon like output, when there is credit for them.

use std::io::{self, Write};
use std::time::Duration;

use file_ops::{Cancel, TRANSFER_PIECE};
use jail::Mount;
use operations::{Outcome, Read, Reason, ToolFailure};
use tokio::sync::mpsc;
use tokio::time::{sleep_until, timeout};
use wire::worker::v1::output::Stream;

use crate::call::Call;
use crate::files;
use crate::lane::Lane;

/// Pieces between the thread and the daemon.
const WAITING: usize = 4;
/// Time in which a thread stops after it was told to. It stops between two pieces, unless the file system blocks it.
const STOP: Duration = Duration::from_millis(500);

/// Sends the contents of the download, until its end, a cancellation, or the call's deadline.
pub(crate) async fn run(call: &mut Call, lane: &Lane, read: Read) -> Outcome {
    // Each download uses a thread for as long as its reader takes.
    let Ok(_place) = lane.transfers.try_acquire() else {
        let message = "this run has its maximum of simultaneous downloads; try again later";
        return Err(ToolFailure::new(Reason::Overloaded, message));
    };
    let (mounts, bounds) = (lane.mounts.clone(), call.bounds.clone());
    let stop = Cancel::new(Some(call.deadline.into_std()));
    let asked = stop.clone();
    let (pieces, mut waiting) = mpsc::channel(WAITING);
    let mut work = lane.threads.run(move || {
        let jail = files::jail_for(&mounts, read.path.mount() == Mount::Container, &bounds)?;
        file_ops::send(&jail, &read, &bounds, &asked, &mut Pieces { next: Vec::new(), pieces })
    });
    let deadline = call.deadline;
    let (id, credit, outbox) = (call.id, call.credit.clone(), call.outbox.clone());
    let pump = async {
        let mut sent = 0_u64;
        while let Some(piece) = waiting.recv().await {
            let mut rest = &piece[..];
            while !rest.is_empty() {
                credit.more(|| sent).await;
                let Some(slot) = outbox.slot().await else { return };
                let most = usize::try_from(credit.left(sent)).unwrap_or(usize::MAX).min(rest.len());
                let (now, later) = rest.split_at(most);
                if !now.is_empty() {
                    slot.send(id, Stream::Stdout, sent, now);
                }
                sent += most as u64;
                rest = later;
            }
        }
    };
    let failure = tokio::select! {
        biased;
        () = pump => None,
        () = sleep_until(deadline) => {
            Some(ToolFailure::new(Reason::TimedOut, "not done before the call's deadline"))
        }
        () = call.cancelled() => Some(ToolFailure::new(Reason::Cancelled, "cancelled")),
    };
    if failure.is_some() {
        stop.cancel();
        drop(waiting);
    }
    match (timeout(STOP, &mut work).await, failure) {
        (_, Some(failure)) => Err(failure),
        (Ok(Ok(outcome)), None) => outcome,
        _ => Err(ToolFailure::new(Reason::Cancelled, "the guest is ending")),
    }
}

/// Collects written bytes into pieces of one size.
struct Pieces {
    next: Vec<u8>,
    pieces: mpsc::Sender<Vec<u8>>,
}

impl Pieces {
    fn send(&mut self) -> io::Result<()> {
        let piece = std::mem::replace(&mut self.next, Vec::with_capacity(TRANSFER_PIECE));
        self.pieces.blocking_send(piece).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let space = TRANSFER_PIECE.saturating_sub(self.next.len());
        let taken = space.min(bytes.len());
        self.next.extend_from_slice(&bytes[..taken]);
        if self.next.len() >= TRANSFER_PIECE {
            self.send()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.next.is_empty() { Ok(()) } else { self.send() }
    }
}
