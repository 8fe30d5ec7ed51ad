//! Queues input to a terminal, in order. New sizes and signals overtake input that the terminal does not read.

use std::collections::VecDeque;
use std::future::pending;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use worker_protocol::client::{Keyboard, SessionOver, TerminalSignal, TerminalSize};

/// Maximum number of messages with input that may wait, of 16 KiB each.
const WAITING: usize = 4;

type Doing = BoxFuture<'static, Result<(), SessionOver>>;

/// Queue of the input, sizes and signals that the operator sent.
pub(super) struct InputQueue {
    keyboard: Keyboard,
    waiting: VecDeque<Bytes>,
    typing: Option<Doing>,
    /// A new size, or a signal.
    urgent: Option<Doing>,
}

impl InputQueue {
    pub(super) fn new(keyboard: Keyboard) -> Self {
        Self { keyboard, waiting: VecDeque::new(), typing: None, urgent: None }
    }

    /// Returns true if the queue takes another request.
    pub(super) fn is_free(&self) -> bool {
        self.urgent.is_none() && self.waiting.len() < WAITING
    }

    pub(super) fn input(&mut self, bytes: Bytes) {
        self.waiting.push_back(bytes);
    }

    pub(super) fn resize(&mut self, size: TerminalSize) {
        let keyboard = self.keyboard.clone();
        self.urgent = Some(async move { keyboard.resize(size).await }.boxed());
    }

    pub(super) fn signal(&mut self, signal: TerminalSignal) {
        let keyboard = self.keyboard.clone();
        self.urgent = Some(async move { keyboard.signal(signal).await }.boxed());
    }

    /// Sends the queued messages, and returns after each of them. May be dropped at any time.
    pub(super) async fn work(&mut self) {
        if self.typing.is_none()
            && let Some(bytes) = self.waiting.pop_front()
        {
            let keyboard = self.keyboard.clone();
            self.typing = Some(async move { keyboard.write(&bytes).await }.boxed());
        }
        let done = tokio::select! {
            done = finish(&mut self.urgent) => done,
            done = finish(&mut self.typing) => done,
        };
        // The terminal is gone, and the end of the session follows.
        if done.is_err() {
            self.waiting.clear();
        }
    }
}

async fn finish(doing: &mut Option<Doing>) -> Result<(), SessionOver> {
    match doing {
        Some(future) => {
            let done = future.await;
            *doing = None;
            done
        }
        None => pending().await,
    }
}
