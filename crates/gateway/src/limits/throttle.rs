//! Throttles: lower limits for an agent, for a while, because of an alert.

use std::hash::RandomState;

use hashbrown::{Equivalent, HashMap};
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use timestamp::UnixMillis;

use super::key::Key;
use super::quota::{Limit, Quota};
use super::{Agent, Limits, Moment};

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

/// The throttles by agent.
#[derive(Debug, Default)]
pub(super) struct Throttles(RwLock<HashMap<Agent, Imposed, RandomState>>);

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
    /// Returns the agent's throttle. While no agent is throttled this costs almost nothing.
    pub(super) fn of(&self, principal: &str, id: &str, now: Moment) -> Option<Imposed> {
        let throttles = self.0.read();
        throttles.get(&Named { principal, id }).filter(|throttle| throttle.until > now).copied()
    }
}

impl Limits {
    /// Throttles an agent.
    ///
    /// If it is throttled already, the lower number and the later end apply, so that no event during a throttle makes
    /// it milder. A throttle that has ended already changes nothing.
    pub fn throttle(&self, agent: &Agent, throttle: Throttle) -> Throttle {
        let (now, wall) = (self.moment(), self.clock.now());
        let mut throttles = self.throttles.0.write();
        throttles.retain(|_, throttle| throttle.until > now);
        let mut imposed = Imposed {
            per_minute: throttle.per_minute,
            until: now.saturating_add(throttle.until.0.saturating_sub(wall.0)),
        };
        if let Some(before) = throttles.get(agent) {
            imposed.per_minute = imposed.per_minute.min(before.per_minute);
            imposed.until = imposed.until.max(before.until);
        } else {
            self.table.remove(Key::Throttled { principal: &agent.principal, agent_id: &agent.id });
        }
        if imposed.until > now {
            throttles.insert(agent.clone(), imposed);
        }
        Throttle { per_minute: imposed.per_minute, until: UnixMillis(wall.0 + (imposed.until - now)) }
    }

    /// Lifts an agent's throttle. Returns true if there was one.
    pub fn lift_throttle(&self, agent: &Agent) -> bool {
        let now = self.moment();
        let mut throttles = self.throttles.0.write();
        throttles.remove(agent).is_some_and(|throttle| throttle.until > now)
    }

    /// Returns the throttles in force, sorted by agent.
    pub fn throttles(&self) -> Vec<(Agent, Throttle)> {
        let (now, wall) = (self.moment(), self.clock.now());
        let throttles = self.throttles.0.read();
        let in_force = throttles.iter().filter(|(_, throttle)| throttle.until > now);
        let mut list: Vec<_> = in_force
            .map(|(agent, imposed)| {
                let until = UnixMillis(wall.0.saturating_add(imposed.until - now));
                (agent.clone(), Throttle { per_minute: imposed.per_minute, until })
            })
            .collect();
        list.sort_by(|(one, _), (other, _)| one.cmp(other));
        list
    }
}
