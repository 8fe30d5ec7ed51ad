//! `denials`, `denied_commands`, `escape_attempts`, `permission_escalation`, `rate_limit_abuse`, `disk_quota`, `disk_low`: so many
//! of one kind within the window.

use gateway::AnomalySetting;

use super::tally::Tally;
use super::{Evidence, Rule};
use crate::seen::{Denial, Ending, Seen, What};

#[derive(Debug, Default)]
pub(super) struct Counted(Tally);

impl Rule for Counted {
    fn observe(&mut self, seen: &Seen, setting: &AnomalySetting) -> Option<Evidence> {
        self.0.count(seen.at, seen.sequence, setting)
    }
}

/// Anything that was refused for what it was.
pub(super) fn is_denial(seen: &Seen) -> bool {
    seen.ended().is_some_and(crate::seen::Ended::was_refused)
}

pub(super) fn is_denied_command(seen: &Seen) -> bool {
    seen.ended().is_some_and(|ended| ended.ending == Ending::Denied(Denial::Command))
}

pub(super) fn is_escape(seen: &Seen) -> bool {
    seen.ended().is_some_and(|ended| ended.ending == Ending::Escape)
}

/// The agent asked for an operation that it does not hold, or for what a token or a method is not for.
pub(super) fn is_escalation(seen: &Seen) -> bool {
    seen.what == What::Escalated
        || seen.ended().is_some_and(|ended| ended.ending == Ending::Denied(Denial::NotHeld))
}

/// A rate limit refused it.
pub(super) fn is_over_limit(seen: &Seen) -> bool {
    seen.ended().is_some_and(|ended| ended.ending == Ending::OverLimit)
}
