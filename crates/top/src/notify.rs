//! Notifications of a terminal about approvals that wait.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use presentation::ids;
use text::clean::{Shape, clean};
use wire::v1::Approval;
use wire::v1::approval::State;

/// Characters of a notification.
const LONGEST: usize = 120;
/// Time between two notifications. An agent that asks all the time must not make the terminal ring all the time.
const QUIET: Duration = Duration::from_secs(5);
/// Number of approvals that are remembered.
const MOST: usize = 10_000;

/// Notifies about each approval once, and about many as one.
///
/// A terminal that shows desktop notifications understands the sequence 9 or 777; others ignore both and ring their bell.
#[derive(Debug)]
pub struct Notifier {
    is_terminal: bool,
    known: BTreeSet<String>,
    last: Option<Instant>,
    waiting: usize,
}

impl Default for Notifier {
    fn default() -> Self {
        Self::new(io::stdout().is_terminal())
    }
}

impl Notifier {
    fn new(is_terminal: bool) -> Self {
        Self { is_terminal, known: BTreeSet::new(), last: None, waiting: 0 }
    }

    /// Notifies about the pending approvals among these that are new.
    pub fn tell<'a>(&mut self, approvals: impl IntoIterator<Item = &'a Approval>) {
        if let Some(sequence) = self.sequence(approvals, Instant::now()) {
            let mut out = io::stdout().lock();
            // A terminal that is gone needs no notification.
            let _ = out.write_all(sequence.as_bytes()).and_then(|()| out.flush());
        }
    }

    fn sequence<'a>(
        &mut self,
        approvals: impl IntoIterator<Item = &'a Approval>,
        now: Instant,
    ) -> Option<String> {
        let mut newest = None;
        for approval in approvals.into_iter().filter(|approval| approval.state() == State::Pending) {
            if self.known.insert(approval.approval_id.clone()) {
                self.waiting += 1;
                newest = Some(approval);
            }
        }
        while self.known.len() > MOST {
            // Ids begin with their time, so the first is the oldest.
            self.known.pop_first();
        }
        let due = self.last.is_none_or(|last| now.saturating_duration_since(last) >= QUIET);
        if self.waiting == 0 || !due || !self.is_terminal {
            return None;
        }
        let text = match (newest, self.waiting) {
            (Some(approval), 1) => format!(
                "approval {}: {} by {}",
                ids::short(&approval.approval_id),
                approval.operation,
                approval.agent_id
            ),
            (_, number) => format!("waiting approvals: {number}"),
        };
        (self.last, self.waiting) = (Some(now), 0);
        Some(osc(&text))
    }
}

/// Returns the escape sequences for a text, which cannot end or continue them.
fn osc(text: &str) -> String {
    let cleaned = clean(text, Shape::Line);
    // A semicolon would begin another field of the sequence 777.
    let harmless: String = cleaned.chars().filter(|c| *c != ';').take(LONGEST).collect();
    format!("\x1b]9;{harmless}\x1b\\\x1b]777;notify;coffer;{harmless}\x1b\\\x07")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn approval(id: &str) -> Approval {
        Approval {
            approval_id: id.into(),
            state: State::Pending.into(),
            operation: "exec".into(),
            agent_id: "ali\x1b\\ce;\x07".into(),
            ..Default::default()
        }
    }

    #[test]
    fn text_cannot_leave_the_sequence() {
        let told = osc("a\x1b\\b\x07c;d\n\u{9c}");
        assert_eq!(told.matches('\x1b').count(), 4, "{told:?}");
        assert_eq!(told.matches('\x07').count(), 1, "{told:?}");
        assert!(told.contains("]9;a␛\\b␇cd␊<U+009C>\x1b\\"), "{told:?}");
    }

    #[test]
    fn each_approval_is_told_once_and_a_flood_as_one() {
        let (mut notifier, start) = (Notifier::new(true), Instant::now());
        let one = [approval("1")];
        assert!(notifier.sequence(&one, start).unwrap().contains("approval 1: exec by ali"));
        assert_eq!(notifier.sequence(&one, start + QUIET), None);
        let many: Vec<_> = (2..50).map(|number| approval(&number.to_string())).collect();
        assert_eq!(notifier.sequence(&many, start + Duration::from_secs(1)), None, "too soon");
        assert!(notifier.sequence(&many, start + QUIET).unwrap().contains("waiting approvals: 48"));
        assert_eq!(Notifier::new(false).sequence(&one, start), None, "no terminal");
    }
}
