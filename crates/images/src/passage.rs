//! Passes a tar from a client to the engine, through a thread that checks it.
//!
//! The engine takes the end of a stream for the end of a tar. So the stream to the engine ends in an error unless the
//! whole tar has passed and is valid. If a tar is refused, or its client leaves, the engine sees an interrupted request
//! and keeps nothing.

use std::io::{self, Read, Write};
use std::pin::Pin;

use bytes::{Buf as _, Bytes, BytesMut};
use containers::{BadTar, Meter, TarForm, TarStream, form_of};
use futures_util::{Stream, StreamExt as _, stream};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// A tar in pieces, as a client sends it.
pub type Pieces = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// Number of pieces that may wait on either side of the thread.
const WAITING: usize = 4;
/// Number of bytes that are sent to the engine at once.
const CHUNK: usize = 64 * 1024;

/// Digest and size of a tar that has passed.
pub(super) struct Passed {
    pub(super) sha256: String,
    pub(super) bytes: u64,
}

pub(super) struct Passage {
    form: oneshot::Receiver<TarForm>,
    tar: TarStream,
    passed: oneshot::Receiver<Result<Passed, BadTar>>,
    /// Cancelled before the engine can have the whole tar.
    whole: CancellationToken,
}

impl Passage {
    /// Starts the thread, and a task that feeds it. Both end when the client or the engine ends.
    pub(super) fn begin(
        mut pieces: Pieces,
        known: Option<TarForm>,
        most: u64,
        pass: impl FnOnce(TarForm, &mut dyn Read, &mut dyn Write) -> Result<(), BadTar> + Send + 'static,
    ) -> Self {
        let (feed, incoming) = mpsc::channel(WAITING);
        tokio::spawn(async move {
            while let Some(piece) = pieces.next().await {
                if feed.send(Some(piece)).await.is_err() {
                    return;
                }
            }
            // The client has ended its stream in order, so the tar is not broken off.
            let _ = feed.send(None).await;
        });
        let (output, outgoing) = mpsc::channel(WAITING);
        let (tell_form, form) = oneshot::channel();
        let (tell, passed) = oneshot::channel();
        let whole = CancellationToken::new();
        let ending = whole.clone();
        tokio::task::spawn_blocking(move || {
            let mut input = Meter::new(Incoming { fed: incoming, piece: Bytes::new(), is_over: false }, most);
            let mut output = Outgoing { output, chunk: BytesMut::with_capacity(CHUNK) };
            let done = form_of(&mut input).and_then(|(found, head)| {
                let form = known.unwrap_or(found);
                let _ = tell_form.send(form);
                pass(form, &mut Read::chain(head.as_slice(), &mut input), &mut output)?;
                output.flush()?;
                ending.cancel();
                // Marks the end of the tar. Without it the engine's request ends in an error.
                output.output.blocking_send(None).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
                Ok(())
            });
            let bytes = input.read_bytes();
            let _ = tell.send(done.map(|()| Passed { sha256: input.sha256(), bytes }));
        });
        Self { form, tar: until_marked(outgoing), passed, whole }
    }

    /// Returns a future that ends with `cancel`, unless the engine may have the whole tar by then.
    ///
    /// The engine then loads the image, also without a listener, and the record needs its answer.
    pub(super) fn cancelled(&self, cancel: &CancellationToken) -> impl Future<Output = ()> + use<> {
        let (cancel, whole) = (cancel.clone(), self.whole.clone());
        async move {
            cancel.cancelled().await;
            if whole.is_cancelled() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until the form of the tar is known.
    ///
    /// Returns the form, the tar for the engine, and a future with the result of the check.
    pub(super) async fn form(
        self,
    ) -> Result<(TarForm, TarStream, impl Future<Output = Result<Passed, BadTar>>), BadTar> {
        let Self { form, tar, passed, .. } = self;
        let gone = || BadTar::Io(io::ErrorKind::BrokenPipe.into());
        let passed = async move { passed.await.unwrap_or_else(|_| Err(gone())) };
        match form.await {
            Ok(form) => Ok((form, tar, passed)),
            // The thread refused the tar before it knew the form.
            Err(_) => Err(passed.await.err().unwrap_or_else(gone)),
        }
    }
}

/// Returns the stream to the engine. It ends in an error if the end of the tar was not marked.
fn until_marked(outgoing: mpsc::Receiver<Option<Bytes>>) -> TarStream {
    Box::pin(stream::unfold(Some(outgoing), |outgoing| async move {
        let mut outgoing = outgoing?;
        match outgoing.recv().await {
            Some(Some(bytes)) => Some((Ok(bytes), Some(outgoing))),
            Some(None) => None,
            None => Some((Err(io::ErrorKind::UnexpectedEof.into()), None)),
        }
    }))
}

/// Reader of the client's pieces, for a thread.
struct Incoming {
    fed: mpsc::Receiver<Option<io::Result<Bytes>>>,
    piece: Bytes,
    is_over: bool,
}

impl Read for Incoming {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() && !self.is_over {
            match self.fed.blocking_recv() {
                Some(Some(piece)) => self.piece = piece?,
                Some(None) => self.is_over = true,
                None => return Err(io::ErrorKind::ConnectionAborted.into()),
            }
        }
        let count = self.piece.len().min(buffer.len());
        self.piece.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}

/// Writer of the stream to the engine, for a thread.
struct Outgoing {
    output: mpsc::Sender<Option<Bytes>>,
    chunk: BytesMut,
}

impl Write for Outgoing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.chunk.extend_from_slice(bytes);
        if self.chunk.len() >= CHUNK {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let chunk = self.chunk.split().freeze();
        if chunk.is_empty() {
            return Ok(());
        }
        self.output.blocking_send(Some(chunk)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

#[cfg(test)]
mod tests {
    use containers::pass_filesystem;

    use super::*;

    fn tar() -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_ustar();
        header.set_size(200_000);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        tar.append_data(&mut header, "file", vec![7; 200_000].as_slice()).unwrap();
        tar.into_inner().unwrap()
    }

    fn pieces(bytes: &[u8], last: Option<io::ErrorKind>) -> Pieces {
        let pieces: Vec<_> = bytes.chunks(1_000).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        Box::pin(stream::iter(pieces.into_iter().chain(last.map(|kind| Err(kind.into())))))
    }

    async fn passes(pieces: Pieces, most: u64) -> (Vec<u8>, bool, Result<Passed, BadTar>) {
        let passage = Passage::begin(pieces, None, most, |_, input, output| pass_filesystem(input, output));
        let (form, mut tar, passed) = passage.form().await.unwrap();
        assert_eq!(form, TarForm::RootFilesystem);
        let (mut bytes, mut is_whole) = (Vec::new(), true);
        while let Some(chunk) = tar.next().await {
            match chunk {
                Ok(chunk) => bytes.extend_from_slice(&chunk),
                Err(_) => is_whole = false,
            }
        }
        (bytes, is_whole, passed.await)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_tar_arrives_as_it_was_sent_and_is_measured() {
        let tar = tar();
        let (bytes, is_whole, passed) = passes(pieces(&tar, None), 1 << 20).await;
        let passed = passed.unwrap();
        assert!(is_whole);
        assert_eq!((passed.bytes, passed.sha256.len()), (tar.len() as u64, 64));
        // Its header was written anew, with what it said.
        let mut arrived = tar::Archive::new(bytes.as_slice());
        let members: Vec<_> = arrived
            .entries()
            .unwrap()
            .map(|member| {
                let member = member.unwrap();
                (member.path_bytes().into_owned(), member.size(), member.header().mode().unwrap())
            })
            .collect();
        assert_eq!(members, [(b"file".to_vec(), 200_000, 0o644)]);
        let (again, is_whole, _) = passes(pieces(&bytes, None), 1 << 20).await;
        assert!(is_whole && again == bytes, "what is written so is not changed again");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_tar_that_has_passed_is_not_cancelled() {
        let cancel = CancellationToken::new();
        cancel.cancel();
        let passage =
            Passage::begin(endless(), None, u64::MAX, |_, input, output| pass_filesystem(input, output));
        passage.cancelled(&cancel).await;
        let passage = Passage::begin(pieces(&tar(), None), None, 1 << 20, |_, input, output| {
            pass_filesystem(input, output)
        });
        let cancelled = passage.cancelled(&cancel);
        let (_, mut tar, passed) = passage.form().await.unwrap();
        while tar.next().await.is_some() {}
        passed.await.unwrap();
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(std::pin::pin!(cancelled).poll(&mut context).is_pending());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn truncated_broken_or_long_tar_is_refused() {
        let tar = tar();
        let broken = Some(io::ErrorKind::ConnectionReset);
        for (pieces, most) in [
            (pieces(&tar[..100_000], None), 1 << 20),
            (pieces(&tar[..100_000], broken), 1 << 20),
            (pieces(&tar, broken), 1 << 20),
            (pieces(&tar, None), 50_000),
        ] {
            let (_, is_whole, passed) = passes(pieces, most).await;
            assert!(!is_whole && passed.is_err());
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn invalid_tar_is_refused_and_lost_engine_ends_the_thread() {
        let passage =
            Passage::begin(pieces(b"", None), None, 1_000, |_, input, output| pass_filesystem(input, output));
        let (_, tar, passed) = passage.form().await.unwrap();
        drop(tar);
        assert!(passed.await.is_err());
        let tar = endless();
        let passage = Passage::begin(tar, None, u64::MAX, |_, input, output| pass_filesystem(input, output));
        let (_, tar, passed) = passage.form().await.unwrap();
        drop(tar);
        assert!(matches!(passed.await, Err(BadTar::Io(_))));
    }

    /// A tar of one member that never ends.
    fn endless() -> Pieces {
        let mut header = tar::Header::new_ustar();
        header.set_path("file").unwrap();
        header.set_size(4 << 30);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_cksum();
        let first = Bytes::copy_from_slice(header.as_bytes());
        let rest = stream::repeat_with(|| Ok(Bytes::from(vec![7; CHUNK])));
        Box::pin(stream::iter([Ok(first)]).chain(rest))
    }
}
