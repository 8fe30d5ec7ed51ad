//! The rules, each in a file. A rule is a function of the events that it has seen, with the records' times as its clock.
//!
//! A rule sees every event that concerns it, in order, for one subject. It returns evidence at every event at which its condition
//! holds; other code joins these into one alert. Its setting or a constant bounds its memory.

mod burst;
mod counted;
mod different;
mod failures;
mod first_contact;
mod followed;
mod repeat;
mod same_file;
mod spike;
mod tally;
mod volume;

#[cfg(test)]
mod egress_tests;
#[cfg(test)]
mod naive;
#[cfg(test)]
mod property;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use policy::{AnomalyRule, AnomalySetting};

use super::seen::{Agent, Moment, Seen, Subject, What};

/// Most records that an alert names, the newest last.
pub(super) const MAX_SEQUENCES: usize = 32;

/// The reason why a rule fires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Evidence {
    /// The number that the rule's threshold bounds. Some rules stop counting at the threshold.
    pub(super) count: u64,
    /// Sequence numbers of the records that fired it, oldest first; if there are many, the last ones.
    pub(super) sequences: Vec<u64>,
}

pub(super) trait Rule: Send {
    /// Observes an event that concerns the rule.
    fn observe(&mut self, seen: &Seen, setting: &AnomalySetting) -> Option<Evidence>;
}

/// Returns a rule that has seen no event.
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
        | AnomalyRule::DiskLow
        | AnomalyRule::PlaceholderElsewhere
        | AnomalyRule::ModelBudget => Box::new(counted::Counted::default()),
        AnomalyRule::Loop => Box::new(repeat::Repeat::default()),
        AnomalyRule::EgressVolume => Box::new(volume::Volume::default()),
        AnomalyRule::EgressAfterSecret => Box::new(first_contact::FirstContact::default()),
        AnomalyRule::EgressRefusals => Box::new(different::Different::default()),
    }
}

/// Returns true if an event concerns a rule. A rule sees no other events.
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
        AnomalyRule::EgressVolume => matches!(seen.what, What::Sent(_)),
        AnomalyRule::EgressAfterSecret => {
            followed::reads_secret(seen) || matches!(seen.what, What::Connected(_))
        }
        AnomalyRule::EgressRefusals => matches!(seen.what, What::Unreached(_)),
        AnomalyRule::PlaceholderElsewhere => seen.what == What::Misplaced,
        AnomalyRule::ModelBudget => seen.what == What::Spending,
    }
}

/// Returns the subject for which a rule counts the event.
pub(super) fn subject(rule: AnomalyRule, seen: &Seen) -> Subject {
    match rule {
        AnomalyRule::ReadWriteDelete
        | AnomalyRule::ReadWriteDeleteBurst
        | AnomalyRule::SecretThenExec
        | AnomalyRule::Loop
        | AnomalyRule::DiskQuota
        | AnomalyRule::EgressVolume
        | AnomalyRule::EgressAfterSecret
        | AnomalyRule::EgressRefusals
        | AnomalyRule::PlaceholderElsewhere
        | AnomalyRule::ModelBudget => Subject::Run(seen.run.clone()),
        // A grant names an agent and no principal.
        AnomalyRule::GrantThenExec => {
            Subject::Agent(Agent { principal: "".into(), id: seen.agent.id.clone() })
        }
        _ => Subject::Agent(seen.agent.clone()),
    }
}

/// Returns the time that a rule looks back, milliseconds. Older events change nothing.
pub(super) fn memory(rule: AnomalyRule, setting: &AnomalySetting) -> u64 {
    let windows = match rule {
        AnomalyRule::Spike => spike::BASELINE_WINDOWS + 1,
        AnomalyRule::EgressAfterSecret => first_contact::KNOWN_WINDOWS,
        _ => 1,
    };
    millis(setting).saturating_mul(windows)
}

/// Returns the window in milliseconds.
fn millis(setting: &AnomalySetting) -> u64 {
    setting.window_s.saturating_mul(1_000)
}

/// Returns true if `at` is in the window that ends `now`. The window excludes its beginning.
fn within(at: Moment, now: Moment, setting: &AnomalySetting) -> bool {
    at.saturating_add(millis(setting)) > now
}
