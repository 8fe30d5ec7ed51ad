//! `denials`, `denied_commands`, `escape_attempts`, `permission_escalation`, `rate_limit_abuse`, `disk_quota`, `disk_low`,
//! `placeholder_elsewhere`, `model_budget`: a number of events of one kind within the window.

use policy::AnomalySetting;

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

/// Returns true for any call that was denied, or that tried to escape.
pub(super) fn is_denial(seen: &Seen) -> bool {
    seen.ended().is_some_and(crate::seen::Ended::was_refused)
}

pub(super) fn is_denied_command(seen: &Seen) -> bool {
    seen.ended().is_some_and(|ended| ended.ending == Ending::Denied(Denial::Command))
}

pub(super) fn is_escape(seen: &Seen) -> bool {
    seen.ended().is_some_and(|ended| ended.ending == Ending::Escape)
}

/// Returns true if the agent asked for an operation that it does not hold, or exceeded the rights of its token or role.
pub(super) fn is_escalation(seen: &Seen) -> bool {
    seen.what == What::Escalated
        || seen.ended().is_some_and(|ended| ended.ending == Ending::Denied(Denial::NotHeld))
}

/// Returns true if a rate limit refused the call.
pub(super) fn is_over_limit(seen: &Seen) -> bool {
    seen.ended().is_some_and(|ended| ended.ending == Ending::OverLimit)
}
