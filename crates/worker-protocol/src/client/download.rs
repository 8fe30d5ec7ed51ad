//! Checks the frames of one download: a header, bytes in order, and at the end their number.

use std::sync::Arc;

use operations::{Bounds, OpResult, Transfer};
use wire::worker::v1::{self, output::Stream};

use crate::client::backlog::Backlog;
use crate::client::command::MAX_CHUNK;
use crate::client::window::Window;
use crate::client::{DOWNLOAD_HEADER, OutputStream, Violation};

/// Most bytes of an archive besides the content of its files.
const FRAME_OF_ARCHIVE: u64 = 1 << 30;

#[derive(Debug)]
pub(super) struct Download {
    received: u64,
    /// Most bytes that may come.
    limit: u64,
    window: Window,
    backlog: Arc<Backlog>,
}

impl Download {
    pub(super) fn new(kind: Transfer, bounds: &Bounds, backlog: Arc<Backlog>) -> Self {
        let beside = if kind == Transfer::Archive { FRAME_OF_ARCHIVE } else { 0 };
        let limit = bounds.max_transfer_bytes.saturating_add(beside + DOWNLOAD_HEADER as u64);
        Self { received: 0, limit, window: Window::new(), backlog }
    }

    /// Permits more output.
    pub(super) fn grant(&mut self, bytes: u64) {
        self.window.grant(bytes);
    }

    pub(super) fn output(&mut self, output: v1::Output) -> Result<(), Violation> {
        let is_content = output.stream() == Stream::Stdout;
        let v1::Output { offset, data, .. } = output;
        let length = data.len() as u64;
        let fits = (1..=MAX_CHUNK).contains(&data.len()) && length <= self.limit - self.received;
        if !is_content || !fits || offset != self.received {
            return Err(Violation::Output);
        }
        if !self.window.spend(length) {
            return Err(Violation::Window);
        }
        self.received += length;
        self.backlog.push(OutputStream::Stdout, offset, data);
        Ok(())
    }

    /// Returns true if the download may end with this result, because no byte is missing.
    pub(super) fn may_end(&self, result: &OpResult) -> bool {
        let sent = self.received.checked_sub(DOWNLOAD_HEADER as u64);
        matches!(result, OpResult::Read(read) if Some(read.sent_bytes) == sent && read.content.is_empty())
    }
}
