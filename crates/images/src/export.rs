//! Sends an image as an archive of `docker save`, which another daemon imports.

use std::io;
use std::time::Duration;

use audit::Kind;
use bytes::Bytes;
use containers::{EngineError, ImageId, ImageReference};
use futures_util::StreamExt as _;
use identity::Principal;
use operations::Reason;
use refusal::{Refusal, chain, unread};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use wire::v1::export_image_response::Part;
use wire::v1::{ExportImageResponse, ExportedArchive};

use crate::space::Space;
use crate::{EXPORTS, Images, event, refused, store};

/// Size of a piece, bytes.
const PIECE: usize = 256 * 1024;
/// Time that a client has to take a piece.
///
/// A client that copies to another daemon takes nothing while that one asks its engine, which may take a minute: four questions. A request
/// for a turn waits longer (`admission::WAIT`), so a client that takes nothing ends in time for it.
const STALL: Duration = Duration::from_secs(90);
/// Number of zeros at the end of a tar.
const END: usize = 1_024;

/// The answer of an export, as far as the client has not read it.
pub type Sender = mpsc::Sender<Result<ExportImageResponse, Status>>;

impl Images {
    /// Sends the image that has this name, framed by two records. The last message says that it is complete.
    pub async fn export(
        &self,
        principal: &Principal,
        reference: &str,
        sender: &Sender,
        stop: &CancellationToken,
    ) -> Result<(), Refusal> {
        let reference =
            ImageReference::parse(reference).map_err(|error| Refusal::invalid("reference", error))?;
        self.audit.check()?;
        let store = self.store().await?;
        store::gives_announced(&store)?;
        let _turn = tokio::select! {
            turn = self.exports.wait(&principal.name) => turn.ok_or_else(no_turn)?,
            () = sender.closed() => return Err(unread(true, STALL)),
            () = stop.cancelled() => return Err(stopping()),
        };
        let listing = self.listing(&reference).await?.ok_or_else(|| no_image(&reference))?;
        let id = listing.id.clone();
        let image = self.described(listing).await?;
        if image.size_bytes > self.bounds.max_bytes {
            return Err(too_large(self.bounds.max_bytes));
        }
        // The engine writes the archive to its disk before it sends the first byte.
        let space = Space::on(&self.quotas, &store.directory);
        space.take(image.size_bytes)?;
        let event = || event(Kind::ImageExported, principal, &reference).image(id.to_string());
        self.record(event(), json!({ "phase": "begun", "image_id": image.image_id })).await?;
        let limit = self.bounds.timeout;
        let sending = async {
            send(sender, Part::Image(image)).await?;
            self.archive(&id, sender).await
        };
        let sent = tokio::select! {
            sent = tokio::time::timeout(limit, sending) => sent.unwrap_or_else(|_| Err(late(limit))),
            () = sender.closed() => Err(unread(true, STALL)),
            () = stop.cancelled() => Err(stopping()),
        };
        let details = match &sent {
            Ok(end) => json!({
                "phase": "done", "image_id": id.to_string(), "tar_sha256": end.sha256, "tar_bytes": end.size_bytes,
            }),
            Err(refusal) => {
                json!({ "phase": "failed", "reason": refusal.reason.as_str(), "why": refusal.message })
            }
        };
        self.record(event(), details).await?;
        send(sender, Part::End(sent?)).await
    }

    /// Sends the archive in pieces, and returns its length and digest.
    async fn archive(&self, id: &ImageId, sender: &Sender) -> Result<ExportedArchive, Refusal> {
        let mut archive = self.launcher.engine.save_image(id, self.bounds.timeout);
        let (mut hash, mut size_bytes, mut piece) = (Sha256::new(), 0_u64, Vec::with_capacity(PIECE));
        let mut zeros = 0;
        while let Some(part) = archive.next().await {
            let mut part: Bytes = part.map_err(broken)?;
            size_bytes = size_bytes.saturating_add(part.len() as u64);
            if size_bytes > self.bounds.max_bytes {
                return Err(too_large(self.bounds.max_bytes));
            }
            hash.update(&part);
            zeros = zeros_at_end(zeros, &part);
            while !part.is_empty() {
                let taken = part.split_to(part.len().min(PIECE - piece.len()));
                piece.extend_from_slice(&taken);
                if piece.len() == PIECE {
                    let full = std::mem::replace(&mut piece, Vec::with_capacity(PIECE));
                    send(sender, Part::Piece(full)).await?;
                }
            }
        }
        // The engine reports an error after the first byte as text, and ends its answer in order.
        if zeros < END {
            return Err(Refusal::internal("exporting the image", &"the engine's archive has no end"));
        }
        if !piece.is_empty() {
            send(sender, Part::Piece(piece)).await?;
        }
        Ok(ExportedArchive { size_bytes, sha256: hex::encode(hash.finalize()) })
    }
}

/// Returns the number of zeros at the end of a stream to which this part is added.
fn zeros_at_end(before: usize, part: &[u8]) -> usize {
    match part.iter().rposition(|byte| *byte != 0) {
        Some(last) => part.len() - last - 1,
        None => before.saturating_add(part.len()),
    }
}

async fn send(sender: &Sender, part: Part) -> Result<(), Refusal> {
    let message = Ok(ExportImageResponse { part: Some(part) });
    let sent = sender.send_timeout(message, STALL).await;
    sent.map_err(|error| unread(matches!(error, mpsc::error::SendTimeoutError::Closed(_)), STALL))
}

/// Returns the engine's message. Only operators see it.
fn broken(error: io::Error) -> Refusal {
    tracing::error!(error = %chain(&error), "the engine did not export an image completely");
    let inner = error.into_inner().and_then(|inner| inner.downcast::<EngineError>().ok());
    match inner {
        Some(error) => refused(*error),
        None => Refusal::internal("exporting the image", &"the engine's answer broke off"),
    }
}

fn no_turn() -> Refusal {
    let message = format!(
        "another image is being exported for you, or {EXPORTS} for others: try again when an export has ended"
    );
    Refusal::new(Reason::Overloaded, message)
}

fn no_image(reference: &ImageReference) -> Refusal {
    Refusal::new(
        Reason::NotFound,
        format!("the engine has no image {reference}; `coffer image list` shows the images"),
    )
    .with("resource", "image")
}

fn too_large(most: u64) -> Refusal {
    Refusal::new(
        Reason::ReadLimit,
        format!("the image is larger than {most} bytes (images.max_size of the daemon's configuration)"),
    )
}

fn stopping() -> Refusal {
    Refusal::new(Reason::Cancelled, "the daemon is stopping: export the image again")
}

fn late(limit: Duration) -> Refusal {
    let message = format!("the image was not sent within {} seconds (images.timeout)", limit.as_secs());
    Refusal::new(Reason::TimedOut, message)
}

#[cfg(test)]
mod tests {
    use admission::Turns;
    use futures_util::future::join_all;
    use tokio::time::Instant;

    use super::*;

    /// Takes the turn of a client that reads nothing, until its export ends.
    async fn stalled(exports: &Turns, number: usize) {
        let _turn = exports.wait(&format!("client-{number}")).await.unwrap();
        let (sender, _receiver) = mpsc::channel(1);
        send(&sender, Part::Piece(vec![7])).await.unwrap();
        let refused = send(&sender, Part::Piece(vec![7])).await.unwrap_err();
        assert!(refused.reason == Reason::TimedOut && refused.message.contains("90 seconds"), "{refused:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_costs_no_other_its_turn() {
        let exports = Turns::new(EXPORTS);
        let began = Instant::now();
        let waited = async |client: &str| exports.wait(client).await.map(|_turn| began.elapsed());
        let ((), other) = tokio::join!(stalled(&exports, 0), waited("other"));
        assert_eq!(other, Some(Duration::ZERO), "it has a turn beside the first one");

        let began = Instant::now();
        let waited = async |client: &str| exports.wait(client).await.map(|_turn| began.elapsed());
        let all = join_all((0..EXPORTS).map(|number| stalled(&exports, number)));
        let (_, own, other) = tokio::join!(all, waited("client-0"), waited("other"));
        assert_eq!([own, other], [Some(STALL); 2], "each has its turn when these exports have ended");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_leaves_or_does_not_read_ends_the_export() {
        let piece = || Part::Piece(vec![7]);
        let (sender, mut receiver) = mpsc::channel(1);
        send(&sender, piece()).await.unwrap();
        assert_eq!(send(&sender, piece()).await.unwrap_err().reason, Reason::TimedOut);
        assert_eq!(receiver.recv().await.unwrap().unwrap().part, Some(piece()));
        drop(receiver);
        assert_eq!(send(&sender, piece()).await.unwrap_err().reason, Reason::Cancelled);
    }

    #[test]
    fn an_archive_without_its_end_is_not_whole() {
        let zeros = |parts: &[&[u8]]| parts.iter().fold(0, |zeros, part| zeros_at_end(zeros, part));
        assert!(zeros(&[b"tar", &[0; 1_000], &[], &[0; 24]]) >= END);
        assert_eq!(zeros(&[&[0; 2_000], b"{\"message\":\"no space\"}\n"]), 0);
        assert_eq!(zeros(&[b"tar", &[0; 1_000], b"x\0\0"]), 2);
        assert_eq!(zeros(&[]), 0);
    }

    #[test]
    fn the_engine_s_message_is_in_the_refusal() {
        let message = "no space left on device".to_owned();
        let error = EngineError::Api { attempt: "export the image", status: 500, message };
        let refusal = broken(io::Error::other(error));
        assert!(refusal.message.contains("no space left"), "{}", refusal.message);
        assert_eq!(broken(io::ErrorKind::UnexpectedEof.into()).reason, Reason::Internal);
    }
}
