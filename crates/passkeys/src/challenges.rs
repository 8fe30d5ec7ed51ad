//! Challenges that wait for the answer of an authenticator. Each is answered once.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use operations::Reason;
use parking_lot::Mutex;
use refusal::Refusal;
use ring::rand::{SecureRandom as _, SystemRandom};

/// Most challenges that wait, in all and of one principal.
const MAX: usize = 4_096;
const MAX_OF_PRINCIPAL: usize = 64;

/// Random value of a challenge.
pub(crate) type Nonce = [u8; 32];

/// The act that a challenge is for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Purpose {
    Registration,
    /// Consent to the approval with this id.
    Consent(String),
}

#[derive(Default)]
pub(crate) struct Challenges(Mutex<HashMap<(String, Purpose), (Nonce, Instant)>>);

impl Challenges {
    /// Makes a challenge, which replaces an earlier one of this principal for the same purpose.
    pub(crate) fn begin(&self, principal: &str, purpose: Purpose, life: Duration) -> Result<Nonce, Refusal> {
        let mut nonce = Nonce::default();
        SystemRandom::new()
            .fill(&mut nonce)
            .map_err(|error| Refusal::internal("making a challenge", &error))?;
        let now = Instant::now();
        let mut waiting = self.0.lock();
        let key = (principal.to_owned(), purpose);
        waiting.retain(|other, (_, until)| now < *until && *other != key);
        let of_principal = waiting.keys().filter(|(other, _)| other == principal).count();
        if waiting.len() >= MAX || of_principal >= MAX_OF_PRINCIPAL {
            return Err(Refusal::new(
                Reason::Overloaded,
                "too many challenges wait for a passkey: try again in a few minutes",
            ));
        }
        waiting.insert(key, (nonce, now + life));
        Ok(nonce)
    }

    /// Takes the challenge, so that no other answer finds it.
    pub(crate) fn take(&self, principal: &str, purpose: Purpose) -> Result<Nonce, Refusal> {
        let taken = self.0.lock().remove(&(principal.to_owned(), purpose));
        taken.filter(|(_, until)| Instant::now() < *until).map(|(nonce, _)| nonce).ok_or_else(|| {
            Refusal::new(
                Reason::PreconditionFailed,
                "no challenge waits for this passkey, or its time is over: begin again",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Challenges, MAX_OF_PRINCIPAL, Purpose};

    const MINUTE: Duration = Duration::from_mins(1);

    #[test]
    fn a_challenge_is_taken_once_by_its_principal_for_its_purpose() {
        let challenges = Challenges::default();
        let of = |approval: &str| Purpose::Consent(approval.to_owned());
        let first = challenges.begin("a", of("1"), MINUTE).unwrap();
        let second = challenges.begin("a", of("1"), MINUTE).unwrap();
        assert_ne!(first, second);
        assert!(challenges.take("b", of("1")).is_err() && challenges.take("a", of("2")).is_err());
        assert!(challenges.take("a", Purpose::Registration).is_err());
        assert_eq!(challenges.take("a", of("1")).unwrap(), second);
        assert!(challenges.take("a", of("1")).is_err());
        challenges.begin("a", of("1"), Duration::ZERO).unwrap();
        assert!(challenges.take("a", of("1")).is_err(), "its time is over");
    }

    #[test]
    fn one_principal_cannot_use_up_the_challenges_of_others() {
        let challenges = Challenges::default();
        let begin = |principal: &str, nr: usize| {
            challenges.begin(principal, Purpose::Consent(nr.to_string()), MINUTE).is_ok()
        };
        assert!((0..MAX_OF_PRINCIPAL).all(|nr| begin("a", nr)));
        assert!(!begin("a", MAX_OF_PRINCIPAL) && begin("a", 0) && begin("b", 0));
    }
}
