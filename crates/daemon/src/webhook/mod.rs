//! Telling others over HTTP: one signed POST a message, after the Standard Webhooks specification (standardwebhooks.com).
//! Used for alerts and for checkpoints of the audit log, which decide themselves what is sent again, and when it is given
//! up.

mod send;
mod sign;
mod target;

pub(crate) use send::{Failed, Sender};
pub(crate) use sign::Secret;
pub(crate) use target::Target;

use std::time::Duration;

/// Longest between two attempts.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(3600);

/// Where something is posted, ready to be used.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    /// Names it in logs, which never show where it is.
    pub(crate) name: String,
    pub(crate) target: Target,
    pub(crate) secret: Secret,
    /// For one attempt, all of it.
    pub(crate) timeout: Duration,
    /// Attempts before a message is given up.
    pub(crate) attempts: u32,
    /// Between the first and the second; doubled each time.
    pub(crate) first_retry: Duration,
}

/// The wait after so many attempts: twice as long each time, from half of that to all of it, so that many senders do not
/// come back together.
pub(crate) fn backoff(first: Duration, attempts: u32, random: u128) -> Duration {
    let whole = first.saturating_mul(2_u32.saturating_pow(attempts.saturating_sub(1))).min(MAX_WAIT);
    let half = whole / 2;
    let share = u32::try_from(random % 1_000).unwrap_or(0);
    half + half * share / 1_000
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{MAX_WAIT, backoff};

    #[test]
    fn the_wait_doubles_within_its_bounds() {
        let first = Duration::from_secs(5);
        for attempts in 1..200 {
            let most = first.saturating_mul(2_u32.saturating_pow(attempts - 1)).min(MAX_WAIT);
            for random in [0, 1, 999, 500, u128::MAX] {
                let wait = backoff(first, attempts, random);
                assert!((most / 2..=most).contains(&wait), "{attempts}: {wait:?} of {most:?}");
            }
        }
        assert_ne!(backoff(first, 3, 10), backoff(first, 3, 900));
    }
}
