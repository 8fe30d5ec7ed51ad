//! The calls of a run that wait for an approval, so that a model that makes the same call again learns what became of it,
//! instead of asking a reviewer twice.
//!
//! All that is kept is the call's request id, under a hash of its tool and arguments. The API finds the call by it, whatever
//! state it is in, also after a restart of the daemon: this is a bridge's memory of what to ask for and no state of its own.

use std::collections::VecDeque;

use lock::Mutex;
use sha2::{Digest as _, Sha256};

/// Calls that are remembered; the oldest is forgotten.
const MOST: usize = 64;

/// What makes two calls the same: tool and arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key([u8; 32]);

impl Key {
    /// `arguments_json` as it is sent to the API, so that the API finds the content the same, too.
    pub(crate) fn of(tool: &str, arguments_json: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(u64::try_from(tool.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(tool);
        hash.update(arguments_json);
        Self(hash.finalize().into())
    }
}

/// A call that waits, or did when it was last looked at.
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
    fn the_last_word_on_a_call_counts_and_the_oldest_is_forgotten() {
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
