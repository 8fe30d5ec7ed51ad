//! Runs or principals with calls that run or wait. They are found by name, or by the index of an earlier lookup.

use hashbrown::HashTable;
use slab::Slab;

use super::caps::Count;

/// Name of a group and its hash, which is computed before the schedule is locked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Name<'n> {
    pub(super) text: &'n str,
    pub(super) hash: u64,
}

/// Groups with at least one call. The scan of the line uses indices, so that it hashes no names.
#[derive(Debug, Default)]
pub(super) struct Groups {
    by_name: HashTable<usize>,
    all: Slab<Group>,
}

#[derive(Debug)]
struct Group {
    name: Box<str>,
    hash: u64,
    count: Count,
}

impl Groups {
    pub(super) fn find(&self, name: Name<'_>) -> Option<usize> {
        self.by_name.find(name.hash, |index| *self.all[*index].name == *name.text).copied()
    }

    /// Returns the number of calls in a group. A group that is not in the table has none.
    pub(super) fn count(&self, index: Option<usize>) -> Count {
        index.map_or_else(Count::default, |index| self.all[index].count)
    }

    /// Adds a group that [`Self::find`] has not found.
    pub(super) fn make(&mut self, name: Name<'_>) -> usize {
        let group = Group { name: name.text.into(), hash: name.hash, count: Count::default() };
        let index = self.all.insert(group);
        self.by_name.insert_unique(name.hash, index, |index| self.all[*index].hash);
        index
    }

    /// Changes a group's count, and removes the group when it has no calls left.
    pub(super) fn change(&mut self, index: usize, change: impl FnOnce(&mut Count)) {
        let group = &mut self.all[index];
        change(&mut group.count);
        if group.count == Count::default() {
            if let Ok(entry) = self.by_name.find_entry(group.hash, |other| *other == index) {
                entry.remove();
            }
            self.all.remove(index);
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty() && self.all.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_one_hash_are_different_groups() {
        let mut groups = Groups::default();
        let [one, other] = ["one", "other"].map(|text| Name { text, hash: 7 });
        let at = groups.make(one);
        assert_eq!((groups.find(one), groups.find(other)), (Some(at), None));
        let beside = groups.make(other);
        groups.change(at, |count| count.running += 1);
        groups.change(beside, |count| count.waiting += 1);
        groups.change(at, |count| count.running -= 1);
        assert_eq!((groups.find(one), groups.find(other)), (None, Some(beside)));
        assert_eq!(groups.count(Some(beside)), Count { running: 0, waiting: 1 });
        groups.change(beside, |count| count.waiting -= 1);
        assert!(groups.is_empty());
    }
}
