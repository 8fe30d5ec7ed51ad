//! The byte streams of an exec.
//!
//! The engine multiplexes a program's stdout and stderr, and its own errors, on one connection. Only data marked as stdout reaches
//! [`ExecStream::output`]. The rest goes to a short tail for the log. A program cannot change the marks, because no terminal is attached.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use futures_util::Stream;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::ids::ExecId;

/// Bytes of stderr that are kept.
const TAIL_BYTES: usize = 8 * 1024;

/// The program's stdin. Shutting it down or dropping it sends end of file; it kills no process.
pub type ExecInput = Pin<Box<dyn AsyncWrite + Send>>;
/// The program's stdout and nothing else.
pub type ExecOutput = Pin<Box<dyn AsyncRead + Send>>;

/// A running exec with its streams attached.
///
/// Dropping it ends no process: a program has to exit by itself at end of file.
pub struct ExecStream {
    pub input: ExecInput,
    /// The program's stdout. Reading it moves the whole stream, stderr included.
    pub output: ExecOutput,
    /// The end of all other output: stderr and the engine's errors. Hostile text.
    pub errors: ErrorTail,
    pub exec: ExecId,
}

impl std::fmt::Debug for ExecStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExecStream").field("exec", &self.exec).finish_non_exhaustive()
    }
}

/// The last 8 KiB of output that is not the program's stdout.
#[derive(Debug, Clone, Default)]
pub struct ErrorTail(Arc<Mutex<VecDeque<u8>>>);

impl ErrorTail {
    fn push(&self, bytes: &[u8]) {
        let mut tail = self.0.lock();
        let bytes = &bytes[bytes.len().saturating_sub(TAIL_BYTES)..];
        let surplus = (tail.len() + bytes.len()).saturating_sub(TAIL_BYTES);
        tail.drain(..surplus);
        tail.extend(bytes);
    }

    /// Returns the tail as one line for a log, with control characters escaped.
    pub fn text(&self) -> String {
        let tail = self.0.lock();
        let bytes: Vec<u8> = tail.iter().copied().collect();
        text::one_line(String::from_utf8_lossy(&bytes[text::cut_beginning(&bytes)..]).trim()).into_owned()
    }
}

/// One piece of an exec's output, by its source.
pub(crate) enum Piece {
    Stdout(Bytes),
    Aside(Bytes),
}

/// Reader of an exec's stdout. All other output goes to [`ErrorTail`].
pub(crate) struct StdoutReader<S> {
    pieces: S,
    current: Bytes,
    errors: ErrorTail,
}

impl<S> StdoutReader<S> {
    pub(crate) fn new(pieces: S, errors: ErrorTail) -> Self {
        Self { pieces, current: Bytes::new(), errors }
    }
}

impl<S: Stream<Item = io::Result<Piece>> + Unpin> AsyncRead for StdoutReader<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.current.is_empty() {
            match ready!(Pin::new(&mut self.pieces).poll_next(cx)) {
                Some(Ok(Piece::Stdout(bytes))) => self.current = bytes,
                Some(Ok(Piece::Aside(bytes))) => self.errors.push(&bytes),
                Some(Err(error)) => return Poll::Ready(Err(error)),
                None => return Poll::Ready(Ok(())),
            }
        }
        let n = self.current.len().min(buf.remaining());
        buf.put_slice(&self.current[..n]);
        self.current.advance(n);
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn only_stdout_is_read_and_the_rest_is_stored_separately() {
        let errors = ErrorTail::default();
        let pieces = [
            Ok(Piece::Aside(Bytes::from_static(b"OCI runtime\x1b[2J"))),
            Ok(Piece::Stdout(Bytes::from_static(b"ab"))),
            Ok(Piece::Stdout(Bytes::new())),
            Ok(Piece::Aside(Bytes::from_static(b" exec failed\n"))),
            Ok(Piece::Stdout(Bytes::from_static(b"cd"))),
        ];
        let mut reader = StdoutReader::new(stream::iter(pieces), errors.clone());
        let mut output = Vec::new();
        reader.read_to_end(&mut output).await.unwrap();
        assert_eq!(output, b"abcd");
        assert_eq!(errors.text(), "OCI runtime\\u{1b}[2J exec failed");
    }

    #[tokio::test]
    async fn a_broken_connection_is_an_error_and_not_an_end() {
        let pieces = [Ok(Piece::Stdout(Bytes::from_static(b"a"))), Err(io::Error::other("reset"))];
        let mut reader = StdoutReader::new(stream::iter(pieces), ErrorTail::default());
        let mut output = Vec::new();
        assert_eq!(reader.read_to_end(&mut output).await.unwrap_err().to_string(), "reset");
        assert_eq!(output, b"a");
    }

    #[test]
    fn the_tail_keeps_the_last_8_kib() {
        let errors = ErrorTail::default();
        errors.push(&[b'a'; 5000]);
        errors.push(&[b'b'; 5000]);
        assert_eq!(errors.text(), "a".repeat(TAIL_BYTES - 5000) + &"b".repeat(5000));
        errors.push(&vec![b'c'; 20_000]);
        assert_eq!(errors.text(), "c".repeat(TAIL_BYTES));
    }
}
