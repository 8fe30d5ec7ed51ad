//! Limits the output that a worker may send for a call until it gets more credit.

use std::collections::VecDeque;

/// Bytes that the worker may have sent and the sink has not taken.
pub(super) const WINDOW: u64 = 1024 * 1024;
/// Smallest amount of credit that is given back, so that short output costs no frame.
pub(super) const CREDIT: u64 = WINDOW / 2;

/// The account of one call.
#[derive(Debug)]
pub(super) struct Window {
    granted: u64,
    used: u64,
    /// Total granted after each credit that the worker may not have reached yet.
    ///
    /// There are few, because credit is only given after use.
    marks: VecDeque<u64>,
}

impl Window {
    pub(super) fn new() -> Self {
        Self { granted: WINDOW, used: 0, marks: VecDeque::from([WINDOW]) }
    }

    /// Spends credit for received bytes. Returns false if they exceed it.
    pub(super) fn spend(&mut self, bytes: u64) -> bool {
        if bytes > self.granted - self.used {
            return false;
        }
        self.used += bytes;
        while self.marks.front().is_some_and(|mark| *mark < self.used) {
            self.marks.pop_front();
        }
        true
    }

    /// Adds credit that is about to be sent, for bytes that were received and taken.
    pub(super) fn grant(&mut self, bytes: u64) {
        self.granted += bytes;
        self.marks.push_back(self.granted);
    }

    /// Returns true if the worker may have no credit left, as far as it knows: the last credit may still be on its way.
    pub(super) fn may_be_used_up(&self) -> bool {
        self.marks.contains(&self.used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_cannot_be_overspent() {
        let mut window = Window::new();
        assert!(!window.spend(WINDOW + 1));
        assert!(window.spend(WINDOW - 1) && !window.may_be_used_up());
        assert!(!window.spend(2));
        assert!(window.spend(1) && window.may_be_used_up());
        window.grant(CREDIT);
        assert!(window.may_be_used_up(), "it need not have arrived");
        assert!(window.spend(1) && !window.may_be_used_up());
        assert!(window.spend(CREDIT - 1) && window.may_be_used_up());
        assert!(!window.spend(1));
    }

    #[test]
    fn an_endless_stream_keeps_few_marks() {
        let mut window = Window::new();
        for _ in 0..10_000 {
            assert!(window.spend(CREDIT));
            window.grant(CREDIT);
            assert!(window.marks.len() <= 3);
        }
    }
}
