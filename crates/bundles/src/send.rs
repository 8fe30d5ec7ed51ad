//! The way of a bundle to its client.

use std::sync::Arc;

use refusal::Refusal;
use tokio::sync::mpsc;
use tonic::Status;
use wire::v1::create_bundle_response::Event;
use wire::v1::{BundleProgress, CreateBundleResponse};

use super::Made;

/// Bytes of one message.
const CHUNK: usize = 64 * 1024;
/// Bytes that are read at once.
const PIECE: usize = 16 * CHUNK;
/// Messages that may wait for the client.
const WAITING: usize = 4;

/// What the client is told.
#[derive(Clone)]
pub struct Events(mpsc::Sender<Result<CreateBundleResponse, Status>>);

impl Events {
    /// And where it is read.
    pub fn new() -> (Self, mpsc::Receiver<Result<CreateBundleResponse, Status>>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Self(sender), receiver)
    }

    /// Says how far the log is read. False: nobody waits any more. News that the client is too slow for is left out.
    pub(super) fn progress(&self, records_read: u64, head_sequence: u64) -> bool {
        let progress = BundleProgress { records_read, head_sequence };
        let sent = self.0.try_send(Ok(response(Event::Progress(progress))));
        !matches!(sent, Err(mpsc::error::TrySendError::Closed(_)))
    }

    /// Sends the archive, and what there is to say of it.
    pub(super) async fn send_all(&self, made: Made) -> Result<(), Refusal> {
        let Made { archive, summary } = made;
        let failed = |error: &dyn std::fmt::Display| Refusal::internal("sending a bundle", error);
        let archive = Arc::new(archive);
        let mut offset = 0;
        while offset < archive.bytes() {
            let from = archive.clone();
            let piece = tokio::task::spawn_blocking(move || from.piece(offset, PIECE)).await;
            let piece = piece.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
            if piece.is_empty() {
                return Err(failed(&"the file is shorter than it was"));
            }
            offset += piece.len() as u64;
            for chunk in piece.chunks(CHUNK) {
                if self.0.send(Ok(response(Event::Data(chunk.to_vec())))).await.is_err() {
                    // The client has left.
                    return Ok(());
                }
            }
        }
        let _ = self.0.send(Ok(response(Event::Made(summary)))).await;
        Ok(())
    }

    /// Says why there is no bundle.
    pub async fn fail(self, refusal: Refusal) {
        let _ = self.0.send(Err(refusal.into())).await;
    }
}

fn response(event: Event) -> CreateBundleResponse {
    CreateBundleResponse { event: Some(event) }
}
