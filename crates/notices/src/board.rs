//! The approvals that wait, and the ends of those that waited before.

use std::collections::{BTreeMap, VecDeque};

use parking_lot::Mutex;
use timestamp::UnixMillis;
use tokio::sync::watch;

/// Ends that are kept for receivers that know the approval. Older ones are sent as `OVER`.
const MAX_ENDS: usize = 1_000;
/// Most characters of a preview in a message.
pub(crate) const MAX_PREVIEW: usize = 1_000;

/// An approval that waits, as far as it may leave the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// UUIDv7, so that ids are in the order of requests.
    pub approval_id: String,
    pub run_id: String,
    pub operation: String,
    pub profile: String,
    pub risk: &'static str,
    /// Principal that made the call, who usually may not decide on it.
    pub requested_by: String,
    pub expires_at: UnixMillis,
    /// The preview for reviewers. It leaves the host only where the configuration says so.
    pub preview: String,
}

impl Notice {
    /// Drops the part of the preview that no message has. Each receiver copies all that waits, and a preview may have 1 MiB.
    fn cut(mut self) -> Self {
        // One character more shows that it was cut.
        if let Some((end, _)) = self.preview.char_indices().nth(MAX_PREVIEW + 1) {
            self.preview.truncate(end);
            self.preview.shrink_to_fit();
        }
        self
    }
}

/// The approvals as receivers learn of them.
#[derive(Debug)]
pub struct Board {
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    waiting: BTreeMap<String, Notice>,
    /// Approvals that ended, oldest first, with their states.
    ends: VecDeque<(String, &'static str)>,
}

impl Default for Board {
    fn default() -> Self {
        Self { state: Mutex::default(), changed: watch::Sender::new(()) }
    }
}

impl Board {
    /// Notes that an approval waits.
    pub fn waits(&self, notice: Notice) {
        self.state.lock().waiting.insert(notice.approval_id.clone(), notice.cut());
        self.changed.send_replace(());
    }

    /// Notes that an approval no longer waits.
    pub fn ended(&self, approval_id: &str, state: &'static str) {
        {
            let mut board = self.state.lock();
            if board.waiting.remove(approval_id).is_none() {
                return;
            }
            board.ends.push_back((approval_id.to_owned(), state));
            if board.ends.len() > MAX_ENDS {
                board.ends.pop_front();
            }
        }
        self.changed.send_replace(());
    }

    /// Replaces all that waits, after changes were missed.
    pub fn replace(&self, waiting: impl IntoIterator<Item = Notice>) {
        self.state.lock().waiting =
            waiting.into_iter().map(|notice| (notice.approval_id.clone(), notice.cut())).collect();
        self.changed.send_replace(());
    }

    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Returns all that waits, oldest first.
    pub(crate) fn waiting(&self) -> Vec<Notice> {
        self.state.lock().waiting.values().cloned().collect()
    }

    pub(crate) fn end_of(&self, approval_id: &str) -> &'static str {
        let board = self.state.lock();
        board.ends.iter().rev().find(|(id, _)| id == approval_id).map_or("OVER", |(_, state)| state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preview_is_kept_as_far_as_messages_have_it() {
        let notice = |id: &str, preview: String| Notice {
            approval_id: id.into(),
            run_id: "r".into(),
            operation: "write".into(),
            profile: "review".into(),
            risk: "medium",
            requested_by: "uid:1".into(),
            expires_at: UnixMillis(0),
            preview,
        };
        let board = Board::default();
        board.replace([notice("a", "\u{e4}".repeat(1 << 20))]);
        board.waits(notice("b", "\u{e4}".repeat(1 << 20)));
        board.waits(notice("c", "\u{e4}".repeat(MAX_PREVIEW)));
        let kept: Vec<usize> = board.waiting().iter().map(|notice| notice.preview.chars().count()).collect();
        assert_eq!(kept, [MAX_PREVIEW + 1, MAX_PREVIEW + 1, MAX_PREVIEW]);
    }
}
