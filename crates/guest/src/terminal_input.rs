//! What the daemon has said to a call's terminal and the terminal has not heard yet: input, a size, signals.
//!
//! Bounded whatever comes: input by what may be under way, and of sizes and signals the last of each kind counts.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Notify;
use wire::worker::v1;
use worker_protocol::terminal::{MAX_INPUT, MAX_UNTAKEN, TerminalSignal, TerminalSize};

use crate::fault::Fault;

/// A terminal as the daemon asked for it.
pub(crate) struct TerminalInput {
    /// Run the login shell instead of the operation's command.
    pub(crate) login_shell: bool,
    /// Pipes are wanted in place of a pty.
    pub(crate) pipes: bool,
    heard: Mutex<Heard>,
    news: Notify,
}

struct Heard {
    typed: VecDeque<u8>,
    orders: Orders,
}

/// What is done at once, whatever input waits.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Orders {
    pub(crate) size: Option<TerminalSize>,
    /// In the order in which they came first.
    pub(crate) signals: Vec<TerminalSignal>,
}

impl TerminalInput {
    /// A terminal as a Start frame asks for it.
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

    /// Input came; false when it is more than may come.
    pub(crate) fn typed(&self, bytes: &[u8]) -> bool {
        let mut heard = self.heard.lock();
        if bytes.is_empty() || bytes.len() > MAX_INPUT || heard.typed.len() + bytes.len() > MAX_UNTAKEN {
            return false;
        }
        heard.typed.extend(bytes);
        self.news.notify_one();
        true
    }

    /// It is to have another size; false when there is no such size.
    pub(crate) fn resize(&self, wanted: v1::TerminalSize) -> bool {
        let Some(size) = size(wanted) else { return false };
        self.heard.lock().orders.size = Some(size);
        self.news.notify_one();
        true
    }

    /// A signal is to be sent; false when it may not be. One that waits already is sent once, as the kernel does it.
    pub(crate) fn signal(&self, number: u32) -> bool {
        let Some(signal) = TerminalSignal::from_number(number) else { return false };
        let signals = &mut self.heard.lock().orders.signals;
        if !signals.contains(&signal) {
            signals.push(signal);
        }
        self.news.notify_one();
        true
    }

    /// Waits until something came.
    pub(crate) async fn news(&self) {
        self.news.notified().await;
    }

    /// What is to be done now.
    pub(crate) fn orders(&self) -> Orders {
        std::mem::take(&mut self.heard.lock().orders)
    }

    pub(crate) fn has_input(&self) -> bool {
        !self.heard.lock().typed.is_empty()
    }

    /// Gives input to `write`, which says how much it took. How much that was.
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
    fn of_orders_the_last_counts() {
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
