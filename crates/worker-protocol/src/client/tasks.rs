//! The three tasks of a stream. Each ends when the stream is closed, and closes it when it cannot continue.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};
use wire::worker::v1::{FromWorker, Ping, to_worker::Body};

use crate::client::outbound::Outbound;
use crate::client::shared::Shared;
use crate::client::table::{Accepted, Table};
use crate::client::{CloseReason, Violation};
use crate::frame::FrameBuffer;

pub(super) fn start<W, R>(
    shared: &Arc<Shared>,
    frames: mpsc::Receiver<Vec<u8>>,
    output: W,
    input: R,
    buffer: FrameBuffer,
) where
    W: AsyncWrite + Send + Unpin + 'static,
    R: AsyncRead + Send + Unpin + 'static,
{
    tokio::spawn(until_closed(
        Arc::clone(shared),
        |shared| async move { read(&shared, input, buffer).await },
    ));
    tokio::spawn(until_closed(Arc::clone(shared), |shared| async move {
        write(&shared.outbound, frames, output).await
    }));
    tokio::spawn(until_closed(Arc::clone(shared), |shared| async move { heartbeat(&shared).await }));
}

/// Keeps the stream over which a worker was started open while its calls use a direct channel.
pub(super) fn hold<W, R>(shared: &Arc<Shared>, output: W, mut input: R)
where
    W: AsyncWrite + Send + Unpin + 'static,
    R: AsyncRead + Send + Unpin + 'static,
{
    tokio::spawn(until_closed(Arc::clone(shared), |_| async move {
        // Unused from now on; closing it tells the worker to end.
        let _output = output;
        match input.read(&mut [0; 1]).await {
            Ok(0) => CloseReason::Eof,
            Ok(_) => Violation::Frame.into(),
            Err(error) => CloseReason::Io(error.kind()),
        }
    }));
}

async fn until_closed<F: Future<Output = CloseReason>>(
    shared: Arc<Shared>,
    task: impl FnOnce(Arc<Shared>) -> F,
) {
    tokio::select! {
        biased;
        () = shared.stop.cancelled() => shared.close(CloseReason::Shutdown),
        reason = task(Arc::clone(&shared)) => shared.close(reason),
    }
}

async fn read(shared: &Shared, mut input: impl AsyncRead + Unpin, mut buffer: FrameBuffer) -> CloseReason {
    loop {
        loop {
            match buffer.pop::<FromWorker>() {
                Ok(Some(frame)) => match shared.table(|table| table.accept(frame)) {
                    Ok(Accepted::Call) => {}
                    Ok(Accepted::Variables) => shared.taken.notify_one(),
                    Ok(Accepted::Pong) => {
                        shared.pong.notify_one();
                        // Pongs come every few seconds, and are the only frames when the run is idle.
                        buffer.rest();
                    }
                    Err(violation) => return violation.into(),
                },
                Ok(None) => break,
                Err(_) => return Violation::Frame.into(),
            }
        }
        match input.read_buf(buffer.read_buffer()).await {
            Ok(0) if buffer.is_empty() => return CloseReason::Eof,
            Ok(0) => return Violation::Cut.into(),
            Ok(_) => {}
            Err(error) => return CloseReason::Io(error.kind()),
        }
    }
}

/// Writes the queued frames. Dropping `output` at the end tells the worker to end.
async fn write(
    outbound: &Outbound,
    mut frames: mpsc::Receiver<Vec<u8>>,
    mut output: impl AsyncWrite + Unpin,
) -> CloseReason {
    while let Some(frame) = frames.recv().await {
        let written = async {
            output.write_all(&frame).await?;
            output.flush().await
        };
        if let Err(error) = written.await {
            return CloseReason::Io(error.kind());
        }
        outbound.written();
    }
    CloseReason::Shutdown
}

async fn heartbeat(shared: &Shared) -> CloseReason {
    let mut beat = interval(shared.options.ping_interval);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    beat.tick().await;
    loop {
        beat.tick().await;
        shared.table(Table::ping);
        let asked = async {
            shared.say(0, Body::Ping(Ping {})).await?;
            shared.pong.notified().await;
            Ok::<_, crate::client::LaneError>(())
        };
        match timeout(shared.options.ping_timeout, asked).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return CloseReason::Shutdown,
            Err(_) => return CloseReason::Heartbeat,
        }
    }
}
