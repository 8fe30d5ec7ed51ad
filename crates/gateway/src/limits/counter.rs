//! What one agent's operation, one run or one principal has used: all of its windows.

use serde::{Deserialize, Serialize};

use super::quota::{Limit, Quota, Span};
use super::series::Series;

/// Whose calls a counter counts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// One operation of one agent. Agents of different principals are different agents, whatever their names.
    Operation {
        /// Who made the calls.
        principal: String,
        agent_id: String,
        /// The operation's canonical name.
        operation: String,
    },
    Run(String),
    Principal(String),
    /// All calls of a throttled agent, since it is throttled.
    Throttled(Agent),
}

/// An agent, as a principal runs it: names are the principals' to give, so that the same name twice is two agents.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Agent {
    /// Who makes its runs.
    pub principal: String,
    pub id: String,
}

/// The windows of one scope.
#[derive(Debug, Clone, Default)]
pub(super) struct Counter {
    windows: [Series; 3],
}

/// A window without room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full {
    pub(super) span: Span,
    pub(super) limit: u32,
    pub(super) room_at: u64,
}

impl Counter {
    pub(super) fn restored(windows: [Series; 3]) -> Self {
        Self { windows }
    }

    pub(super) fn forget(&mut self, now: u64) {
        for (span, series) in Span::ALL.into_iter().zip(&mut self.windows) {
            series.forget(span, now);
        }
    }

    /// Nothing in it counts any more. The longest window ends last.
    pub(super) fn is_idle(&self) -> bool {
        self.windows.iter().all(|series| series.count() == 0)
    }

    /// Of the windows without room the one that will have room last.
    pub(super) fn full(&self, quota: &Quota) -> Option<Full> {
        let full = Span::ALL.into_iter().zip(&self.windows).filter_map(|(span, series)| {
            let limit = quota.of(span);
            let room_at = series.room_at(span, limit)?;
            Some(Full { span, limit: limit.calls()?, room_at })
        });
        full.max_by_key(|full| full.room_at)
    }

    pub(super) fn add(&mut self, at: u64) {
        for (span, series) in Span::ALL.into_iter().zip(&mut self.windows) {
            series.add(span, at);
        }
    }

    /// Each window: calls that count, when there is room for one more under `limit`, when nothing counts any more.
    pub(super) fn used(&self, limit: impl Fn(Span) -> Limit) -> [(u32, Option<u64>, Option<u64>); 3] {
        let of = |span: Span| &self.windows[span as usize];
        Span::ALL.map(|span| {
            let series = of(span);
            (series.count(), series.room_at(span, limit(span)), series.empty_at(span))
        })
    }

    pub(super) fn windows(&self) -> &[Series; 3] {
        &self.windows
    }
}
