//! The spool as the destination of a lane's output.

use std::pin::Pin;

use bytes::Bytes;
use store::spool::{Output, Stream};
use worker_protocol::client::{OutputSink, OutputStream};

/// Destination that stores the output of one call.
pub(super) struct ToSpool(pub(super) Output);

impl OutputSink for ToSpool {
    fn take(
        &self,
        stream: OutputStream,
        offset: u64,
        data: Bytes,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let stream = match stream {
            OutputStream::Stdout => Stream::Stdout,
            OutputStream::Stderr => Stream::Stderr,
        };
        Box::pin(self.0.put(stream, offset, data))
    }
}
