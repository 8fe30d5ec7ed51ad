//! Expands grants to roles and teams into grants to agents.
//!
//! An agent's role and teams are known only when it calls. So the rules see the grant once, before the agent's next call.

use std::sync::Arc;

use super::recent::Recent;
use super::seen::{Holder, Moment, Seen, What};

/// Most roles and teams whose last grant is remembered, and most agents whose grants were shown.
const MAX_HOLDERS: usize = 1_024;
const MAX_AGENTS: usize = 16_384;

pub(super) struct GrantExpansion {
    /// Time and record of the last grant to each.
    given: Recent<Holder, (Moment, u64)>,
    /// The last record of a grant that the rules saw for each agent.
    told: Recent<Arc<str>, u64>,
    newest: u64,
}

impl GrantExpansion {
    pub(super) fn new() -> Self {
        Self { given: Recent::new(MAX_HOLDERS), told: Recent::new(MAX_AGENTS), newest: 0 }
    }

    /// Returns the event that the rules have to see before `seen`: a grant to the agent through its role or one of its teams.
    pub(super) fn before(
        &mut self,
        seen: &Seen,
        role: Option<&str>,
        teams: impl FnOnce(&str) -> Vec<Arc<str>>,
    ) -> Option<Seen> {
        if let What::GivenTo(holder) = &seen.what {
            let last = (seen.at, seen.sequence);
            *self.given.touch(holder, || last) = last;
            self.newest = seen.sequence;
            return None;
        }
        seen.ended()?;
        let agent = &seen.agent.id;
        if self.newest == 0 || self.told.get(agent).is_some_and(|told| *told >= self.newest) {
            return None;
        }
        let roles = role.map(|role| Holder::Role(role.into())).into_iter();
        let held = roles.chain(teams(agent).into_iter().map(Holder::Team));
        let last = held.filter_map(|holder| self.given.get(&holder).copied()).max_by_key(|(_, at)| *at);
        let told = std::mem::replace(self.told.touch(agent, || 0), self.newest);
        let (at, sequence) = last.filter(|(_, sequence)| *sequence > told)?;
        let (agent, run) = (seen.agent.clone(), seen.run.clone());
        Some(Seen { sequence, at, agent, run, what: What::Granted })
    }
}

#[cfg(test)]
mod tests {
    use policy::AnomalyRule;

    use super::*;
    use crate::detector::Detector;
    use crate::rules::testing::{Tape, agent, ended, only, shipped};
    use crate::seen::{Ending, Kind};

    /// Numbers of the events at which `grant_then_exec` fires, where alice's runs have the role `worker` and she is of the
    /// team `core`.
    fn fires(tape: &Tape) -> Vec<u64> {
        let rule = AnomalyRule::GrantThenExec;
        let mut detector = Detector::new(&only(rule, &shipped(rule)));
        let mut grants = GrantExpansion::new();
        let mut fired = Vec::new();
        for seen in &tape.seen {
            let of_core = |agent: &str| if agent == "alice" { vec!["core".into()] } else { Vec::new() };
            let gift = grants.before(seen, Some("worker").filter(|_| &*seen.agent.id == "alice"), of_core);
            for seen in gift.iter().chain([seen]) {
                fired.extend(detector.observe(seen).iter().map(|firing| firing.sequence));
            }
        }
        fired
    }

    fn command() -> What {
        What::Ended(ended(Kind::Command, Ending::Succeeded))
    }

    #[test]
    fn a_grant_to_a_role_or_a_team_counts_only_for_its_agents() {
        let threshold = shipped(AnomalyRule::GrantThenExec).threshold;
        for holder in [Holder::Role("worker".into()), Holder::Team("core".into())] {
            let mut tape = Tape::default();
            tape.add("operator", What::GivenTo(holder));
            for _ in 0..threshold {
                tape.add("alice", command()).add("bob", command());
            }
            let last = tape.seen[tape.seen.len() - 2].sequence;
            assert_eq!(fires(&tape), [last], "alice alone");
            assert_eq!(tape.seen[tape.seen.len() - 2].agent, agent("alice"));
        }
        for holder in [Holder::Role("other".into()), Holder::Team("other".into())] {
            let mut tape = Tape::default();
            tape.add("operator", What::GivenTo(holder));
            for _ in 0..2 * threshold {
                tape.add("alice", command());
            }
            assert!(fires(&tape).is_empty());
        }
    }

    #[test]
    fn rules_learn_of_each_grant_once() {
        let mut grants = GrantExpansion::new();
        let mut tape = Tape::default();
        let role = || What::GivenTo(Holder::Role("worker".into()));
        tape.add("operator", role()).add("alice", command()).add("alice", command());
        tape.add("operator", role()).add("operator", role()).add("alice", command());
        let told: Vec<_> =
            tape.seen.iter().filter_map(|seen| grants.before(seen, Some("worker"), |_| Vec::new())).collect();
        assert_eq!(
            told.iter().map(|gift| gift.sequence).collect::<Vec<_>>(),
            [tape.seen[0].sequence, tape.seen[4].sequence]
        );
        assert!(told.iter().all(|gift| gift.what == What::Granted && gift.agent == agent("alice")));
    }
}
