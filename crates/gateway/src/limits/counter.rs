//! The calls of one agent's operation, one run or one principal, in all windows.

use serde::{Deserialize, Serialize};

use super::series::Series;
use policy::{Limit, Quota, Span};

/// The calls that a counter counts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// One operation of one agent. Agents of different principals are different agents, whatever their names.
    Operation {
        /// The principal that made the calls.
        principal: String,
        agent_id: String,
        /// The operation's canonical name.
        operation: String,
    },
    Run(String),
    Principal(String),
    /// All calls of a throttled agent since its throttle began.
    Throttled(Agent),
}

/// An agent of a principal. Principals choose the names, so the same name at two principals is two agents.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Agent {
    /// The principal that makes the agent's runs.
    pub principal: String,
    pub id: String,
}

/// The windows of one scope.
#[derive(Debug, Clone, Default)]
pub(super) struct Counter {
    windows: [Series; 3],
}

/// A full window.
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

    /// Returns true if no call in it counts. The longest window ends last.
    pub(super) fn is_idle(&self) -> bool {
        self.windows.iter().all(|series| series.count() == 0)
    }

    /// Returns the full window that admits a call last.
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

    /// Returns, for each window, the calls that count, the time when one more fits under `limit`, and the time when
    /// it is empty.
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
