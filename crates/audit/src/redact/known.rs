//! Values that the daemon was given as secrets: they are hidden by what they are, however they look and wherever they stand. Each
//! owner's are hidden in what is about that owner alone, so that nobody can blot out another's records.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, MatchKind};
use parking_lot::RwLock;

use super::Finding;

/// Bytes; a shorter value is in too many words that say nothing.
const SHORTEST: usize = 8;

/// The values of one owner. `Debug` shows nothing of them.
#[derive(Clone)]
pub(super) struct Values(Arc<AhoCorasick>);

/// What is known, by owner. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Known(Arc<RwLock<BTreeMap<String, Values>>>);

impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Values")
    }
}

impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Known")
    }
}

impl Known {
    pub(super) fn learn<'v>(&self, owner: &str, values: impl Iterator<Item = &'v str>) {
        let values: Vec<_> = values.filter(|value| value.len() >= SHORTEST).collect();
        // The longest wins, so that of a value that begins with another nothing is left.
        let built = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&values);
        // Fails beyond 2^32 states, which is far more than an owner may have.
        if let (Ok(any), false) = (built, values.is_empty()) {
            let mut known = self.0.write();
            known.insert(owner.to_owned(), Values(Arc::new(any)));
        }
    }

    pub(super) fn forget(&self, owner: &str) {
        self.0.write().remove(owner);
    }

    pub(super) fn of(&self, owner: &str) -> Option<Values> {
        self.0.read().get(owner).cloned()
    }
}

impl Values {
    pub(super) fn find(&self, text: &str) -> impl Iterator<Item = Finding> {
        self.0.find_iter(text).map(|found| Finding { at: found.range(), name: "secret" })
    }
}
