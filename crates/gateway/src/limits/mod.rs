//! Rate limits: calls of an agent by operation, of a run and of a principal, in sliding windows of a minute, an hour
//! and a day. This check comes between permission and approval.
//!
//! Invariants:
//!
//! - *Never one too many*: no stretch of time as long as a window has more admitted calls than its limit, however many
//!   callers there are at once. *Never one too few*: a call is refused only if a window is full. A call counts at most
//!   a thirty-second of the window longer than it has to ([`series`] explains why).
//! - *All or nothing*: a call that one window refuses uses up none of the others. A call that validation or permission
//!   refused before uses up nothing. A call that needs consent counts once, when it asks, because asking is what loads
//!   a daemon and its reviewers. It does not count again when it runs, and is not given back without consent.
//! - *Exact answers*: [`Exceeded::retry_after`] is the time after which the same call is admitted if no other call
//!   comes first; a millisecond earlier it is refused.
//! - *No memory of limits*: windows count whatever the limits are, and each call is compared with the policy in force.
//!   So a new policy applies at once to earlier calls, and a profile without a limit counts for one with a limit.
//! - *Clock jumps*: windows count in [`Clock::uptime`], so setting the wall clock changes nothing while the daemon
//!   lives. Counts of an earlier daemon are restored by the wall clock. A count in the future is taken as of now, so a
//!   clock that was set back forgives nothing. If the clock was set forward while no daemon ran, that time counts as
//!   passed. The same applies to throttles, which a clock that was set back does not extend.
//! - *Bounded memory*: at most 2 KiB a counter and 262,144 counters. A counter is dropped when no call in it counts any
//!   longer. Each new counter examines a few others, so that their number does not double meanwhile.
//!
//! There are 64 shards of counters with one lock each, taken in order: measured with `tests/bench.sh --lane gateway`.

pub mod concurrency;
mod counter;
mod keep;
mod key;
mod series;
mod shard;
mod table;
mod throttle;
mod usage;

#[cfg(test)]
mod property;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use counter::{Agent, Scope};
pub use keep::{Counted, Kept, KeptCounters, Replay};
pub use throttle::{Throttle, ThrottleSource};
pub use usage::{Usage, Window};

use counter::{Counter, Full};
use key::Key;
use policy::{Caller, Quota, RateLimits, Span};
use table::{NotCounted, Table};
use throttle::Throttles;
use timestamp::Clock;

/// Milliseconds since the daemon started plus [`BEFORE`], which leaves space for two days of an earlier daemon's counts.
type Moment = u64;

const BEFORE: Moment = 2 * Span::Day.millis();

/// The counters, and the throttles in force.
#[derive(Debug)]
pub struct Limits {
    clock: Arc<dyn Clock>,
    table: Table,
    throttles: Throttles,
}

/// A call that comes too soon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exceeded {
    pub scope: Scope,
    /// Key of the limit in the policy, such as `operations.read`.
    pub key: String,
    /// The full window; if several are full, the one that admits a call last.
    pub span: Span,
    /// Most calls in that window.
    pub limit: u32,
    /// Time after which the call is admitted, if no other comes first.
    pub retry_after: Duration,
}

/// Reason why a call was not counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotAdmitted {
    /// The call comes too soon.
    Exceeded(Exceeded),
    /// Within a day, more agents, runs and principals were active than the daemon can count.
    Crowded,
}

impl Limits {
    /// Makes counters without calls.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, table: Table::new(), throttles: Throttles::default() }
    }

    /// Counts one call, or returns the reason why it is refused.
    pub(crate) fn admit(
        &self,
        limits: &RateLimits,
        caller: &Caller,
        operation: &str,
    ) -> Result<(), NotAdmitted> {
        let now = self.moment();
        let (key, of_operation) = limits.operation(operation);
        let Caller { principal, agent_id, run_id, .. } = caller;
        let scopes = [
            Key::Operation { principal, agent_id, operation },
            Key::Run(run_id),
            Key::Principal(principal),
            Key::Throttled { principal, agent_id },
        ];
        let [own, run, all, _] = scopes;
        let counted = match self.throttles.of(principal, agent_id, now) {
            None => {
                let quotas = [of_operation, limits.run, limits.principal];
                let check = |counters: [Option<&Counter>; 3]| last(full(counters, &quotas));
                self.table.count([own, run, all], now, check)
            }
            Some(throttle) => {
                let quotas = [of_operation, limits.run, limits.principal, throttle.quota()];
                let check = |counters: [Option<&Counter>; 4]| {
                    let full = full(counters, &quotas).map(|(index, mut full)| {
                        if index == 3 {
                            // The throttle ends then.
                            full.room_at = full.room_at.min(throttle.until);
                        }
                        (index, full)
                    });
                    let none = Full { span: Span::Minute, limit: 0, room_at: throttle.until };
                    last(full.chain((throttle.per_minute == 0).then_some((3, none))))
                };
                self.table.count(scopes, now, check)
            }
        };
        counted.map_err(|refused| match refused {
            NotCounted::Crowded => NotAdmitted::Crowded,
            NotCounted::Refused((index, full)) => NotAdmitted::Exceeded(Exceeded {
                key: match index {
                    0 => format!("operations.{key}"),
                    1 => "run".to_owned(),
                    2 => "principal".to_owned(),
                    _ => "throttle".to_owned(),
                },
                scope: scopes[index].to_scope(),
                span: full.span,
                limit: full.limit,
                retry_after: Duration::from_millis(full.room_at.saturating_sub(now)),
            }),
        })
    }

    fn moment(&self) -> Moment {
        BEFORE + u64::try_from(self.clock.uptime().as_millis()).unwrap_or(u64::MAX / 2)
    }
}

/// Returns the full counters, each with its index.
fn full<'c, const N: usize>(
    counters: [Option<&'c Counter>; N],
    quotas: &'c [Quota; N],
) -> impl Iterator<Item = (usize, Full)> + 'c {
    let full = |(counter, quota): (Option<&Counter>, &Quota)| match counter {
        Some(counter) => counter.full(quota),
        None => Counter::default().full(quota),
    };
    let each = counters.into_iter().zip(quotas).map(full).enumerate();
    each.filter_map(|(index, full)| Some((index, full?)))
}

/// Fails if any counter is full, with the one that admits a call last.
fn last(full: impl Iterator<Item = (usize, Full)>) -> Result<(), (usize, Full)> {
    full.max_by_key(|(_, full)| full.room_at).map_or(Ok(()), Err)
}

/// A message that an agent can act on.
impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scope, span, limit, retry_after, .. } = self;
        f.write_str("rate limit: ")?;
        match scope {
            Scope::Operation { operation, .. } => {
                write!(f, "this agent may make {limit} `{operation}` calls")
            }
            Scope::Run(_) => write!(f, "a run may make {limit} calls"),
            Scope::Principal(_) => write!(f, "all agents of one principal together may make {limit} calls"),
            Scope::Throttled(_) => write!(f, "this agent is throttled and may make {limit} calls"),
        }?;
        write!(f, " in any {}; try again in {}", span.as_str(), in_words(*retry_after))?;
        match scope {
            Scope::Operation { .. } | Scope::Run(_) => f.write_str(", or do more with each call"),
            Scope::Principal(_) | Scope::Throttled(_) => Ok(()),
        }
    }
}

/// Formats a time, rounded up, so that a caller who waits that long is not too early.
fn in_words(time: Duration) -> String {
    let seconds = time.as_millis().div_ceil(1_000);
    match seconds {
        0..=120 => format!("{seconds} s"),
        121..=7_200 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h", seconds.div_ceil(3_600)),
    }
}
