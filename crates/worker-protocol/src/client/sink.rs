//! Destination of a command's output while the command runs.

use std::pin::Pin;

use bytes::Bytes;

/// Streams of a command. Output of a terminal is standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutputStream {
    Stdout,
    Stderr,
}

/// Takes a command's output piece by piece, in a separate task.
///
/// The next piece comes after the last future has resolved. Meanwhile the command can write one more window and then has to wait. Pieces of
/// one stream come without gaps. A future may be dropped unresolved if the call has timed out or the stream is lost; no piece comes after
/// it.
pub trait OutputSink: Send + Sync {
    /// Takes the bytes at `offset` of `stream`. Resolves when it can take more.
    fn take(
        &self,
        stream: OutputStream,
        offset: u64,
        data: Bytes,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}
