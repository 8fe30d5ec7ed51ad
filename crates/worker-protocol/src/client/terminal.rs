//! A command with a terminal, for as long as somebody sits at it.
//!
//! It is a call like any other to the worker, with places of its own: it may last for hours, and must not take those
//! of calls that last for milliseconds. Input has a window like output has: what the terminal has not taken yet stays
//! here, and whoever types faster than the program reads waits.

use std::sync::Arc;
use std::time::Duration;

use ops::{Bounds, Exec, Operation};
use thiserror::Error;
use tokio::sync::SemaphorePermit;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use wire::worker::v1::{self, ToWorker, to_worker::Body};

use crate::client::drive::{Driver, Request};
use crate::client::line::Line;
use crate::client::shared::Shared;
use crate::client::{CallSpec, Client, Finished, LaneError, OutputSink, Placement};
use crate::frame::encode;
use crate::terminal::{MAX_INPUT, TerminalSignal, TerminalSize};

#[derive(Clone, Copy)]
pub struct TerminalSpec<'a> {
    /// The command. Of its fields `stdin` and `timeout` have no meaning here; `TERM` belongs into `env`.
    pub exec: &'a Exec,
    /// Run the image's login shell instead of `exec.command` and `exec.args`: `bash -l`, or `sh -l` where there is no
    /// bash. If `exec.args` is empty: that shell without `-l`, and without a startup file.
    pub login_shell: bool,
    /// Within which bounds. `max_spool_bytes` is the most that it may show before it is ended.
    pub bounds: &'a Bounds,
    pub size: TerminalSize,
    /// Pipes in place of a pty: standard error comes as a stream of its own. Such a command has a place of its own, beside
    /// those of terminals.
    pub pipes: bool,
    /// How long the session may last; 24 hours at most.
    pub deadline: Duration,
    /// Gets what the terminal shows, as standard output.
    pub output: &'a Arc<dyn OutputSink>,
}

/// An open terminal. Dropping it ends the session, and everything that was started in it.
#[derive(Debug)]
pub struct Terminal {
    keyboard: Keyboard,
    driver: JoinHandle<Result<Finished, LaneError>>,
    _dropped: DropGuard,
}

/// The way in to a terminal. One at a time should write: what two write at once is mixed.
#[derive(Debug, Clone)]
pub struct Keyboard {
    shared: Arc<Shared>,
    id: u64,
    line: Arc<Line>,
}

/// There is nothing to type at any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the session is over")]
pub struct SessionOver;

impl Client {
    /// Opens a terminal. `placement` and `cancel` are as with [`Client::call`].
    ///
    /// Nothing of the command is known yet when this returns: one that cannot be run ends as [`Terminal::finished`]
    /// says. Fails with [`LaneError::Busy`] when as many terminals are open as may be.
    pub fn terminal(
        &self,
        spec: TerminalSpec<'_>,
        placement: Option<Arc<dyn Placement>>,
        cancel: &CancellationToken,
    ) -> Result<Terminal, LaneError> {
        let shared = &self.inner.shared;
        if shared.stop.is_cancelled() {
            return Err(shared.lost());
        }
        let places = if spec.pipes { &self.inner.piped } else { &self.inner.terminals };
        let slot = Arc::clone(places).try_acquire_owned().map_err(|_| LaneError::Busy)?;
        let operation = Operation::Exec(spec.exec.clone());
        let call = CallSpec {
            operation: &operation,
            bounds: spec.bounds,
            deadline: spec.deadline,
            preview: false,
            output: Some(spec.output),
        };
        let terminal =
            v1::Terminal { size: Some(spec.size.into()), login_shell: spec.login_shell, pipes: spec.pipes };
        let line = Arc::new(Line::new(spec.pipes));
        let cancel = cancel.child_token();
        let dropped = cancel.clone().drop_guard();
        let request = Request {
            spec: call,
            terminal: Some((terminal, &line)),
            placement,
            prepared: None,
            go: None,
            cancel,
            slot,
        };
        let driver = Driver::new(shared, request)?;
        let keyboard = Keyboard { shared: Arc::clone(shared), id: driver.id(), line };
        Ok(Terminal { keyboard, driver: shared.drivers.spawn(driver.run()), _dropped: dropped })
    }
}

impl Terminal {
    pub fn keyboard(&self) -> Keyboard {
        self.keyboard.clone()
    }

    /// Waits for the end: of the command, of its time, of the stream, or by cancellation. Nothing of the command is
    /// left then, as the evidence in the outcome says; the outcome is that of an `exec` without its output. Dropping
    /// the future ends the session.
    pub async fn finished(self) -> Result<Finished, LaneError> {
        // A driver does not panic; if its runtime ends, the stream does.
        self.driver.await.unwrap_or_else(|_| Err(self.keyboard.shared.lost()))
    }
}

impl Keyboard {
    /// Types, and waits for room as long as the terminal takes nothing. When dropped, a part of `bytes` has been typed.
    pub async fn write(&self, bytes: &[u8]) -> Result<(), SessionOver> {
        for chunk in bytes.chunks(MAX_INPUT) {
            self.type_chunk(chunk).await?;
        }
        Ok(())
    }

    /// Gives the terminal another size.
    pub async fn resize(&self, size: TerminalSize) -> Result<(), SessionOver> {
        self.say(Body::Resize(size.into())).await
    }

    /// Sends a signal to the foreground process group.
    pub async fn signal(&self, signal: TerminalSignal) -> Result<(), SessionOver> {
        self.say(Body::Signal(v1::Signal { number: signal.number() })).await
    }

    async fn type_chunk(&self, chunk: &[u8]) -> Result<(), SessionOver> {
        let length = u32::try_from(chunk.len()).map_err(|_| SessionOver)?;
        let room = tokio::select! {
            biased;
            () = self.shared.stop.cancelled() => return Err(SessionOver),
            room = self.room(length) => room?,
        };
        let body = Body::Input(v1::Input { data: chunk.to_vec() });
        let frame = encode(&ToWorker { id: self.id, body: Some(body) }).map_err(|_| SessionOver)?;
        let place = self.shared.place().await.map_err(|_| SessionOver)?;
        // From here on without a wait: whoever drops this future has either used the room or given it back.
        if !self.shared.table(|table| table.typed(self.id, chunk.len())) {
            return Err(SessionOver);
        }
        room.forget();
        place.send(frame);
        Ok(())
    }

    async fn say(&self, body: Body) -> Result<(), SessionOver> {
        tokio::select! {
            biased;
            () = self.shared.stop.cancelled() => return Err(SessionOver),
            () = self.line.begun() => {}
        }
        if !self.shared.table(|table| table.has(self.id)) {
            return Err(SessionOver);
        }
        self.shared.say(self.id, body).await.map_err(|_| SessionOver)
    }

    async fn room(&self, bytes: u32) -> Result<SemaphorePermit<'_>, SessionOver> {
        self.line.begun().await;
        self.line.room.acquire_many(bytes).await.map_err(|_| SessionOver)
    }
}
