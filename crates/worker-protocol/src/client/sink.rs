//! Where a command's output goes while it comes.

use std::pin::Pin;

use bytes::Bytes;

/// The streams that a command writes. What a terminal shows is standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutputStream {
    Stdout,
    Stderr,
}

/// Takes a command's output piece by piece, in a task of its own.
///
/// The next piece comes when the future of the last has resolved; the command is held back meanwhile, once it has
/// written a window more. Pieces of one stream come without gaps. A future may be dropped unresolved when the call is
/// out of time, or the stream lost: no piece comes after it.
pub trait OutputSink: Send + Sync {
    /// Takes the bytes that stand at `offset` of `stream`; resolves when there is room for more.
    fn take(
        &self,
        stream: OutputStream,
        offset: u64,
        data: Bytes,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}
