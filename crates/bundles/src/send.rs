//! Sends a bundle and its progress to the client.

use std::sync::Arc;

use refusal::Refusal;
use tokio::sync::mpsc;
use tonic::Status;
use wire::v1::create_bundle_response::Event;
use wire::v1::{BundleProgress, CreateBundleResponse};

use super::Made;

/// Maximum number of bytes in one message.
const CHUNK: usize = 64 * 1024;
/// Number of bytes that are read from the file at once.
const PIECE: usize = 16 * CHUNK;
/// Maximum number of messages that wait for the client.
const WAITING: usize = 4;

/// Sender of the messages to the client.
#[derive(Clone)]
pub struct Events(mpsc::Sender<Result<CreateBundleResponse, Status>>);

impl Events {
    /// Returns the sender, and the receiver from which the client's stream reads.
    pub fn new() -> (Self, mpsc::Receiver<Result<CreateBundleResponse, Status>>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Self(sender), receiver)
    }

    /// Reports how far the log is read. Returns false if the client no longer waits.
    ///
    /// Drops the report if the client is too slow for it.
    pub(super) fn progress(&self, records_read: u64, head_sequence: u64) -> bool {
        let progress = BundleProgress { records_read, head_sequence };
        let sent = self.0.try_send(Ok(response(Event::Progress(progress))));
        !matches!(sent, Err(mpsc::error::TrySendError::Closed(_)))
    }

    /// Sends the archive in chunks, followed by its summary.
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
                return Err(failed(&"the file became shorter while it was sent"));
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

    /// Ends the stream with the reason why there is no bundle.
    pub async fn fail(self, refusal: Refusal) {
        let _ = self.0.send(Err(refusal.into())).await;
    }
}

fn response(event: Event) -> CreateBundleResponse {
    CreateBundleResponse { event: Some(event) }
}
