//! Histories of events for tests.

use policy::{Anomalies, AnomalyAction, AnomalyRule, AnomalySetting};

use crate::detector::Detector;
use crate::seen::{Agent, Ended, Ending, Kind, Mark, Moment, Seen, What};

pub(crate) fn agent(id: &str) -> Agent {
    Agent { principal: "uid:1".into(), id: id.into() }
}

pub(crate) fn ended(kind: Kind, ending: Ending) -> Ended {
    Ended { kind, ending, input: None, files: Vec::new(), secret: false }
}

pub(crate) fn of_file(kind: Kind, file: &str) -> Ended {
    Ended { files: vec![Mark::of(&[file.as_bytes()])], ..ended(kind, Ending::Succeeded) }
}

pub(crate) fn with_input(kind: Kind, input: &str) -> Ended {
    Ended { input: Some(Mark::of(&[input.as_bytes()])), ..ended(kind, Ending::Succeeded) }
}

/// The history so far. Sequence numbers count from 1.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tape {
    pub(crate) now: Moment,
    pub(crate) seen: Vec<Seen>,
}

impl Tape {
    /// Lets time pass, milliseconds.
    pub(crate) fn wait(&mut self, millis: u64) -> &mut Self {
        self.now += millis;
        self
    }

    pub(crate) fn add(&mut self, who: &str, what: What) -> &mut Self {
        self.add_in(who, &format!("run of {who}"), what)
    }

    pub(crate) fn add_in(&mut self, who: &str, run: &str, what: What) -> &mut Self {
        let sequence = self.seen.len() as u64 + 1;
        self.seen.push(Seen { sequence, at: self.now, agent: agent(who), run: run.into(), what });
        self
    }

    pub(crate) fn ended(&mut self, who: &str, ended: Ended) -> &mut Self {
        self.add(who, What::Ended(ended))
    }

    pub(crate) fn times(&mut self, count: u64, mut each: impl FnMut(&mut Self)) -> &mut Self {
        for _ in 0..count {
            each(self);
        }
        self
    }

    /// Returns the sequence numbers at which a rule fires, with all others off.
    pub(crate) fn fires(&self, rule: AnomalyRule, setting: &AnomalySetting) -> Vec<u64> {
        let mut detector = Detector::new(&only(rule, setting));
        let mut fired = Vec::new();
        for seen in &self.seen {
            for firing in detector.observe(seen) {
                assert_eq!((firing.rule, firing.sequence), (rule, seen.sequence));
                assert!(firing.evidence.sequences.is_sorted(), "{:?}", firing.evidence);
                fired.push(firing.sequence);
            }
        }
        fired
    }
}

/// Returns settings with one rule on, and the others off.
pub(crate) fn only(rule: AnomalyRule, setting: &AnomalySetting) -> Anomalies {
    AnomalyRule::ALL.into_iter().fold(Anomalies::default(), |settings, other| {
        let off = AnomalySetting { action: AnomalyAction::Off, ..other.default_setting() };
        settings.with(other, if other == rule { setting.clone() } else { off })
    })
}

/// Returns the default setting.
pub(crate) fn shipped(rule: AnomalyRule) -> AnomalySetting {
    rule.default_setting()
}
