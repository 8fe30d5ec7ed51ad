//! Runs all rules for all agents and runs: events in, firings out. No clock, no I/O, bounded memory.

use policy::{Anomalies, AnomalyRule, AnomalySetting};

use super::recent::Recent;
use super::rules::{self, Evidence, Rule};
use super::seen::{Agent, Moment, Seen, Subject, What};

/// Most states of rules and subjects. Each agent needs some for the rules that it came near to.
const MAX_STATES: usize = 131_072;

/// A rule whose condition holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Firing {
    pub(super) rule: AnomalyRule,
    pub(super) subject: Subject,
    /// The agent that made the call.
    pub(super) agent: Agent,
    /// The run of the call.
    pub(super) run: std::sync::Arc<str>,
    pub(super) at: Moment,
    /// The record at which it fired.
    pub(super) sequence: u64,
    pub(super) evidence: Evidence,
}

struct State {
    touched: Moment,
    rule: Box<dyn Rule>,
}

pub(super) struct Detector {
    settings: Vec<(AnomalyRule, AnomalySetting)>,
    states: Recent<(AnomalyRule, Subject), State>,
}

impl Detector {
    pub(super) fn new(settings: &Anomalies) -> Self {
        let mut detector = Self { settings: Vec::new(), states: Recent::new(MAX_STATES) };
        detector.configure(settings);
        detector
    }

    /// Applies other settings. A rule with a new setting forgets its state.
    pub(super) fn configure(&mut self, settings: &Anomalies) {
        let on = AnomalyRule::ALL.into_iter().map(|rule| (rule, settings.of(rule)));
        let new: Vec<_> = on.filter(|(_, setting)| setting.is_on()).collect();
        let same = |rule: AnomalyRule| {
            let find = |all: &[(AnomalyRule, AnomalySetting)]| {
                all.iter()
                    .find(|(id, _)| *id == rule)
                    .map(|(_, setting)| (setting.threshold, setting.window_s, setting.of, setting.factor))
            };
            find(&new) == find(&self.settings)
        };
        let kept: Vec<AnomalyRule> = AnomalyRule::ALL.into_iter().filter(|rule| same(*rule)).collect();
        self.states.retain(|(rule, _), _| kept.contains(rule));
        self.settings = new;
    }

    /// Returns the time that rules look back, milliseconds.
    pub(super) fn memory(&self) -> u64 {
        self.settings.iter().map(|(rule, setting)| rules::memory(*rule, setting)).max().unwrap_or(0)
    }

    /// Observes one event. Events come in the order of the log.
    pub(super) fn observe(&mut self, seen: &Seen) -> Vec<Firing> {
        if let What::Acknowledged(rule, subject) = &seen.what {
            self.states.remove(&(*rule, subject.clone()));
            return Vec::new();
        }
        let memory = self.memory();
        self.states.drop_while(|_, state| state.touched.saturating_add(memory) <= seen.at);
        let mut firings = Vec::new();
        for (rule, setting) in &self.settings {
            if !rules::concerns(*rule, seen) {
                continue;
            }
            let subject = rules::subject(*rule, seen);
            let fresh = || State { touched: seen.at, rule: rules::fresh(*rule) };
            let state = self.states.touch(&(*rule, subject.clone()), fresh);
            state.touched = seen.at;
            if let Some(evidence) = state.rule.observe(seen, setting) {
                firings.push(Firing {
                    rule: *rule,
                    subject,
                    agent: seen.agent.clone(),
                    run: seen.run.clone(),
                    at: seen.at,
                    sequence: seen.sequence,
                    evidence,
                });
            }
        }
        firings
    }

    /// Returns the number of states.
    #[cfg(test)]
    fn states(&self) -> usize {
        self.states.len()
    }
}

#[cfg(test)]
mod tests {
    use policy::{Anomalies, AnomalyRule};

    use super::{Detector, MAX_STATES};
    use crate::rules::testing::{Tape, agent, ended, only, shipped, with_input};
    use crate::seen::{Denial, Ending, Kind, Subject, What};

    fn denied() -> What {
        What::Ended(ended(Kind::Command, Ending::Denied(Denial::Command)))
    }

    /// However many agents there are and whatever they are called, and however many calls they repeat.
    #[test]
    fn memory_is_bounded_for_ten_thousand_agents_and_hostile_names() {
        let mut detector = Detector::new(&Anomalies::default());
        let mut tape = Tape::default();
        for number in 0..10_000 {
            let who = format!("{number}\u{202e}\0{}", "x".repeat(100));
            tape.add(&who, What::Asked).add(&who, denied());
            tape.ended(&who, with_input(Kind::Read, &who));
            for seen in tape.seen.drain(..) {
                assert!(detector.observe(&seen).is_empty());
            }
        }
        assert!((10_000..=MAX_STATES).contains(&detector.states()), "{}", detector.states());
        for number in 0..MAX_STATES {
            for seen in tape.add(&format!("more {number}"), denied()).seen.drain(..) {
                detector.observe(&seen);
            }
        }
        assert_eq!(detector.states(), MAX_STATES);
        // What nobody has touched for as long as any rule remembers is forgotten.
        tape.wait(detector.memory()).add("late", What::Asked);
        detector.observe(&tape.seen[0]);
        assert_eq!(detector.states(), 1);
    }

    #[test]
    fn acknowledged_calls_are_not_counted_again() {
        let rule = AnomalyRule::DeniedCommands;
        let mut tape = Tape::default();
        tape.times(10, |tape| {
            tape.add("alice", denied());
        });
        tape.add("operator", What::Acknowledged(rule, Subject::Agent(agent("alice"))));
        tape.times(9, |tape| {
            tape.add("alice", denied());
        });
        assert_eq!(tape.fires(rule, &shipped(rule)), [10]);
        assert_eq!(tape.add("alice", denied()).fires(rule, &shipped(rule)), [10, 21]);
    }

    #[test]
    fn a_changed_rule_starts_empty_and_others_continue() {
        let rule = AnomalyRule::DeniedCommands;
        let mut detector = Detector::new(&only(rule, &shipped(rule)));
        let mut tape = Tape::default();
        tape.times(9, |tape| {
            tape.add("alice", denied());
        });
        let fired = tape.seen.iter().flat_map(|seen| detector.observe(seen)).count();
        let mut other = shipped(rule);
        other.action = policy::AnomalyAction::Stop;
        detector.configure(&only(rule, &other));
        assert_eq!((fired, detector.states()), (0, 1), "another action is the same counting");
        other.threshold = 5;
        detector.configure(&only(rule, &other));
        assert_eq!(detector.states(), 0);
    }
}
