//! A command with a terminal.
//!
//! To the worker it is a call like any other, but it has a separate capacity: it may last for hours and must not block calls that take
//! milliseconds. Input has a window as output has. Input that the terminal has not taken yet waits here, and so does a client that types
//! faster than the program reads.

use std::sync::Arc;
use std::time::Duration;

use operations::{Bounds, Exec, Operation};
use thiserror::Error;
use tokio::sync::SemaphorePermit;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use wire::worker::v1::{self, ToWorker, to_worker::Body};

use crate::client::drive::{Driver, Request};
use crate::client::line::Line;
use crate::client::shared::Shared;
use crate::client::{CallSpec, Client, Finished, LaneError, OutputSink, Placement};
use crate::convert::Reply;
use crate::frame::encode;
use crate::terminal::{MAX_INPUT, TerminalSignal, TerminalSize};

#[derive(Clone, Copy)]
pub struct TerminalSpec<'a> {
    /// The command. Its fields `stdin` and `timeout` have no meaning here. `TERM` belongs in `env`.
    pub exec: &'a Exec,
    /// Runs the image's login shell instead of `exec.command` and `exec.args`: `bash -l`, or `sh -l` if there is no bash. If `exec.args`
    /// is empty: that shell without `-l`, and without a startup file.
    pub login_shell: bool,
    /// Limits of the session. It is ended after `max_spool_bytes` of output.
    pub bounds: &'a Bounds,
    pub size: TerminalSize,
    /// Uses pipes instead of a pty, with standard error as a separate stream. Such commands have a separate capacity, besides terminals.
    pub pipes: bool,
    /// Longest duration of the session, 24 hours at most.
    pub deadline: Duration,
    /// Sink for the terminal's output, as standard output.
    pub output: &'a Arc<dyn OutputSink>,
}

/// An open terminal. Dropping it ends the session, and all processes started in it.
#[derive(Debug)]
pub struct Terminal {
    keyboard: Keyboard,
    driver: JoinHandle<Result<Finished<Reply>, LaneError>>,
    _dropped: DropGuard,
}

/// Input of a terminal. Concurrent writes are mixed, so there should be only one writer at a time.
#[derive(Debug, Clone)]
pub struct Keyboard {
    shared: Arc<Shared>,
    id: u64,
    line: Arc<Line>,
}

/// Error: the session no longer takes input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the session is over")]
pub struct SessionOver;

impl Client {
    /// Opens a terminal. `placement` and `cancel` are as with [`Client::call`].
    ///
    /// This returns before the command has started. [`Terminal::finished`] reports if it cannot be run. Fails with [`LaneError::Busy`] if
    /// the maximum number of terminals is open.
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
        let slots = if spec.pipes { &self.inner.piped } else { &self.inner.terminals };
        let slot = Arc::clone(slots).try_acquire_owned().map_err(|_| LaneError::Busy)?;
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
            way_out: 0,
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

    /// Waits for the end of the command, its deadline, the end of the stream, or a cancellation.
    ///
    /// After that no process of the command is left, as the evidence in the outcome shows. The outcome is that of an `exec` without its
    /// output. Dropping the future ends the session.
    pub async fn finished(self) -> Result<Finished<Reply>, LaneError> {
        // A driver does not panic. If its runtime ends, the stream does, too.
        self.driver.await.unwrap_or_else(|_| Err(self.keyboard.shared.lost()))
    }
}

impl Keyboard {
    /// Types the bytes, and waits while the terminal takes none. If the future is dropped, a part of `bytes` may have been typed.
    pub async fn write(&self, bytes: &[u8]) -> Result<(), SessionOver> {
        for chunk in bytes.chunks(MAX_INPUT) {
            self.type_chunk(chunk).await?;
        }
        Ok(())
    }

    /// Changes the terminal's size.
    pub async fn resize(&self, size: TerminalSize) -> Result<(), SessionOver> {
        self.say(Body::Resize(size.into())).await
    }

    /// Sends a signal to the foreground process group.
    pub async fn signal(&self, signal: TerminalSignal) -> Result<(), SessionOver> {
        self.say(Body::Signal(v1::Signal { number: signal.number() })).await
    }

    async fn type_chunk(&self, chunk: &[u8]) -> Result<(), SessionOver> {
        let length = u32::try_from(chunk.len()).map_err(|_| SessionOver)?;
        let space = tokio::select! {
            biased;
            () = self.shared.stop.cancelled() => return Err(SessionOver),
            space = self.reserve(length) => space?,
        };
        let body = Body::Input(v1::Input { data: chunk.to_vec() });
        let frame = encode(&ToWorker { id: self.id, body: Some(body) }).map_err(|_| SessionOver)?;
        let slot = self.shared.slot().await.map_err(|_| SessionOver)?;
        // No await from here on, so that dropping this future either uses the space or gives it back.
        if !self.shared.table(|table| table.typed(self.id, chunk.len())) {
            return Err(SessionOver);
        }
        space.forget();
        slot.send(frame);
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

    async fn reserve(&self, bytes: u32) -> Result<SemaphorePermit<'_>, SessionOver> {
        self.line.begun().await;
        self.line.space.acquire_many(bytes).await.map_err(|_| SessionOver)
    }
}
