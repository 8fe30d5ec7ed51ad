//! Endpoints of webhooks, and the wait between attempts.

use std::time::Duration;

use crate::sign::Secret;
use crate::target::Target;

/// Longest wait between two attempts.
pub const MAX_WAIT: Duration = Duration::from_secs(3600);

/// An endpoint to which messages are posted.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// Name in logs, which never show the URL.
    pub name: String,
    pub target: Target,
    /// Secret that signs the messages. `None` for a receiver that knows them by its URL alone, such as a chat.
    pub secret: Option<Secret>,
    /// Time limit for a whole attempt.
    pub timeout: Duration,
    /// Number of attempts before a message is given up.
    pub attempts: u32,
    /// Wait between the first and the second attempt. It is doubled each time.
    pub first_retry: Duration,
}

/// Returns the wait after this number of attempts. It doubles each time.
///
/// The result is random between half of that and all of it, so that many senders do not retry at the same time.
pub fn backoff(first: Duration, attempts: u32, random: u128) -> Duration {
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
