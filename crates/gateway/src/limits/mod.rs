//! How often: calls of an agent by operation, of a run and of a principal, in sliding windows of a minute, an hour and
//! a day. The check between permission and approval.
//!
//! What holds:
//!
//! - *Never one too many*: no stretch of time as long as a window has more admitted calls than its limit, however many
//!   callers there are at once. *Never one too few*: a call is refused only where a window is full; a call counts at most
//!   a thirty-second of the window longer than it has to ([`series`] says why).
//! - *All or nothing*: a call that one window refuses uses up none of the others. A call that validation or
//!   permission refused before uses up nothing. A call that needs consent counts once, when it asks, because asking
//!   is what loads a daemon and its reviewers. It does not count again when it runs, and is not given back without
//!   consent.
//! - *True answers*: [`Exceeded::retry_after`] is the time after which the same call is admitted if nobody else has
//!   come before; a millisecond earlier it is refused.
//! - *No memory of limits*: windows count whatever the limits are, and each call is compared with the policy in
//!   force. So a new policy applies at once to earlier calls, and a profile without a limit counts for one with a
//!   limit.
//! - *Clock jumps*: windows count in [`Clock::uptime`], so setting the wall clock changes nothing while the daemon
//!   lives. Counts of an earlier daemon return by the wall clock. A count in the future is taken as of now, so a
//!   clock that was set back forgives nothing. If the clock was set forward while no daemon ran, that time counts as
//!   passed. The same applies to throttles, which a clock that was set back does not extend.
//! - *Bounded memory*: at most 2 KiB a counter and 262,144 counters. A counter is dropped when nothing in it counts
//!   any more. Each new counter examines a few others, so that their number does not double meanwhile.
//!
//! One lock each for 64 shards of counters, taken in order: measured with `tests/bench.sh --lane gateway`.

pub mod concurrency;
mod counter;
mod keep;
mod key;
mod quota;
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
pub use quota::{Limit, Quota, RateLimits, Span};
pub(crate) use quota::{STRICT_PRINCIPAL, STRICT_RUN, strict};
pub use throttle::Throttle;
pub use usage::{Usage, Window};

use crate::caller::Caller;
use crate::clock::Clock;
use counter::{Counter, Full};
use key::Key;
use table::{NotCounted, Table};
use throttle::Throttles;

/// Milliseconds in which limits count: uptime, and before it room for two days that an earlier daemon has counted.
type Moment = u64;

const BEFORE: Moment = 2 * Span::Day.millis();

/// The counters, and what throttles were imposed.
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
    /// Where the policy has it, such as `operations.read`.
    pub key: String,
    /// Which window; of several the one that has room last.
    pub span: Span,
    /// Most calls in it.
    pub limit: u32,
    /// After which it is admitted, if no other comes before.
    pub retry_after: Duration,
}

/// Why a call was not counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotAdmitted {
    /// It comes too soon.
    Exceeded(Exceeded),
    /// More agents, runs and principals than the daemon keeps count of were active within a day.
    Crowded,
}

impl Limits {
    /// Nothing counted so far.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, table: Table::new(), throttles: Throttles::default() }
    }

    /// Counts one call, or says why it is not to be.
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
                            // Then there is no throttle any more.
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

/// The counters without room, each with its place among them.
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

/// `Err`, where any has no room: the one that will have it last.
fn last(full: impl Iterator<Item = (usize, Full)>) -> Result<(), (usize, Full)> {
    full.max_by_key(|(_, full)| full.room_at).map_or(Ok(()), Err)
}

/// What an agent can do something with.
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

/// Rounded up, so that a caller who waits so long is not too early.
fn in_words(time: Duration) -> String {
    let seconds = time.as_millis().div_ceil(1_000);
    match seconds {
        0..=120 => format!("{seconds} s"),
        121..=7_200 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h", seconds.div_ceil(3_600)),
    }
}
