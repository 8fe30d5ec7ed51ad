//! `grant_then_exec` and `secret_then_exec`: a number of commands within the window, each of them within the window after a grant
//! or after the reading of a secret (seed 001: privilege escalation).

use policy::AnomalySetting;

use super::tally::Tally;
use super::{Evidence, Rule, within};
use crate::seen::{Kind, Moment, Seen};

#[derive(Debug, Default)]
pub(super) struct Followed {
    /// The last grant, or the last reading of a secret.
    opened: Option<(Moment, u64)>,
    commands: Tally,
}

/// Returns true for a command that ran.
pub(super) fn follows(seen: &Seen) -> bool {
    seen.ended().is_some_and(crate::seen::Ended::ran_command)
}

/// Returns true for the reading of a probable secret.
pub(super) fn reads_secret(seen: &Seen) -> bool {
    seen.ended().is_some_and(|ended| ended.kind == Kind::Read && ended.secret && ended.succeeded())
}

impl Rule for Followed {
    fn observe(&mut self, seen: &Seen, setting: &AnomalySetting) -> Option<Evidence> {
        if !follows(seen) {
            self.opened = Some((seen.at, seen.sequence));
            return None;
        }
        let (_, opened) = self.opened.filter(|(at, _)| within(*at, seen.at, setting))?;
        let mut evidence = self.commands.count(seen.at, seen.sequence, setting)?;
        // Some of the commands may have followed an earlier grant or reading.
        let place = evidence.sequences.partition_point(|sequence| *sequence < opened);
        evidence.sequences.insert(place, opened);
        Some(evidence)
    }
}
