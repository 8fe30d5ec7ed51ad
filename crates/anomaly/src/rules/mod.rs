//! The rules: each a file, each a function of what it has seen, with the time of the records for a clock.
//!
//! A rule is asked about every event that concerns it, in order, for one subject. It answers with evidence at every event
//! at which its condition holds; that this is one alert and not a hundred is decided elsewhere. What it keeps is bounded by
//! its own setting or by a constant.

mod burst;
mod counted;
mod failures;
mod followed;
mod repeat;
mod same_file;
mod spike;
mod tally;

#[cfg(test)]
mod naive;
#[cfg(test)]
mod property;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use gateway::{AnomalyRule, AnomalySetting};

use super::seen::{Agent, Moment, Seen, Subject, What};

/// Records that an alert names at the most, newest last.
pub(super) const MAX_SEQUENCES: usize = 32;

/// Why a rule fires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Evidence {
    /// How many, in the words of the rule's threshold. Where a rule needs to know no more it stops counting at that.
    pub(super) count: u64,
    /// Sequence numbers of the records that fired it, oldest first; of many the last ones.
    pub(super) sequences: Vec<u64>,
}

pub(super) trait Rule: Send {
    /// Takes an event that concerns the rule.
    fn observe(&mut self, seen: &Seen, setting: &AnomalySetting) -> Option<Evidence>;
}

/// A rule that has seen nothing.
pub(super) fn fresh(rule: AnomalyRule) -> Box<dyn Rule> {
    match rule {
        AnomalyRule::Spike => Box::new(spike::Spike::default()),
        AnomalyRule::RepeatedFailures => Box::new(failures::Failures::default()),
        AnomalyRule::ReadWriteDelete => Box::new(same_file::SameFile::default()),
        AnomalyRule::ReadWriteDeleteBurst => Box::new(burst::Burst::default()),
        AnomalyRule::GrantThenExec | AnomalyRule::SecretThenExec => Box::new(followed::Followed::default()),
        AnomalyRule::Denials
        | AnomalyRule::DeniedCommands
        | AnomalyRule::EscapeAttempts
        | AnomalyRule::PermissionEscalation
        | AnomalyRule::RateLimitAbuse
        | AnomalyRule::DiskQuota
        | AnomalyRule::DiskLow => Box::new(counted::Counted::default()),
        AnomalyRule::Loop => Box::new(repeat::Repeat::default()),
    }
}

/// Whether an event concerns a rule: what does not is not shown to it.
pub(super) fn concerns(rule: AnomalyRule, seen: &Seen) -> bool {
    match rule {
        AnomalyRule::Spike => seen.what == What::Asked,
        AnomalyRule::RepeatedFailures => failures::counts(seen),
        AnomalyRule::ReadWriteDelete => same_file::counts(seen),
        AnomalyRule::ReadWriteDeleteBurst => seen.ended().is_some(),
        AnomalyRule::GrantThenExec => seen.what == What::Granted || followed::follows(seen),
        AnomalyRule::SecretThenExec => followed::reads_secret(seen) || followed::follows(seen),
        AnomalyRule::Denials => counted::is_denial(seen),
        AnomalyRule::DeniedCommands => counted::is_denied_command(seen),
        AnomalyRule::EscapeAttempts => counted::is_escape(seen),
        AnomalyRule::PermissionEscalation => counted::is_escalation(seen),
        AnomalyRule::RateLimitAbuse => counted::is_over_limit(seen),
        AnomalyRule::Loop => repeat::counts(seen),
        AnomalyRule::DiskQuota => seen.what == What::DiskQuota,
        AnomalyRule::DiskLow => seen.what == What::DiskLow,
    }
}

/// For whom a rule counts.
pub(super) fn subject(rule: AnomalyRule, seen: &Seen) -> Subject {
    match rule {
        AnomalyRule::ReadWriteDelete
        | AnomalyRule::ReadWriteDeleteBurst
        | AnomalyRule::SecretThenExec
        | AnomalyRule::Loop
        | AnomalyRule::DiskQuota => Subject::Run(seen.run.clone()),
        // A grant names an agent and no principal.
        AnomalyRule::GrantThenExec => {
            Subject::Agent(Agent { principal: "".into(), id: seen.agent.id.clone() })
        }
        _ => Subject::Agent(seen.agent.clone()),
    }
}

/// For how long a rule has to have seen everything, milliseconds: what is older changes nothing.
pub(super) fn memory(rule: AnomalyRule, setting: &AnomalySetting) -> u64 {
    let window = millis(setting);
    if rule == AnomalyRule::Spike { window.saturating_mul(spike::BASELINE_WINDOWS + 1) } else { window }
}

/// The window, milliseconds.
fn millis(setting: &AnomalySetting) -> u64 {
    setting.window_s.saturating_mul(1_000)
}

/// Whether something at `at` is still in the window that ends `now`: it is open at its beginning.
fn within(at: Moment, now: Moment, setting: &AnomalySetting) -> bool {
    at.saturating_add(millis(setting)) > now
}
