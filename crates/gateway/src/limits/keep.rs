//! Counters that survive the daemon: a copy of them at some record of the audit log, and the calls recorded since.
//!
//! The audit log has an intent for each counted call, so it alone is authoritative. Copies of the counters, made now
//! and then, only avoid reading a day of the log. For each counter, the copy names the head of the log *before* the
//! counter was copied. A call is counted before its intent is written, so everything up to that head is in the copy,
//! and [`Replay::intent`] adds the later calls. A call that was counted, but whose intent was not yet written at the
//! time of the copy, then counts twice. So after a crash no count is too low, and it is too high by at most the calls
//! that were in progress.
//! under way.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use timestamp::UnixMillis;

use super::counter::Counter;
use super::key::Key;
use super::series::Series;
use super::{BEFORE, Limits, Moment, Scope};
use policy::Span;

/// The copy of one counter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    pub scope: Scope,
    /// Record of the audit log up to which all intents are included.
    pub sequence: u64,
    /// Minute, hour and day: first moment, last moment and number of calls that count together.
    pub windows: [Vec<(UnixMillis, UnixMillis, u32)>; 3],
}

/// The copy of all counters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptCounters {
    /// Record of the audit log up to which all intents are included. Later ones may be, as each counter says.
    pub sequence: u64,
    /// Every counter in which a call counts.
    pub counters: Vec<Kept>,
}

/// A call that was counted, read from its intent.
#[derive(Debug, Clone, Copy)]
pub struct Counted<'a> {
    /// Number of the intent's record.
    pub sequence: u64,
    /// Time when the intent was written.
    pub at: UnixMillis,
    pub principal: &'a str,
    pub agent_id: &'a str,
    pub run_id: &'a str,
    pub operation: &'a str,
}

/// Adds the calls since the copy to counters that were restored from it.
#[derive(Debug)]
pub struct Replay<'l> {
    limits: &'l Limits,
    behind: HashMap<Scope, u64>,
}

impl Limits {
    /// Copies all counters in which a call counts. `head` returns the number of the audit log's last durable record.
    pub fn keep(&self, mut head: impl FnMut() -> u64) -> KeptCounters {
        let sequence = head();
        let (now, wall) = (self.moment(), self.clock.now());
        let at = |moment: Moment| UnixMillis(wall.0.saturating_sub(now.saturating_sub(moment)));
        let mut kept = Vec::new();
        self.table.each(now, head, |sequence, key, counter| {
            // The count of a throttle starts anew: the throttle itself is stored elsewhere.
            if matches!(key, Key::Throttled { .. }) {
                return;
            }
            let of = |series: &Series| {
                series.grains().map(|(first, last, count)| (at(first), at(last), count)).collect()
            };
            let windows = counter.windows().each_ref().map(of);
            kept.push(Kept { scope: key.to_scope(), sequence: *sequence, windows });
        });
        KeptCounters { sequence, counters: kept }
    }

    /// Restores the copy of an earlier daemon. The caller then replays the intents after its `sequence`.
    pub fn restore(&self, kept: KeptCounters) -> Replay<'_> {
        let now = self.moment();
        let mut behind = HashMap::with_capacity(kept.counters.len());
        for Kept { scope, sequence, windows } in kept.counters {
            let mut restored = [const { Vec::new() }; 3];
            for (restored, grains) in restored.iter_mut().zip(windows) {
                *restored = grains
                    .into_iter()
                    .map(|(first, last, count)| (self.past(first, now), self.past(last, now), count))
                    .collect();
            }
            let [minute, hour, day] = restored;
            let counter = Counter::restored([
                Series::restore(Span::Minute, minute),
                Series::restore(Span::Hour, hour),
                Series::restore(Span::Day, day),
            ]);
            self.table.put(scope.key(), counter, now);
            behind.insert(scope, sequence);
        }
        Replay { limits: self, behind }
    }

    /// Converts a wall-clock time to a moment. A time in the future becomes now.
    fn past(&self, at: UnixMillis, now: Moment) -> Moment {
        now.saturating_sub(self.clock.now().since(at).as_millis().try_into().unwrap_or(u64::MAX))
            .max(now.saturating_sub(BEFORE))
    }
}

/// Returns the name under which calls of this operation count. `None` if there is no such operation.
fn family(operation: &str) -> Option<&str> {
    if operations::Operation::NAMES.contains(&operation) {
        return Some(operation);
    }
    let (server, _) = operation.strip_prefix("mcp.")?.split_once('.')?;
    operations::is_mcp_server(server).then(|| &operation[.."mcp.".len() + server.len()])
}

impl Replay<'_> {
    /// Counts a call in each counter whose copy does not include it.
    pub fn intent(&self, call: Counted<'_>) {
        let now = self.limits.moment();
        let at = self.limits.past(call.at, now);
        if at + Span::Day.millis() + Span::Day.millis() / 16 <= now {
            return;
        }
        let Some(family) = family(call.operation) else { return };
        let operation = Scope::Operation {
            principal: call.principal.to_owned(),
            agent_id: call.agent_id.to_owned(),
            operation: family.to_owned(),
        };
        for scope in
            [operation, Scope::Run(call.run_id.to_owned()), Scope::Principal(call.principal.to_owned())]
        {
            if self.behind.get(&scope).is_none_or(|behind| call.sequence > *behind) {
                self.limits.table.add(scope.key(), at, now);
            }
        }
    }
}
