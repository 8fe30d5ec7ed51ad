//! Keeps the most recently used entries in a map. It bounds all memory here that others can fill.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// A map with at most `most` entries. A new one replaces the one that was touched longest ago.
pub(super) struct Recent<K, V> {
    entries: HashMap<K, (u64, V)>,
    order: BTreeMap<u64, K>,
    touches: u64,
    most: usize,
}

impl<K: Clone + Eq + Hash, V> Recent<K, V> {
    pub(super) fn new(most: usize) -> Self {
        Self { entries: HashMap::new(), order: BTreeMap::new(), touches: 0, most }
    }

    /// Returns the number of entries.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(_, value)| value)
    }

    /// Returns the value of a key, creating it if necessary, and marks it as the most recent.
    pub(super) fn touch(&mut self, key: &K, make: impl FnOnce() -> V) -> &mut V {
        self.touches += 1;
        if !self.entries.contains_key(key) && self.entries.len() >= self.most {
            self.drop_oldest();
        }
        let now = self.touches;
        let entry = self.entries.entry(key.clone()).or_insert_with(|| (now, make()));
        self.order.remove(&entry.0);
        entry.0 = now;
        self.order.insert(now, key.clone());
        &mut entry.1
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let (touched, value) = self.entries.remove(key)?;
        self.order.remove(&touched);
        Some(value)
    }

    pub(super) fn retain(&mut self, mut keep: impl FnMut(&K, &V) -> bool) {
        let order = &mut self.order;
        self.entries.retain(|key, (touched, value)| {
            let kept = keep(key, value);
            if !kept {
                order.remove(touched);
            }
            kept
        });
    }

    /// Drops entries, the least recent first, as long as `over` accepts them.
    pub(super) fn drop_while(&mut self, mut over: impl FnMut(&K, &V) -> bool) {
        while let Some((_, key)) = self.order.first_key_value()
            && self.get(key).is_none_or(|value| over(key, value))
        {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some((_, key)) = self.order.pop_first() {
            self.entries.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Recent;

    #[test]
    fn least_recently_used_entry_is_evicted() {
        let mut recent = Recent::new(2);
        *recent.touch(&"a", || 0) += 1;
        recent.touch(&"b", || 0);
        *recent.touch(&"a", || 0) += 1;
        recent.touch(&"c", || 7);
        assert_eq!((recent.get(&"a"), recent.get(&"b"), recent.get(&"c")), (Some(&2), None, Some(&7)));
        recent.drop_while(|key, _| *key == "a");
        assert_eq!((recent.len(), recent.order.len()), (1, 1));
        assert_eq!((recent.remove(&"c"), recent.remove(&"c")), (Some(7), None));
        recent.touch(&"d", || 1);
        recent.retain(|_, value| *value != 1);
        assert_eq!((recent.len(), recent.order.len()), (0, 0));
    }
}
