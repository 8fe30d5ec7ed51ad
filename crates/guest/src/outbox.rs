//! Frames to the daemon: two bounded queues before one writer.
//!
//! Output and outcomes wait in their order of arrival. Each producer has at most one frame in hand, so a flood of one command delays
//! another call by only a few frames. Frames that the daemon waits for overtake them: pongs, and news on which it must act. An outcome
//! never overtakes output of the same call, and always fits into a frame.

use operations::{Preview, ToolFailure};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use wire::worker::v1::{
    Ended, FromWorker, Output, Pong, Spawned, Taken, VariablesTaken, from_worker::Body, output::Stream,
};
use worker_protocol::convert::{carried, preview_to_wire};
use worker_protocol::frame::encode;

use crate::fault::Fault;

/// Most frames of output and outcomes that wait: half a megabyte at most, besides large outcomes.
const DATA: usize = 8;
/// Bytes that one write takes, if so many wait.
const WRITE: usize = 64 * 1024;
/// Most frames that overtake them. All calls together never have so many.
const NEWS: usize = 256;

/// Sender of frames, shared by all calls.
#[derive(Clone)]
pub(crate) struct Outbox {
    news: mpsc::Sender<FromWorker>,
    data: mpsc::Sender<FromWorker>,
}

pub(crate) struct Queues {
    news: mpsc::Receiver<FromWorker>,
    data: mpsc::Receiver<FromWorker>,
}

/// Slot for one frame of output.
pub(crate) struct OutputSlot<'o>(mpsc::Permit<'o, FromWorker>);

pub(crate) fn queues() -> (Outbox, Queues) {
    let (news, news_out) = mpsc::channel(NEWS);
    let (data, data_out) = mpsc::channel(DATA);
    (Outbox { news, data }, Queues { news: news_out, data: data_out })
}

impl Outbox {
    /// Answers a ping. If even this queue is full, the daemon does not read, and would not read the pong.
    pub(crate) fn pong(&self) {
        let _ = self.news.try_send(frame(0, Body::Pong(Pong {})));
    }

    /// Reports that the guest has the variables of its run.
    pub(crate) async fn variables_taken(&self) {
        let _ = self.news.send(frame(0, Body::VariablesTaken(VariablesTaken {}))).await;
    }

    pub(crate) async fn spawned(&self, id: u64, pid: i32) {
        let pid = u32::try_from(pid).unwrap_or(0);
        let _ = self.news.send(frame(id, Body::Spawned(Spawned { pid }))).await;
    }

    /// Reports that a command is over, or that its time is.
    pub(crate) async fn ended(&self, id: u64, forced: bool, drain_pid: u32) {
        let _ = self.news.send(frame(id, Body::Ended(Ended { forced, drain_pid }))).await;
    }

    /// Reports that a terminal has taken input.
    pub(crate) async fn taken(&self, id: u64, bytes: usize) {
        let bytes = bytes as u64;
        let _ = self.news.send(frame(id, Body::Taken(Taken { bytes }))).await;
    }

    /// Waits for a slot. Returns `None` if the stream is gone.
    pub(crate) async fn slot(&self) -> Option<OutputSlot<'_>> {
        self.data.reserve().await.ok().map(OutputSlot)
    }

    /// Sends the last frame of a preview.
    pub(crate) async fn preview(&self, id: u64, preview: Result<Preview, ToolFailure>) {
        let _ = self.data.send(frame(id, Body::Outcome(carried(preview_to_wire(preview))))).await;
    }

    /// The last frame of a call.
    pub(crate) async fn outcome(&self, id: u64, outcome: wire::worker::v1::Outcome) {
        let _ = self.data.send(frame(id, Body::Outcome(carried(outcome)))).await;
    }
}

impl OutputSlot<'_> {
    pub(crate) fn send(self, id: u64, stream: Stream, offset: u64, data: &[u8]) {
        let data = bytes::Bytes::copy_from_slice(data);
        self.0.send(frame(id, Body::Output(Output { stream: stream.into(), offset, data })));
    }
}

impl Queues {
    /// Writes until the stream breaks or all senders are gone.
    pub(crate) async fn write(mut self, mut output: impl AsyncWrite + Unpin) -> Result<(), Fault> {
        loop {
            let next = tokio::select! {
                biased;
                Some(frame) = self.news.recv() => frame,
                Some(frame) = self.data.recv() => frame,
                else => return Ok(()),
            };
            let mut bytes = encode(&next)?;
            while bytes.len() < WRITE
                && let Some(next) = self.waiting()
            {
                bytes.extend(encode(&next)?);
            }
            output.write_all(&bytes).await?;
        }
    }

    /// Returns the next frame that is ready, in order of urgency.
    fn waiting(&mut self) -> Option<FromWorker> {
        self.news.try_recv().or_else(|_| self.data.try_recv()).ok()
    }
}

fn frame(id: u64, body: Body) -> FromWorker {
    FromWorker { id, body: Some(body) }
}
