//! How much output a worker may send for a call before it is given more credit.

use std::collections::VecDeque;

/// Bytes that may be under way: sent by the worker, and not taken here.
pub(super) const WINDOW: u64 = 1024 * 1024;
/// Credit is given back in pieces of at least this, so that short output costs no frame.
pub(super) const CREDIT: u64 = WINDOW / 2;

/// The account of one call.
#[derive(Debug)]
pub(super) struct Window {
    granted: u64,
    used: u64,
    /// What was granted altogether, after each credit that the worker may not have reached yet. Few: credit follows
    /// upon use.
    marks: VecDeque<u64>,
}

impl Window {
    pub(super) fn new() -> Self {
        Self { granted: WINDOW, used: 0, marks: VecDeque::from([WINDOW]) }
    }

    /// Bytes came; `false` when they were more than there was credit for.
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

    /// More credit is about to be sent, for bytes that came and were taken.
    pub(super) fn grant(&mut self, bytes: u64) {
        self.granted += bytes;
        self.marks.push_back(self.granted);
    }

    /// Whether the worker may be without credit now, as far as it can know: the last credit may still be on its way.
    pub(super) fn may_be_used_up(&self) -> bool {
        self.marks.contains(&self.used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_granted_can_be_spent_and_no_more() {
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
