//! Reads the output of companions, for `RunService`.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::{Stream, StreamExt as _};
use operations::Reason;
use refusal::{Refusal, chain};
use runs::Run;
use tokio::sync::Semaphore;
use tonic::Status;
use wire::v1::{ReadCompanionLogsRequest, ReadCompanionLogsResponse};

/// Clients that read at the same time. Each of them has a connection to the engine.
pub(crate) const READERS: usize = 32;
/// Usual and most bytes of the output so far.
const TAIL: (u32, u32) = (64 * 1024, 1024 * 1024);
/// Most bytes of one message.
const PIECE: usize = 64 * 1024;

pub(super) type Log = Pin<Box<dyn Stream<Item = Result<ReadCompanionLogsResponse, Status>> + Send>>;

/// Returns the output of a companion, until the run ends at the latest.
pub(super) async fn read(
    run: Arc<Run>,
    request: &ReadCompanionLogsRequest,
    readers: &Arc<Semaphore>,
) -> Result<Log, Refusal> {
    let companions = run.companions();
    let companion = companions.get(&request.companion).ok_or_else(|| {
        Refusal::new(Reason::NotFound, "companion: the run has no companion of this name")
            .with("resource", "companion")
    })?;
    let reader = Arc::clone(readers).try_acquire_owned().map_err(|_| {
        let message = "too many clients read the output of companions; try again later";
        Refusal::new(Reason::Overloaded, message)
    })?;
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
        let _while_read = &reader;
        let pieces = match piece {
            Ok(bytes) => bytes
                .chunks(PIECE)
                .map(|data| Ok(ReadCompanionLogsResponse { data: data.to_vec() }))
                .collect(),
            Err(error) => vec![Err(Status::from(failed(&error)))],
        };
        futures_util::stream::iter(pieces)
    });
    Ok(Box::pin(pieces.take_until(run.ended.clone().cancelled_owned())))
}
