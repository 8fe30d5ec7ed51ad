//! Throttles: lower limits for an agent, for a while, set by an operator or because of an alert.

use std::hash::RandomState;

use hashbrown::{Equivalent, HashMap};
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use timestamp::UnixMillis;

use super::key::Key;
use super::{Agent, Limits, Moment};
use policy::{Limit, Quota};

/// A limit on all calls of an agent, besides the policy. It never allows more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Throttle {
    /// Most calls in any minute, of all operations together, counted from the start of the throttle. 0 allows none.
    pub per_minute: u32,
    pub until: UnixMillis,
}

impl Throttle {
    /// Returns the rest of a throttle that an earlier daemon wrote at `at`, for a daemon that restores it at `now`.
    ///
    /// A clock that was set back in between does not extend it beyond the time that was left at `at`.
    #[must_use]
    pub fn taken_up(self, at: UnixMillis, now: UnixMillis) -> Self {
        Self { until: self.until.min(now.after(self.until.since(at))), ..self }
    }
}

/// Source of a throttle. An agent has at most one throttle of each source, and the stricter one applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ThrottleSource {
    Operator,
    /// An alert. Several alerts share one throttle.
    Alert,
}

/// A throttle on the clock of rate limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Imposed {
    pub(super) per_minute: u32,
    pub(super) until: Moment,
}

impl Imposed {
    pub(super) fn quota(&self) -> Quota {
        // The counter does not handle 0; the caller refuses all calls then.
        let minute = if self.per_minute == 0 { Limit::Unlimited } else { Limit::Calls(self.per_minute) };
        Quota { minute, hour: Limit::Unlimited, day: Limit::Unlimited }
    }
}

/// The throttles of one agent, by source.
#[derive(Debug, Default, Clone, Copy)]
struct OfAgent {
    operator: Option<Imposed>,
    alert: Option<Imposed>,
}

impl OfAgent {
    fn of(&mut self, source: ThrottleSource) -> &mut Option<Imposed> {
        match source {
            ThrottleSource::Operator => &mut self.operator,
            ThrottleSource::Alert => &mut self.alert,
        }
    }

    /// Returns the throttles that are in force.
    fn in_force(self, now: Moment) -> impl Iterator<Item = (ThrottleSource, Imposed)> {
        let all = [(ThrottleSource::Operator, self.operator), (ThrottleSource::Alert, self.alert)];
        let set = all.into_iter().filter_map(|(source, throttle)| Some((source, throttle?)));
        set.filter(move |(_, throttle)| throttle.until > now)
    }
}

/// The throttles by agent.
#[derive(Debug, Default)]
pub(super) struct Throttles(RwLock<HashMap<Agent, OfAgent, RandomState>>);

/// An [`Agent`] that borrows the names of a call.
#[derive(Hash)]
struct Named<'a> {
    principal: &'a str,
    id: &'a str,
}

impl Equivalent<Agent> for Named<'_> {
    fn equivalent(&self, agent: &Agent) -> bool {
        let Agent { principal, id } = agent;
        self.id == id && self.principal == principal
    }
}

impl Throttles {
    /// Returns the agent's stricter throttle. While no agent is throttled this costs almost nothing.
    pub(super) fn of(&self, principal: &str, id: &str, now: Moment) -> Option<Imposed> {
        let throttles = self.0.read();
        let in_force = throttles.get(&Named { principal, id })?.in_force(now);
        in_force.map(|(_, throttle)| throttle).min_by_key(|throttle| throttle.per_minute)
    }
}

impl Limits {
    /// Throttles an agent.
    ///
    /// If this source throttles it already, the lower number and the later end apply, so that no event during a throttle
    /// makes it milder. A throttle that has ended already changes nothing.
    pub fn throttle(&self, source: ThrottleSource, agent: &Agent, throttle: Throttle) -> Throttle {
        let (now, wall) = (self.moment(), self.clock.now());
        let mut throttles = self.throttles.0.write();
        throttles.retain(|_, of_agent| of_agent.in_force(now).next().is_some());
        let mut imposed = Imposed {
            per_minute: throttle.per_minute,
            until: now.saturating_add(throttle.until.0.saturating_sub(wall.0)),
        };
        if !throttles.contains_key(agent) {
            self.table.remove(Key::Throttled { principal: &agent.principal, agent_id: &agent.id });
        }
        let of_agent = throttles.entry(agent.clone()).or_default().of(source);
        if let Some(before) = of_agent.filter(|before| before.until > now) {
            imposed.per_minute = imposed.per_minute.min(before.per_minute);
            imposed.until = imposed.until.max(before.until);
        }
        *of_agent = Some(imposed);
        Throttle { per_minute: imposed.per_minute, until: UnixMillis(wall.0 + (imposed.until - now)) }
    }

    /// Lifts an agent's throttle of this source. Returns true if there was one.
    pub fn lift_throttle(&self, source: ThrottleSource, agent: &Agent) -> bool {
        let now = self.moment();
        let mut throttles = self.throttles.0.write();
        let lifted = throttles.get_mut(agent).and_then(|of_agent| of_agent.of(source).take());
        throttles.retain(|_, of_agent| of_agent.in_force(now).next().is_some());
        lifted.is_some_and(|throttle| throttle.until > now)
    }

    /// Returns the throttles in force, sorted by agent and source.
    pub fn throttles(&self) -> Vec<(Agent, ThrottleSource, Throttle)> {
        let (now, wall) = (self.moment(), self.clock.now());
        let throttles = self.throttles.0.read();
        let shown = |(agent, of_agent): (&Agent, &OfAgent)| {
            let agent = agent.clone();
            of_agent.in_force(now).map(move |(source, imposed)| {
                let until = UnixMillis(wall.0.saturating_add(imposed.until - now));
                (agent.clone(), source, Throttle { per_minute: imposed.per_minute, until })
            })
        };
        let mut list: Vec<_> = throttles.iter().flat_map(shown).collect();
        list.sort_by(|(one, by, _), (other, other_by, _)| (one, by).cmp(&(other, other_by)));
        list
    }
}
