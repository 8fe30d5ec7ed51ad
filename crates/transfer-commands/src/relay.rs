//! Passes an export of one daemon on as an import of another one.

use std::future::Future;

use presentation::failure::Failure;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Response, Status};

/// Number of pieces that can wait to be sent.
const WAITING: usize = 4;

/// A message of an export.
pub(crate) enum Part {
    /// The description before the pieces.
    Begin,
    Piece(Vec<u8>),
    /// All pieces have come.
    End,
}

/// Reads the pieces of `export` and sends them after the header. Reports the progress in bytes to `at`.
///
/// The header goes when the source has begun. Until then the source may wait for its turn, and the target would hold one
/// for nothing.
///
/// `message` makes a message of a piece. Without a piece it makes one that is invalid, so that the target does not take
/// an export that broke off for a whole one.
pub(crate) async fn relay<E, I, A, F>(
    mut export: impl Stream<Item = Result<E, Status>> + Unpin,
    part: impl Fn(E) -> Option<Part>,
    (header, message): (I, impl Fn(Option<Vec<u8>>) -> I),
    import: impl FnOnce(ReceiverStream<I>) -> F,
    at: impl Fn(u64),
) -> Result<A, Failure>
where
    F: Future<Output = Result<Response<A>, Status>>,
{
    let (sender, receiver) = mpsc::channel(WAITING);
    let reading = async move {
        let mut came = export.next().await;
        if sender.send(header).await.is_err() {
            return Ok(());
        }
        let (mut done, mut is_whole) = (0_u64, false);
        let failure: Failure = loop {
            match came {
                Some(Ok(came)) => match part(came) {
                    Some(Part::Begin) => {}
                    Some(Part::Piece(_)) if is_whole => break early(),
                    Some(Part::Piece(piece)) => {
                        done += piece.len() as u64;
                        // The target has answered before the end. Its answer gives the reason.
                        if sender.send(message(Some(piece))).await.is_err() {
                            return Ok(());
                        }
                        at(done);
                    }
                    Some(Part::End) => is_whole = true,
                    None => break early(),
                },
                Some(Err(status)) => break status.into(),
                None if is_whole => return Ok(()),
                None => break early(),
            }
            came = tokio::select! {
                came = export.next() => came,
                // The target has answered, and its answer gives the reason. The source may be slow.
                () = sender.closed() => return Ok(()),
            };
        };
        let _ = sender.send(message(None)).await;
        Err(failure)
    };
    let (read, imported) = tokio::join!(reading, import(ReceiverStream::new(receiver)));
    read?;
    Ok(imported?.into_inner())
}

fn early() -> Failure {
    Failure::failed("the source ended the stream before it was complete: push again")
}

#[cfg(test)]
mod tests {
    use super::*;

    type Came = Result<Option<Part>, Status>;

    /// Relays these messages to a target that reads all, or only the header. Returns its answer and the messages that
    /// it read.
    async fn relayed(came: Vec<Came>, reads: usize) -> (Result<&'static str, Failure>, Vec<Option<Vec<u8>>>) {
        let (sender, mut seen) = mpsc::channel(64);
        let import = move |mut messages: ReceiverStream<Option<Vec<u8>>>| async move {
            for _ in 0..reads {
                let Some(message) = messages.next().await else { break };
                sender.send(message).await.unwrap();
            }
            Ok(Response::new("done"))
        };
        let header = (Some(b"header".to_vec()), |piece| piece);
        let export = tokio_stream::iter(came);
        let answer = relay(export, |part| part, header, import, |_| {}).await;
        let mut all = Vec::new();
        while let Some(message) = seen.recv().await {
            all.push(message);
        }
        (answer, all)
    }

    fn piece(text: &str) -> Part {
        Part::Piece(text.into())
    }

    #[tokio::test]
    async fn a_whole_export_arrives_after_the_header() {
        let came =
            vec![Ok(Some(Part::Begin)), Ok(Some(piece("a"))), Ok(Some(piece("b"))), Ok(Some(Part::End))];
        let (answer, seen) = relayed(came, 64).await;
        assert_eq!(answer.unwrap(), "done");
        assert_eq!(seen, [Some(b"header".to_vec()), Some(b"a".to_vec()), Some(b"b".to_vec())]);
    }

    #[tokio::test]
    async fn an_export_that_breaks_off_is_no_whole_import() {
        let broken = [
            vec![Ok(Some(piece("a")))],
            vec![Ok(Some(piece("a"))), Err(Status::unavailable("gone"))],
            vec![Ok(Some(piece("a"))), Ok(None)],
            vec![Ok(Some(Part::End)), Ok(Some(piece("a")))],
        ];
        for came in broken {
            let (answer, seen) = relayed(came, 64).await;
            assert!(answer.is_err());
            assert_eq!(seen.last(), Some(&None), "a message that is invalid is the last one");
        }
    }

    #[tokio::test]
    async fn a_target_that_answers_early_ends_the_export() {
        let many = (0..100).map(|_| Ok(Some(piece("a")))).collect();
        let (answer, seen) = relayed(many, 1).await;
        assert_eq!((answer.unwrap(), seen.len()), ("done", 1));
    }
}
