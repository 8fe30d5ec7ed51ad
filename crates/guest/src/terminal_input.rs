//! Messages of the daemon to a call's terminal that the terminal has not received yet: input, a size, signals.
//!
//! Their memory is bounded. Input is limited to the bytes that may be under way. Only the last size counts, and each signal counts once.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Notify;
use wire::worker::v1;
use worker_protocol::terminal::{MAX_INPUT, MAX_UNTAKEN, TerminalSignal, TerminalSize};

use crate::fault::Fault;

/// A terminal as the daemon requested it.
pub(crate) struct TerminalInput {
    /// True if the login shell runs instead of the operation's command.
    pub(crate) login_shell: bool,
    /// True if the command gets pipes instead of a pty.
    pub(crate) pipes: bool,
    heard: Mutex<Heard>,
    news: Notify,
}

struct Heard {
    typed: VecDeque<u8>,
    orders: Orders,
}

/// Orders that are executed at once, even if input waits.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Orders {
    pub(crate) size: Option<TerminalSize>,
    /// In the order of their first arrival.
    pub(crate) signals: Vec<TerminalSignal>,
}

impl TerminalInput {
    /// Opens a terminal as a Start frame requests it.
    pub(crate) fn open(terminal: v1::Terminal) -> Result<Self, Fault> {
        let size = terminal.size.and_then(size).ok_or(Fault::Unexpected("a terminal without a size"))?;
        let orders = Orders { size: Some(size), signals: Vec::new() };
        Ok(Self {
            login_shell: terminal.login_shell,
            pipes: terminal.pipes,
            heard: Mutex::new(Heard { typed: VecDeque::new(), orders }),
            news: Notify::new(),
        })
    }

    /// Adds input. Returns false if it exceeds the limit.
    pub(crate) fn typed(&self, bytes: &[u8]) -> bool {
        let mut heard = self.heard.lock();
        if bytes.is_empty() || bytes.len() > MAX_INPUT || heard.typed.len() + bytes.len() > MAX_UNTAKEN {
            return false;
        }
        heard.typed.extend(bytes);
        self.news.notify_one();
        true
    }

    /// Orders another size. Returns false if the size is not valid.
    pub(crate) fn resize(&self, wanted: v1::TerminalSize) -> bool {
        let Some(size) = size(wanted) else { return false };
        self.heard.lock().orders.size = Some(size);
        self.news.notify_one();
        true
    }

    /// Orders a signal. Returns false if it may not be sent. A signal that waits already is sent once, as the kernel does.
    pub(crate) fn signal(&self, number: u32) -> bool {
        let Some(signal) = TerminalSignal::from_number(number) else { return false };
        let signals = &mut self.heard.lock().orders.signals;
        if !signals.contains(&signal) {
            signals.push(signal);
        }
        self.news.notify_one();
        true
    }

    /// Waits for the next message.
    pub(crate) async fn news(&self) {
        self.news.notified().await;
    }

    /// Takes the orders that wait.
    pub(crate) fn orders(&self) -> Orders {
        std::mem::take(&mut self.heard.lock().orders)
    }

    pub(crate) fn has_input(&self) -> bool {
        !self.heard.lock().typed.is_empty()
    }

    /// Passes input to `write`, which returns how much it took. Returns that number.
    pub(crate) fn take(&self, write: impl FnOnce(&[u8]) -> usize) -> usize {
        let mut heard = self.heard.lock();
        let taken = write(heard.typed.as_slices().0);
        heard.typed.drain(..taken);
        taken
    }
}

fn size(size: v1::TerminalSize) -> Option<TerminalSize> {
    TerminalSize::new(size.rows, size.columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input() -> TerminalInput {
        let size = Some(v1::TerminalSize { rows: 24, columns: 80 });
        TerminalInput::open(v1::Terminal { size, login_shell: false, pipes: false }).unwrap()
    }

    #[test]
    fn input_is_bounded_and_keeps_its_order() {
        let input = input();
        assert!(!input.typed(b"") && !input.typed(&vec![0; MAX_INPUT + 1]));
        for part in 0..4 {
            assert!(input.typed(&[part; MAX_INPUT]));
        }
        assert!(!input.typed(b"x"));
        let mut got = Vec::new();
        while input.has_input() {
            let write = |bytes: &[u8]| {
                let count = bytes.len().min(1000);
                got.extend_from_slice(&bytes[..count]);
                count
            };
            input.take(write);
        }
        let expected: Vec<u8> = (0..4).flat_map(|part| vec![part; MAX_INPUT]).collect();
        assert_eq!(got, expected);
        assert!(input.typed(b"x"));
    }

    #[test]
    fn last_resize_and_each_signal_count_once() {
        let input = input();
        for columns in 1..10_000 {
            assert!(input.resize(v1::TerminalSize { rows: 1, columns }) && input.signal(2));
        }
        assert!(input.signal(1));
        assert!(!input.signal(64) && !input.resize(v1::TerminalSize { rows: 0, columns: 1 }));
        let expected = Orders {
            size: TerminalSize::new(1, 9_999),
            signals: vec![TerminalSignal::Int, TerminalSignal::Hup],
        };
        assert_eq!(input.orders(), expected);
        assert_eq!(input.orders(), Orders::default());
    }
}
