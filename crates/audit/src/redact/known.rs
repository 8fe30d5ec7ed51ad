//! Values that the daemon was given as secrets: they are hidden by what they are, however they look and wherever they stand.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use aho_corasick::{AhoCorasick, MatchKind};

use super::Finding;

/// Bytes; a shorter value is in too many words that say nothing.
const SHORTEST: usize = 8;

/// What is known. Clones share it; `Debug` shows nothing of it.
#[derive(Clone, Default)]
pub(super) struct Known(Arc<RwLock<Values>>);

#[derive(Default)]
struct Values {
    by_owner: BTreeMap<String, Vec<String>>,
    /// All of them. `None` when there are none.
    any: Option<AhoCorasick>,
}

impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Known")
    }
}

impl Known {
    pub(super) fn learn<'v>(&self, owner: &str, values: impl Iterator<Item = &'v str>) {
        let values: Vec<_> = values.filter(|value| value.len() >= SHORTEST).map(str::to_owned).collect();
        if !values.is_empty() {
            let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
            known.by_owner.insert(owner.to_owned(), values);
            known.compile();
        }
    }

    pub(super) fn forget(&self, owner: &str) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.by_owner.remove(owner).is_some() {
            known.compile();
        }
    }

    pub(super) fn find(&self, text: &str) -> Vec<Finding> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let found = known.any.iter().flat_map(|any| any.find_iter(text));
        found.map(|found| Finding { at: found.range(), name: "secret" }).collect()
    }
}

impl Values {
    fn compile(&mut self) {
        let values = self.by_owner.values().flatten();
        // The longest wins, so that of a value that begins with another nothing is left.
        let built = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(values);
        // Fails beyond 2^32 states, which is more than all runs may have.
        self.any = built.ok().filter(|any| any.patterns_len() > 0);
    }
}
