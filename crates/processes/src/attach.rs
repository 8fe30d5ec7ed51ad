//! Reads a process's output for its clients: from the disk, at each reader's pace, so that none delays the process or another
//! reader.

use std::sync::Arc;

use operations::Reason;
use refusal::{Refusal, chain};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use wire::v1::attach_process_response::Event;
use wire::v1::process::State;
use wire::v1::{self, AttachProcessResponse, ProcessGap, ProcessOutput, ProcessStream};

use crate::output::Found;
use crate::process::{Process, READERS};

/// Most bytes of one message.
const MOST: usize = 64 * 1024;
/// Most messages that wait for the reader's client.
const WAITING: usize = 4;
const STREAMS: [ProcessStream; 2] = [ProcessStream::Stdout, ProcessStream::Stderr];

pub type Events = mpsc::Receiver<Result<AttachProcessResponse, Status>>;

impl Process {
    /// Reads from these offsets on; with `follow` until the process has ended.
    pub fn attach(
        self: &Arc<Self>,
        offsets: [u64; 2],
        follow: bool,
        stop: CancellationToken,
    ) -> Result<Events, Refusal> {
        let slot = self.readers.clone().try_acquire_owned().map_err(|_| {
            Refusal::new(Reason::Overloaded, format!("the process has {READERS} readers, which is the limit"))
        })?;
        let (sender, events) = mpsc::channel(WAITING);
        let process = self.clone();
        tokio::spawn(async move {
            let _slot = slot;
            let told = process.tell(offsets, follow, &sender);
            if let Some(Err(error)) = stop.run_until_cancelled(told).await {
                let refusal = Refusal::internal("reading the output of a process", &chain(&error));
                let _ = sender.send(Err(refusal.into())).await;
            }
        });
        Ok(events)
    }

    async fn tell(
        self: &Arc<Self>,
        mut offsets: [u64; 2],
        follow: bool,
        sender: &mpsc::Sender<Result<AttachProcessResponse, Status>>,
    ) -> std::io::Result<()> {
        let (mut ends, mut status) = (self.output.follow(), self.status.clone());
        loop {
            // In this order: a process that has ended writes no further output.
            let over = status.borrow_and_update().state() != State::Running;
            ends.borrow_and_update();
            let mut something = false;
            for (at, stream) in STREAMS.into_iter().enumerate() {
                loop {
                    let (process, offset) = (self.clone(), offsets[at]);
                    let read = tokio::task::spawn_blocking(move || process.output.read(at, offset, MOST));
                    let event = match read.await.map_err(std::io::Error::other)?? {
                        Found::End => break,
                        Found::Bytes(data) => {
                            offsets[at] += data.len() as u64;
                            Event::Output(ProcessOutput { stream: stream.into(), offset, data })
                        }
                        Found::Gap(bytes) => {
                            offsets[at] += bytes;
                            Event::Gap(ProcessGap { stream: stream.into(), offset, bytes })
                        }
                    };
                    something = true;
                    if sender.send(Ok(AttachProcessResponse { event: Some(event) })).await.is_err() {
                        return Ok(());
                    }
                }
            }
            if over || !follow {
                let process: v1::Process = self.now();
                let _ = sender.send(Ok(AttachProcessResponse { event: Some(Event::Process(process)) })).await;
                return Ok(());
            }
            if !something {
                tokio::select! {
                    _ = ends.changed() => {}
                    // The owner is gone without a final status: the daemon is about to stop.
                    changed = status.changed() => if changed.is_err() { return Ok(()) },
                    () = sender.closed() => return Ok(()),
                }
            }
        }
    }
}
