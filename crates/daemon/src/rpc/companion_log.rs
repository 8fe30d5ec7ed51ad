//! Reads the output of companions, for `RunService`.

use std::collections::HashMap;
use std::future::ready;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _, stream};
use identity::RunId;
use operations::Reason;
use parking_lot::Mutex;
use refusal::{Refusal, chain};
use runs::Run;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::Status;
use wire::v1::{ReadCompanionLogsRequest, ReadCompanionLogsResponse};

use super::whole_or_stopped;

/// Clients that read at the same time. Each of them has a connection to the engine.
const READERS: usize = 32;
/// Clients that read the output of one run at the same time.
const READERS_OF_RUN: usize = 4;
/// Time in which a client has to read a message.
const UNREAD: Duration = Duration::from_secs(120);
/// Usual and most bytes of the output so far.
const TAIL: (u32, u32) = (64 * 1024, 1024 * 1024);
/// Most bytes of one message.
const PIECE: usize = 64 * 1024;

pub(super) type Log = Pin<Box<dyn Stream<Item = Result<ReadCompanionLogsResponse, Status>> + Send>>;

/// The clients that read, by run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Readers(Arc<Mutex<HashMap<RunId, usize>>>);

/// A client's place among those that read. Dropping it frees the place.
#[derive(Debug)]
struct Place {
    readers: Readers,
    run: RunId,
}

impl Readers {
    fn enter(&self, run: RunId) -> Result<Place, Refusal> {
        let mut all = self.0.lock();
        let of_run = all.get(&run).copied().unwrap_or_default();
        if of_run >= READERS_OF_RUN {
            let message = format!(
                "{READERS_OF_RUN} clients read the output of this run's companions, which is the limit; end one and try again"
            );
            return Err(Refusal::new(Reason::Overloaded, message));
        }
        if all.values().sum::<usize>() >= READERS {
            let message = "too many clients read the output of companions; try again later";
            return Err(Refusal::new(Reason::Overloaded, message));
        }
        all.insert(run, of_run + 1);
        Ok(Place { readers: self.clone(), run })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut all = self.readers.0.lock();
        if let Some(of_run) = all.get_mut(&self.run) {
            *of_run -= 1;
            if *of_run == 0 {
                all.remove(&self.run);
            }
        }
    }
}

/// Returns the output of a companion, until the run ends or `stop` at the latest.
pub(super) async fn read(
    (id, run): (RunId, Arc<Run>),
    request: &ReadCompanionLogsRequest,
    readers: &Readers,
    (tasks, stop): (&TaskTracker, &CancellationToken),
) -> Result<Log, Refusal> {
    let companions = run.companions();
    let companion = companions.get(&request.companion).ok_or_else(|| {
        Refusal::new(Reason::NotFound, "companion: the run has no companion of this name")
            .with("resource", "companion")
    })?;
    let place = readers.enter(id)?;
    let tail = match request.tail_bytes {
        0 => TAIL.0,
        most => most.min(TAIL.1),
    };
    let failed = |error: &containers::EngineError| {
        tracing::error!(error = %chain(error), "the output of a companion cannot be read");
        Refusal::new(Reason::EngineUnavailable, "the container engine does not give the companion's output")
    };
    let log = companion.log(usize::try_from(tail).unwrap_or(usize::MAX), request.follow).await;
    let log = log.map_err(|error| failed(&error))?;
    let pieces = log.flat_map(move |piece| {
        let pieces = match piece {
            Ok(bytes) => bytes
                .chunks(PIECE)
                .map(|data| Ok(ReadCompanionLogsResponse { data: data.to_vec() }))
                .collect(),
            Err(error) => vec![Err(Status::from(failed(&error)))],
        };
        stream::iter(pieces)
    });
    let (sender, receiver) = mpsc::channel(1);
    let (late, is_late) = oneshot::channel();
    let (ended, stopped) = (run.ended.clone(), stop.clone());
    tasks.spawn(async move {
        let _place = place;
        tokio::select! {
            forwarded = forward(pieces, sender) => if let Err(refusal) = forwarded {
                // The client may be gone.
                let _ = late.send(refusal);
            },
            () = ended.cancelled() => {}
            () = stopped.cancelled() => {}
        }
    });
    let end = stream::once(is_late);
    let end = end.filter_map(|end| ready(end.ok().map(|refusal| Err(Status::from(refusal)))));
    let read = ReceiverStream::new(receiver).chain(end);
    let read = read.take_until(run.ended.clone().cancelled_owned());
    Ok(whole_or_stopped(read, stop))
}

/// Passes a log on to a client, until the client leaves. Refuses a client that does not read.
///
/// The caller's stream is polled only while the client reads, so it cannot measure that time itself.
async fn forward<T>(pieces: impl Stream<Item = T>, to: mpsc::Sender<T>) -> Result<(), Refusal> {
    let mut pieces = pin!(pieces);
    loop {
        let piece = tokio::select! {
            piece = pieces.next() => piece,
            () = to.closed() => None,
        };
        let Some(piece) = piece else { return Ok(()) };
        match timeout(UNREAD, to.send(piece)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Ok(()),
            Err(_) => {
                let message = format!(
                    "the client has read nothing for {UNREAD:?}, so its place is free for others; read the output again"
                );
                return Err(Refusal::new(Reason::Overloaded, message));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readers_of_one_run_leave_places_for_those_of_others() {
        let (readers, run) = (Readers::default(), RunId::new());
        let mut places: Vec<Place> = (0..READERS_OF_RUN).map(|_| readers.enter(run).unwrap()).collect();
        assert_eq!(readers.enter(run).unwrap_err().reason, Reason::Overloaded);
        while places.len() < READERS {
            places.push(readers.enter(RunId::new()).unwrap());
        }
        assert_eq!(readers.enter(RunId::new()).unwrap_err().reason, Reason::Overloaded);
        places.remove(0);
        places.push(readers.enter(run).unwrap());
        drop(places);
        assert!(readers.0.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_refused_and_one_that_leaves_ends_the_log() {
        let (sender, mut receiver) = mpsc::channel(1);
        let refusal = forward(stream::iter(0..9), sender).await.unwrap_err();
        assert_eq!(refusal.reason, Reason::Overloaded);
        assert_eq!((receiver.recv().await, receiver.recv().await), (Some(0), None));

        let (sender, receiver) = mpsc::channel::<u8>(1);
        drop(receiver);
        assert!(forward(stream::pending(), sender).await.is_ok());

        let (sender, mut receiver) = mpsc::channel(9);
        assert!(forward(stream::iter(0..9), sender).await.is_ok());
        assert_eq!(receiver.recv().await, Some(0));
    }
}
