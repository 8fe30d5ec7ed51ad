//! Coalesces writes that belong together.
//!
//! h2 flushes whenever it has taken a payload of 256 bytes or more. An answer would go out in two parts, with the
//! trailers alone in the second. Each part is a system call here, and wakes the client. So a flush is deferred until
//! the task that asked for it has had its turn. The task is woken for another turn at once, after the other tasks that
//! are ready, and h2 flushes in every turn. A flush goes through if nothing was written since the last one.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Maximum number of bytes that are coalesced. If more come, these are sent first.
const MOST: usize = 32 * 1024;
/// Capacity that is kept for the next writes, bytes.
const KEPT: usize = 8 * 1024;

/// A stream whose writes are coalesced.
///
/// Bytes that are not flushed yet are sent at a shutdown. If the stream is dropped, they are sent as far as that is
/// possible without waiting.
#[derive(Debug)]
pub(super) struct Coalesce<S: AsyncWrite + Unpin> {
    stream: S,
    /// Written bytes; the first `sent` of them are sent.
    bytes: Vec<u8>,
    sent: usize,
    /// True if a flush was deferred and nothing was written since.
    put_off: bool,
}

impl<S: AsyncWrite + Unpin> Coalesce<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, bytes: Vec::new(), sent: 0, put_off: false }
    }

    fn waiting(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Sends the coalesced bytes.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.waiting() > 0 {
            let rest = &self.bytes[self.sent..];
            match ready!(Pin::new(&mut self.stream).poll_write(context, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.sent += count,
            }
        }
        self.bytes.clear();
        self.bytes.shrink_to(KEPT);
        self.sent = 0;
        self.put_off = false;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Coalesce<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Coalesce<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if self.waiting() > 0 && self.waiting() + length > MOST {
            ready!(self.poll_send(context))?;
        }
        if length > MOST {
            return Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        }
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        self.put_off = false;
        Poll::Ready(Ok(length))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.waiting() > 0 && !self.put_off {
            self.put_off = true;
            context.waker().wake_by_ref();
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_send(context))?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(context))?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl<S: AsyncWrite + Unpin> Drop for Coalesce<S> {
    fn drop(&mut self) {
        // Bytes that cannot be sent now are lost, which the owner of a dropped stream expects.
        let _ = self.poll_send(&mut Context::from_waker(std::task::Waker::noop()));
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Read as _;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::UnixStream;

    use super::*;

    fn pair() -> (Coalesce<UnixStream>, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Coalesce::new(ours), theirs)
    }

    /// What has been sent, by the kernel's word.
    fn here(mut stream: &std::os::unix::net::UnixStream) -> Vec<u8> {
        let mut bytes = vec![0; 1024];
        match stream.read(&mut bytes) {
            Ok(count) => bytes.truncate(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => bytes.clear(),
            Err(error) => panic!("{error}"),
        }
        bytes
    }

    async fn flush(coalesce: &mut Coalesce<UnixStream>) -> io::Result<()> {
        poll_fn(|context| Pin::new(&mut *coalesce).poll_flush(context)).await
    }

    #[tokio::test]
    async fn flushed_bytes_are_sent_in_the_next_turn() {
        let (mut ours, theirs) = pair();
        let theirs = theirs.into_std().unwrap();
        ours.write_all(b"head and data").await.unwrap();
        flush(&mut ours).await.unwrap();
        assert_eq!(here(&theirs), b"");
        ours.write_all(b", trailers").await.unwrap();
        flush(&mut ours).await.unwrap();
        assert_eq!(here(&theirs), b"");
        flush(&mut ours).await.unwrap();
        assert_eq!(here(&theirs), b"head and data, trailers");
        flush(&mut ours).await.unwrap();
        assert_eq!(here(&theirs), b"");
    }

    /// As h2 does: in each of its turns, and without a look at what became of the flush before.
    #[tokio::test]
    async fn a_flush_that_was_put_off_has_its_turn() {
        let (mut ours, mut theirs) = pair();
        ours.write_all(b"once").await.unwrap();
        let mut turns = 0;
        tokio::spawn(poll_fn(move |context| {
            turns += 1;
            assert!(turns < 10, "it wakes itself for ever");
            let _ = Pin::new(&mut ours).poll_flush(context);
            Poll::<()>::Pending
        }));
        let mut bytes = [0; 4];
        theirs.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"once");
    }

    #[tokio::test]
    async fn buffered_bytes_are_sent_at_the_end() {
        let (mut ours, mut theirs) = pair();
        ours.write_all(b"goodbye").await.unwrap();
        ours.shutdown().await.unwrap();
        let mut bytes = Vec::new();
        theirs.read_to_end(&mut bytes).await.unwrap();
        assert_eq!(bytes, b"goodbye");
        let (mut ours, mut theirs) = pair();
        ours.write_all(b"dropped").await.unwrap();
        drop(ours);
        theirs.read_to_end(&mut bytes).await.unwrap();
        assert_eq!(bytes, b"goodbyedropped");
    }

    /// A reader who is slow at first, and parts of all sizes around what is gathered.
    #[tokio::test]
    async fn bytes_stay_in_order_and_wait_for_a_slow_reader() {
        let (mut ours, mut theirs) = pair();
        let sizes = [1, 10, MOST - 11, MOST - 1, 2, MOST, MOST + 1, 5 * MOST, 0, 3, 1_000_000, 7];
        let sent: Vec<u8> =
            (0..sizes.iter().sum::<usize>()).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let expected = sent.clone();
        let (reached, full) = tokio::sync::oneshot::channel();
        let writer = tokio::spawn(async move {
            let (mut rest, mut most) = (sent.as_slice(), 0);
            let mut reached = Some(reached);
            for (turn, size) in sizes.into_iter().enumerate() {
                if turn == 6 {
                    reached.take().map(|reached| reached.send(()));
                }
                let (part, later) = rest.split_at(size);
                ours.write_all(part).await.unwrap();
                flush(&mut ours).await.unwrap();
                most = most.max(ours.waiting());
                rest = later;
            }
            ours.shutdown().await.unwrap();
            most
        });
        full.await.unwrap();
        let mut bytes = Vec::new();
        theirs.read_to_end(&mut bytes).await.unwrap();
        assert!(bytes == expected);
        assert!(writer.await.unwrap() <= MOST);
    }
}
