//! Containers of the pool that each tenant has taken in the last minute.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);

/// Moments of the last minute at which tenants took a container.
#[derive(Debug, Default)]
pub(crate) struct Shares(BTreeMap<String, VecDeque<Instant>>);

impl Shares {
    /// Returns the number of containers that a tenant took in the minute before `now`.
    pub(crate) fn taken(&mut self, tenant: &str, now: Instant) -> u64 {
        self.forget(now);
        self.0.get(tenant).map_or(0, |taken| taken.len() as u64)
    }

    /// Counts one more.
    pub(crate) fn add(&mut self, tenant: &str, now: Instant) {
        self.0.entry(tenant.to_owned()).or_default().push_back(now);
    }

    /// Removes what is older than a minute, and tenants without any.
    fn forget(&mut self, now: Instant) {
        for taken in self.0.values_mut() {
            while taken.front().is_some_and(|then| now.saturating_duration_since(*then) >= MINUTE) {
                taken.pop_front();
            }
        }
        self.0.retain(|_, taken| !taken.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_counts_and_nothing_older() {
        let (mut shares, now) = (Shares::default(), Instant::now());
        let at = |seconds| now + Duration::from_secs(seconds);
        shares.add("a", at(0));
        shares.add("a", at(30));
        shares.add("b", at(30));
        assert_eq!(
            (shares.taken("a", at(59)), shares.taken("a", at(60)), shares.taken("b", at(60))),
            (2, 1, 1)
        );
        assert_eq!((shares.taken("a", at(90)), shares.0.len()), (0, 0), "a tenant without any is forgotten");
    }
}
