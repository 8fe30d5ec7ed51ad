//! A bucket of tokens that limits how many runs all principals create.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

const MINUTE: Duration = Duration::from_secs(60);

/// A bucket with as many tokens as runs may be created in a minute. A token comes back at equal intervals.
///
/// It notes the moment at which the bucket is full again, and no number of tokens.
#[derive(Debug)]
pub(crate) struct Throttle {
    per_minute: u32,
    full_at: Mutex<Option<Instant>>,
}

impl Throttle {
    pub(crate) fn new(per_minute: u64) -> Self {
        let per_minute = u32::try_from(per_minute).unwrap_or(u32::MAX).max(1);
        Self { per_minute, full_at: Mutex::new(None) }
    }

    pub(crate) fn per_minute(&self) -> u32 {
        self.per_minute
    }

    /// Takes a token, or returns the time until there is one.
    pub(crate) fn take(&self, now: Instant) -> Result<(), Duration> {
        let mut full_at = self.full_at.lock();
        let next = full_at.map_or(now, |full_at| full_at.max(now)) + MINUTE / self.per_minute;
        match next.saturating_duration_since(now).checked_sub(MINUTE) {
            Some(wait) if !wait.is_zero() => Err(wait),
            _ => {
                *full_at = Some(next);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minutes_worth_at_once_and_then_one_at_a_time() {
        let (throttle, start) = (Throttle::new(6), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        assert!((0..6).all(|_| throttle.take(at(0)).is_ok()));
        assert_eq!(throttle.take(at(0)), Err(Duration::from_secs(10)));
        // A refusal takes nothing.
        assert_eq!(throttle.take(at(4_000)), Err(Duration::from_secs(6)));
        assert_eq!(throttle.take(at(10_000)), Ok(()));
        assert_eq!(throttle.take(at(10_000)), Err(Duration::from_secs(10)));
        // A long rest fills it, and no more than that.
        assert!((0..6).all(|_| throttle.take(at(600_000)).is_ok()));
        assert!(throttle.take(at(600_000)).is_err());
    }

    #[test]
    fn no_minute_after_the_first_has_more_than_its_share() {
        let (throttle, start) = (Throttle::new(30), Instant::now());
        let taken = |from: u64| {
            let tries = (from..from + 60_000).step_by(100);
            tries.filter(|millis| throttle.take(start + Duration::from_millis(*millis)).is_ok()).count()
        };
        assert_eq!((taken(0), taken(60_000), taken(120_000)), (59, 30, 30));
    }
}
