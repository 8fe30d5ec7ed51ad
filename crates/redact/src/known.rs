//! Finds values that the daemon was given as secrets. They are hidden because of their content, in any form and any field.
//!
//! The values of an owner are hidden only in records of that owner, so that no client can blot out the records of another.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, MatchKind};
use parking_lot::RwLock;

use super::Finding;

/// Length of the shortest value that is hidden, in bytes. Shorter ones occur in too many harmless words.
const SHORTEST: usize = 8;

/// The values of one owner. `Debug` shows none of them.
#[derive(Clone)]
pub(super) struct Values(Arc<AhoCorasick>);

/// The known values by owner, which all clones share.
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
        // The longest match wins, so that no part remains of a value that begins with another one.
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
