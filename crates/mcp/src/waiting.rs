//! Remembers the calls of a run that wait for an approval. A model that repeats such a call gets its outcome, and no reviewer is
//! asked twice.
//!
//! Only the call's request id is kept, under a hash of its tool and arguments. With it the API finds the call in any state, also
//! after a restart of the daemon. So this is only a cache of ids and holds no state of the calls.

use std::collections::VecDeque;

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

/// Most calls that are remembered. A further one replaces the oldest.
const MOST: usize = 64;

/// The identity of a call: tool and arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key([u8; 32]);

impl Key {
    /// Returns the key of a call. `arguments_json` must be as it is sent to the API, which compares it, too.
    pub(crate) fn of(tool: &str, arguments_json: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(u64::try_from(tool.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(tool);
        hash.update(arguments_json);
        Self(hash.finalize().into())
    }
}

/// A call that waited when it was last checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Waits {
    pub(crate) request_id: String,
    pub(crate) approval_id: String,
}

#[derive(Debug, Default)]
pub(crate) struct Waiting(Mutex<VecDeque<(Key, Waits)>>);

impl Waiting {
    pub(crate) fn get(&self, key: Key) -> Option<Waits> {
        self.0.lock().iter().find(|(known, _)| *known == key).map(|(_, waits)| waits.clone())
    }

    pub(crate) fn remember(&self, key: Key, waits: Waits) {
        let mut all = self.0.lock();
        all.retain(|(known, _)| *known != key);
        if all.len() == MOST {
            all.pop_front();
        }
        all.push_back((key, waits));
    }

    pub(crate) fn forget(&self, key: Key) {
        self.0.lock().retain(|(known, _)| *known != key);
    }
}

#[cfg(test)]
mod tests {
    use super::{Key, MOST, Waiting, Waits};

    fn waits(name: &str) -> Waits {
        Waits { request_id: name.to_owned(), approval_id: format!("approval of {name}") }
    }

    #[test]
    fn tool_and_arguments_cannot_be_shifted_into_one_another() {
        assert_eq!(Key::of("write", "{}"), Key::of("write", "{}"));
        assert_ne!(Key::of("write", "{}"), Key::of("write{", "}"));
    }

    #[test]
    fn the_last_choice_for_a_call_counts_and_the_oldest_is_forgotten() {
        let waiting = Waiting::default();
        let key = |number: usize| Key::of("exec", &number.to_string());
        for number in 0..=MOST {
            waiting.remember(key(number), waits("first"));
            waiting.remember(key(number), waits("second"));
        }
        assert_eq!(waiting.get(key(0)), None);
        assert_eq!(waiting.get(key(1)), Some(waits("second")));
        assert_eq!(waiting.0.lock().len(), MOST);
        waiting.forget(key(1));
        assert_eq!(waiting.get(key(1)), None);
    }
}
