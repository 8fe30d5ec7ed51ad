//! The Merkle tree over a log's records (RFC 6962, section 2.1), of which only the right edge is kept.
//!
//! Leaf *n* is the hash of record *n*, 32 bytes. A tree is represented by the roots of its whole subtrees, one for each bit of its size (a
//! *compact range*). These are at most 64 hashes, and suffice to continue the tree and to compute its root.

use crate::hash::Hash;

/// The tree over the first `size` records.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Tree {
    size: u64,
    /// Roots of the whole subtrees from left to right, the largest first.
    peaks: Vec<Hash>,
}

impl Tree {
    /// Creates a tree from stored peaks. Returns `None` if their number does not fit the size.
    pub(crate) fn of(size: u64, peaks: Vec<Hash>) -> Option<Self> {
        (peaks.len() == size.count_ones() as usize).then_some(Self { size, peaks })
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn peaks(&self) -> &[Hash] {
        &self.peaks
    }

    /// Adds the next record.
    pub(crate) fn push(&mut self, record: Hash) {
        let mut node = leaf(record);
        for _ in 0..self.size.trailing_ones() {
            let Some(left) = self.peaks.pop() else { break };
            node = join(left, node);
        }
        self.peaks.push(node);
        self.size += 1;
    }

    pub(crate) fn root_if(&self, needed: impl FnOnce() -> bool) -> Option<Hash> {
        needed().then(|| self.root())
    }

    /// Returns the root. For a tree without records it is the SHA-256 of the empty string.
    pub(crate) fn root(&self) -> Hash {
        let mut peaks = self.peaks.iter().rev().copied();
        let Some(last) = peaks.next() else { return Hash::of(&[]) };
        peaks.fold(last, |right, left| join(left, right))
    }
}

pub(crate) fn leaf(record: Hash) -> Hash {
    Hash::of_parts(&[&[0], record.as_bytes()])
}

/// Returns the parent of two nodes.
pub(crate) fn join(left: Hash, right: Hash) -> Hash {
    Hash::of_parts(&[&[1], left.as_bytes(), right.as_bytes()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition, word for word.
    fn by_definition(leaves: &[Hash]) -> Hash {
        match leaves {
            [] => Hash::of(&[]),
            [leaf] => Hash::of_parts(&[&[0], leaf.as_bytes()]),
            _ => {
                let k = leaves.len().next_power_of_two() / 2;
                join(by_definition(&leaves[..k]), by_definition(&leaves[k..]))
            }
        }
    }

    fn leaves(count: usize) -> Vec<Hash> {
        (0..count).map(|n| Hash::of(&n.to_be_bytes())).collect()
    }

    #[test]
    fn every_size_has_the_root_of_the_definition() {
        let leaves = leaves(300);
        let mut tree = Tree::default();
        for size in 0..=leaves.len() {
            assert_eq!(tree.root(), by_definition(&leaves[..size]), "{size}");
            assert_eq!(tree.size(), size as u64);
            leaves.get(size).into_iter().for_each(|leaf| tree.push(*leaf));
        }
    }

    proptest! {
        #[test]
        fn a_stored_tree_continues(before in 0_usize..200, after in 0_usize..200) {
            let leaves = leaves(before + after);
            let mut whole = Tree::default();
            leaves[..before].iter().for_each(|leaf| whole.push(*leaf));
            let mut kept = Tree::of(whole.size(), whole.peaks().to_vec()).unwrap();
            leaves[before..].iter().for_each(|leaf| kept.push(*leaf));
            prop_assert_eq!(kept.root(), by_definition(&leaves));
        }
    }

    #[test]
    fn wrong_number_of_peaks_is_refused() {
        assert!(Tree::of(5, leaves(2)).is_some());
        assert!(Tree::of(5, leaves(1)).is_none());
        assert!(Tree::of(5, leaves(3)).is_none());
        assert!(Tree::of(0, leaves(0)).is_some());
    }
}
