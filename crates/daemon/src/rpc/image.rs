//! Serves `ImageService`.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use images::{Images, Pieces};
use refusal::Refusal;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status, Streaming};
use wire::v1::image_service_server::ImageService;
use wire::v1::{self, build_image_request, build_image_response, import_image_request};

use super::{portion, principal};

/// Maximum number of lines of a build that wait for the client.
const LINES: usize = 64;
/// Maximum number of characters in a message. Lines of the engine have up to 32 KiB and are split.
const MAX_LINE: usize = 16 * 1024;
/// Maximum number of pieces of an export that wait for the client.
pub(super) const PIECES: usize = 4;
/// Time that a client has to take the reason why its export ended.
pub(super) const LAST: Duration = Duration::from_secs(5);
/// Maximum size of one piece, bytes.
const MAX_PIECE: usize = 1 << 20;

#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) images: Arc<Images>,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
}

/// Returns the rest of a request as pieces, for bases as well. Any other message is an error.
pub(super) fn pieces<T: Send + 'static>(
    stream: Streaming<T>,
    piece: impl Fn(T) -> Option<Vec<u8>> + Send + 'static,
) -> Pieces {
    Box::pin(stream.map(move |message| match message.map(&piece) {
        Ok(Some(piece)) if piece.len() <= MAX_PIECE => Ok(Bytes::from(piece)),
        Ok(_) => Err(io::Error::other("a message has no piece of the tar, or too long a one")),
        Err(status) => Err(io::Error::other(status)),
    }))
}

/// Splits a text into parts that fit into a message each.
fn parts(text: &str) -> impl Iterator<Item = String> {
    let mut rest = text.chars().peekable();
    std::iter::from_fn(move || {
        rest.peek()?;
        Some(rest.by_ref().take(MAX_LINE).collect())
    })
}

pub(super) fn no_header() -> Refusal {
    Refusal::invalid("header", "is missing: send it in the first message")
}

#[tonic::async_trait]
impl ImageService for Service {
    async fn import_image(
        &self,
        request: Request<Streaming<v1::ImportImageRequest>>,
    ) -> Result<Response<v1::ImportImageResponse>, Status> {
        use import_image_request::Part;
        let (service, principal) = (self.clone(), principal(&request)?);
        let mut stream = request.into_inner();
        let first = stream.message().await?.and_then(|first| first.part);
        let Some(Part::Header(header)) = first else { return Err(no_header().into()) };
        let pieces = pieces(stream, |message: v1::ImportImageRequest| match message.part {
            Some(Part::Piece(piece)) => Some(piece),
            _ => None,
        });
        let cancel = self.stop.child_token();
        let _gone = cancel.clone().drop_guard();
        // In a separate task, so that the end is recorded even if the client leaves, which cancels the import.
        let imported =
            self.tasks.spawn(async move { service.images.import(&principal, header, pieces, &cancel).await });
        let imported = imported.await.map_err(|error| Refusal::internal("importing the image", &error))??;
        Ok(Response::new(imported))
    }

    type BuildImageStream = ReceiverStream<Result<v1::BuildImageResponse, Status>>;

    async fn build_image(
        &self,
        request: Request<Streaming<v1::BuildImageRequest>>,
    ) -> Result<Response<Self::BuildImageStream>, Status> {
        use build_image_request::Part;
        use build_image_response::Part as Said;
        let (service, principal) = (self.clone(), principal(&request)?);
        let mut stream = request.into_inner();
        let first = stream.message().await?.and_then(|first| first.part);
        let Some(Part::Header(header)) = first else { return Err(no_header().into()) };
        let pieces = pieces(stream, |message: v1::BuildImageRequest| match message.part {
            Some(Part::Piece(piece)) => Some(piece),
            _ => None,
        });
        let (tell, told) = mpsc::channel(LINES);
        let (output, mut lines) = mpsc::channel::<String>(LINES);
        let cancel = self.stop.child_token();
        self.tasks.spawn(async move {
            let say = |said| Ok(v1::BuildImageResponse { part: Some(said) });
            let built = service.images.build(&principal, header, pieces, output, &cancel);
            let passing_on = async {
                while let Some(text) = lines.recv().await {
                    for part in parts(&text) {
                        if tell.send(say(Said::Output(part))).await.is_err() {
                            return;
                        }
                    }
                }
            };
            // The client no longer reads the answer.
            let gone = async {
                tell.closed().await;
                cancel.cancel();
            };
            let built = async { tokio::join!(built, passing_on).0 };
            tokio::pin!(built, gone);
            let built = loop {
                tokio::select! {
                    built = &mut built => break built,
                    () = &mut gone, if !cancel.is_cancelled() => {}
                }
            };
            let _ = tell.send(built.map_err(Status::from).and_then(|image| say(Said::Image(image)))).await;
        });
        Ok(Response::new(ReceiverStream::new(told)))
    }

    type ExportImageStream = ReceiverStream<Result<v1::ExportImageResponse, Status>>;

    async fn export_image(
        &self,
        request: Request<v1::ExportImageRequest>,
    ) -> Result<Response<Self::ExportImageStream>, Status> {
        let (service, principal) = (self.clone(), principal(&request)?);
        let (sender, receiver) = mpsc::channel(PIECES);
        // Ends soon after the client has left.
        self.tasks.spawn(async move {
            let reference = request.into_inner().reference;
            let sent = service.images.export(&principal, &reference, &sender, &service.stop).await;
            if let Err(refusal) = sent {
                // An error means that the client has left, or reads nothing. Its stream has no last message.
                let _ = sender.send_timeout(Err(refusal.into()), LAST).await;
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn list_images(
        &self,
        _: Request<v1::ListImagesRequest>,
    ) -> Result<Response<v1::ListImagesResponse>, Status> {
        let (images, truncated) = self.images.list().await?;
        portion::answer(v1::ListImagesResponse { images, truncated })
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_LINE, parts};

    #[test]
    fn build_output_is_split_without_loss() {
        let text = "ä".repeat(2 * MAX_LINE) + "end";
        let lengths: Vec<_> = parts(&text).map(|part| part.chars().count()).collect();
        assert_eq!(lengths, [MAX_LINE, MAX_LINE, 3]);
        assert_eq!(parts(&text).collect::<String>(), text);
        assert_eq!(parts("").count(), 0);
    }
}
