//! A bucket of tokens that limits how many runs all principals create, and shares them evenly between their tenants.
//!
//! A tenant alone has all tokens. While several ask, a tenant that has had its part of the last minute leaves a token for each of the
//! others that has had less. So a greedy tenant waits for the others, and a tenant that comes anew waits for one token.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

const MINUTE: Duration = Duration::from_secs(60);
/// Most tenants that are counted apart. Further ones count as one.
const APART: usize = 1_024;

/// A bucket with as many tokens as runs may be created in a minute. A token comes back at equal intervals.
#[derive(Debug)]
pub(crate) struct Throttle {
    per_minute: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Moment at which the bucket is full again, in place of a number of tokens.
    full_at: Option<Instant>,
    /// Tenants that have asked within the last minute.
    tenants: BTreeMap<String, Tenant>,
}

#[derive(Debug)]
struct Tenant {
    asked: Instant,
    /// Moments of the last minute at which it took a token.
    taken: VecDeque<Instant>,
}

/// A token that cannot be taken yet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    /// Time until it can be taken, if no other request comes before.
    pub(crate) time: Duration,
    /// Tokens that have to stay for other tenants.
    pub(crate) left_to_others: u32,
}

impl Throttle {
    pub(crate) fn new(per_minute: u64) -> Self {
        let per_minute = u32::try_from(per_minute).unwrap_or(u32::MAX).max(1);
        Self { per_minute, state: Mutex::default() }
    }

    pub(crate) fn per_minute(&self) -> u32 {
        self.per_minute
    }

    /// Takes a token for a tenant, or returns the time until there is one.
    pub(crate) fn take(&self, tenant: &str, now: Instant) -> Result<(), Wait> {
        let mut state = self.state.lock();
        let tenant = state.asks(tenant, now);
        let left_to_others = state.owed_to_others(&tenant, self.per_minute);
        let interval = MINUTE / self.per_minute;
        let next = state.full_at.map_or(now, |full_at| full_at.max(now)) + interval;
        let least = next + interval * left_to_others;
        match least.saturating_duration_since(now).checked_sub(MINUTE) {
            Some(time) if !time.is_zero() => Err(Wait { time, left_to_others }),
            _ => {
                state.full_at = Some(next);
                if let Some(tenant) = state.tenants.get_mut(&tenant) {
                    tenant.taken.push_back(now);
                }
                Ok(())
            }
        }
    }
}

impl State {
    /// Notes that a tenant asks, and returns the name under which it is counted.
    fn asks(&mut self, tenant: &str, now: Instant) -> String {
        let is_recent = |moment: Instant| now.saturating_duration_since(moment) < MINUTE;
        self.tenants.retain(|_, tenant| is_recent(tenant.asked));
        for tenant in self.tenants.values_mut() {
            while tenant.taken.front().is_some_and(|moment| !is_recent(*moment)) {
                tenant.taken.pop_front();
            }
        }
        let is_apart = self.tenants.len() < APART || self.tenants.contains_key(tenant);
        let name = if is_apart { tenant } else { "" };
        let entry = self.tenants.entry(name.to_owned());
        entry.or_insert_with(|| Tenant { asked: now, taken: VecDeque::new() }).asked = now;
        name.to_owned()
    }

    /// Returns the tokens that a tenant leaves for those that have had less than their part: none if it has had less itself.
    ///
    /// A full bucket is for all, however many tenants have asked.
    fn owed_to_others(&self, tenant: &str, per_minute: u32) -> u32 {
        let part = (per_minute as usize / self.tenants.len().max(1)).max(1);
        let has_less = |tenant: &Tenant| tenant.taken.len() < part;
        if self.tenants.get(tenant).is_none_or(has_less) {
            return 0;
        }
        let others = self.tenants.values().filter(|tenant| has_less(tenant)).count();
        u32::try_from(others).unwrap_or(u32::MAX).min(per_minute - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(seconds: u64, left_to_others: u32) -> Result<(), Wait> {
        Err(Wait { time: Duration::from_secs(seconds), left_to_others })
    }

    #[test]
    fn a_minutes_worth_at_once_and_then_one_at_a_time() {
        let (throttle, start) = (Throttle::new(6), Instant::now());
        let take = |millis| throttle.take("a", start + Duration::from_millis(millis));
        assert!((0..6).all(|_| take(0).is_ok()));
        assert_eq!(take(0), wait(10, 0));
        // A refusal takes nothing.
        assert_eq!(take(4_000), wait(6, 0));
        assert_eq!(take(10_000), Ok(()));
        assert_eq!(take(10_000), wait(10, 0));
        // A long rest fills it, and no more than that.
        assert!((0..6).all(|_| take(600_000).is_ok()));
        assert!(take(600_000).is_err());
    }

    #[test]
    fn no_minute_after_the_first_has_more_than_its_share() {
        let (throttle, start) = (Throttle::new(30), Instant::now());
        let taken = |from: u64| {
            let tries = (from..from + 60_000).step_by(100);
            let at = |millis| start + Duration::from_millis(millis);
            tries.filter(|millis| throttle.take("a", at(*millis)).is_ok()).count()
        };
        assert_eq!((taken(0), taken(60_000), taken(120_000)), (59, 30, 30));
    }

    #[test]
    fn a_greedy_tenant_leaves_the_next_tokens_to_those_that_have_had_less() {
        let (throttle, start) = (Throttle::new(6), Instant::now());
        let take = |tenant: &str, seconds| throttle.take(tenant, start + Duration::from_secs(seconds));
        assert!((0..6).all(|_| take("greedy", 0).is_ok()));
        assert_eq!(take("modest", 0), wait(10, 0));
        // The greedy one is first at the next token, and may not have it.
        assert_eq!(take("greedy", 10), wait(10, 1));
        assert_eq!(take("modest", 10), Ok(()));
        assert_eq!(take("greedy", 20), wait(10, 1));
        assert_eq!(take("modest", 20), Ok(()));
        assert_eq!(take("modest", 30), Ok(()));
        // Both have had their parts of this minute.
        assert_eq!(take("greedy", 40), Ok(()));
        // A tenant that no longer asks is forgotten, and the other has all again.
        assert!((0..6).all(|_| take("greedy", 600).is_ok()));
    }

    #[test]
    fn a_tenant_that_asks_all_the_time_takes_no_more_than_its_part_from_three_modest_ones() {
        let (throttle, start) = (Throttle::new(60), Instant::now());
        let mut taken = [0; 4];
        for millis in (0..240_000_u64).step_by(50) {
            let at = start + Duration::from_millis(millis);
            // Ten requests of the greedy one before each of the others, which ask twelve times a minute.
            let greedy = (0..10).filter(|_| throttle.take("greedy", at).is_ok()).count();
            for tenant in 1..4_u64 {
                if millis % 5_000 == tenant * 50 {
                    let is_made = throttle.take(&tenant.to_string(), at).is_ok();
                    taken[usize::try_from(tenant).unwrap()] += usize::from(is_made && millis >= 60_000);
                }
            }
            taken[0] += if millis >= 60_000 { greedy } else { 0 };
        }
        let [greedy, modest @ ..] = taken;
        assert!(modest.iter().all(|taken| *taken == 36), "{taken:?}");
        // No token is left over for that: 180 came in three minutes.
        assert!((70..=74).contains(&greedy), "{taken:?}");
    }

    #[test]
    fn many_tenants_that_ask_once_neither_starve_one_nor_take_memory() {
        let (throttle, now) = (Throttle::new(2), Instant::now());
        let at = |seconds| now + Duration::from_secs(seconds);
        assert!(throttle.take("a", at(0)).is_ok());
        for number in 0..2 * APART {
            let _ = throttle.take(&format!("t{number}"), at(1));
        }
        assert!(throttle.state.lock().tenants.len() <= APART + 1);
        // A tenant that has had its part waits until the bucket is full, and no longer.
        assert_eq!(throttle.take("t0", at(59)), wait(1, 1));
        assert_eq!(throttle.take("t0", at(60)), Ok(()));
    }
}
