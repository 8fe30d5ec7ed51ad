//! A single proof that several records are among the first records of a log that a checkpoint's root covers.
//!
//! The proof contains the root of each subtree without any of these records, from left to right. The records' own hashes give the rest. For
//! one record these are the siblings of its audit path (RFC 6962, section 2.1.1), in the order of the log instead of the order of the
//! levels. For many neighbouring records the proof is hardly longer.

use std::io;
use std::path::Path;

use crate::hash::Hash;
use crate::removal::{self, Removed};
use crate::storage;
use crate::tree::{join, leaf};

/// Makes the proof in one pass over the log's hashes. Keeps only as many hashes as the proof will have.
#[derive(Debug, Default)]
pub struct Prover {
    /// Whole subtrees from left to right, the largest first: one for each bit of the size.
    subtrees: Vec<Subtree>,
    size: u64,
}

#[derive(Debug)]
struct Subtree {
    height: u32,
    root: Hash,
    /// The subtree's part of the proof. `None` if no record in it is to be proved, so that its root suffices.
    proof: Option<Vec<Hash>>,
}

impl Subtree {
    /// Returns the parent of two neighbours.
    fn above(left: Self, right: Self) -> Self {
        let (height, root) = (left.height + 1, join(left.root, right.root));
        let proof = if left.proof.is_none() && right.proof.is_none() {
            None
        } else {
            let mut proof = left.into_proof();
            proof.append(&mut right.into_proof());
            Some(proof)
        };
        Self { height, root, proof }
    }

    fn into_proof(self) -> Vec<Hash> {
        self.proof.unwrap_or_else(|| vec![self.root])
    }
}

impl Prover {
    /// Creates a prover for the log in a directory.
    ///
    /// If the beginning of the log was removed, and that is on record, the first hash to push is that of the first remaining record.
    pub fn of(dir: &Path) -> io::Result<Self> {
        let file = storage::load(dir, removal::FILE)?;
        let Some(removed) = file.as_deref().and_then(Removed::parse) else { return Ok(Self::default()) };
        let tree = removed.ledger.tree();
        Self::behind(tree.size(), tree.peaks()).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Creates a prover for a log whose first `size` records were removed.
    ///
    /// `peaks` are the roots of their whole subtrees from left to right. Returns `None` if their number does not fit the size.
    fn behind(size: u64, peaks: &[Hash]) -> Option<Self> {
        let heights = (0..u64::BITS).rev().filter(|bit| size >> bit & 1 == 1);
        if peaks.len() != size.count_ones() as usize {
            return None;
        }
        let subtrees = heights.zip(peaks).map(|(height, root)| Subtree { height, root: *root, proof: None });
        Some(Self { subtrees: subtrees.collect(), size })
    }

    /// Adds the hash of the next record. `is_wanted` is true if the record is to be proved.
    pub fn push(&mut self, record: Hash, is_wanted: bool) {
        let proof = is_wanted.then(Vec::new);
        let mut new = Subtree { height: 0, root: leaf(record), proof };
        while let Some(left) = self.subtrees.pop_if(|left| left.height == new.height) {
            new = Subtree::above(left, new);
        }
        self.subtrees.push(new);
        self.size += 1;
    }

    /// Returns the number of records that were pushed, or removed before.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the root over all records, or `None` if there are none.
    pub fn root(&self) -> Option<Hash> {
        let mut roots = self.subtrees.iter().rev().map(|subtree| subtree.root);
        let last = roots.next()?;
        Some(roots.fold(last, |right, left| join(left, right)))
    }

    /// Returns the proof of all wanted records.
    pub fn into_proof(self) -> Vec<Hash> {
        let whole = self.subtrees.into_iter().rev().reduce(|right, left| Subtree::above(left, right));
        whole.map(Subtree::into_proof).unwrap_or_default()
    }
}

/// Computes the root over `size` records from a proof and the records that it proves.
///
/// The records have their sequence numbers and must be in order. Returns `None` if they fit together in no log. The caller must compare the
/// result with a root that is trusted.
pub fn root_of(size: u64, records: &[(u64, Hash)], proof: &[Hash]) -> Option<Hash> {
    let ordered = records.is_sorted_by(|(before, _), (after, _)| before < after);
    let within = |(sequence, _): &(u64, Hash)| (1..=size).contains(sequence);
    if size == 0 || !ordered || !records.iter().all(within) {
        return None;
    }
    let mut rest = proof.iter().copied();
    let root = subtree(0, size, records, &mut rest)?;
    rest.next().is_none().then_some(root)
}

/// Computes the root over the leaves `from..to`. The depth is that of the tree, at most 64.
fn subtree(
    from: u64,
    to: u64,
    records: &[(u64, Hash)],
    proof: &mut impl Iterator<Item = Hash>,
) -> Option<Hash> {
    match (records, to - from) {
        ([], _) => proof.next(),
        ([(_, hash)], 1) => Some(leaf(*hash)),
        (_, 0 | 1) => None,
        (_, count) => {
            // The largest power of two below the count (RFC 6962, section 2.1).
            let middle = from + (1 << (count - 1).ilog2());
            let (left, right) =
                records.split_at(records.partition_point(|(sequence, _)| *sequence <= middle));
            Some(join(subtree(from, middle, left, proof)?, subtree(middle, to, right, proof)?))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tree::Tree;

    fn record(n: u64) -> Hash {
        Hash::of(&n.to_be_bytes())
    }

    struct Proved {
        root: Hash,
        proof: Vec<Hash>,
        records: Vec<(u64, Hash)>,
    }

    /// Of a log of `size` records, the first `removed` of which are known by their peaks alone.
    fn prove(size: u64, removed: u64, wanted: impl Fn(u64) -> bool) -> Proved {
        let mut tree = Tree::default();
        let mut prover = Prover::default();
        let mut records = Vec::new();
        for n in 1..=size {
            let is_wanted = n > removed && wanted(n);
            tree.push(record(n));
            if n == removed {
                prover = Prover::behind(n, tree.peaks()).unwrap();
            } else if n > removed {
                prover.push(record(n), is_wanted);
            }
            if is_wanted {
                records.push((n, record(n)));
            }
        }
        assert_eq!((prover.size(), prover.root()), (size, Some(tree.root())));
        Proved { root: tree.root(), proof: prover.into_proof(), records }
    }

    #[test]
    fn one_record_is_proved_by_a_hash_for_each_level() {
        for size in (1..70).chain([127, 128, 129, 300]) {
            for n in 1..=size {
                let Proved { root, proof, records } = prove(size, 0, |wanted| wanted == n);
                assert!(proof.len() <= size.next_power_of_two().ilog2() as usize, "{n} of {size}");
                assert_eq!(root_of(size, &records, &proof), Some(root), "{n} of {size}");
            }
        }
    }

    #[test]
    fn neighbours_cost_hardly_more_than_one() {
        let Proved { root, proof, records } = prove(5_000, 0, |n| (1_000..2_000).contains(&n));
        assert_eq!(root_of(5_000, &records, &proof), Some(root));
        assert!(proof.len() < 26, "{}", proof.len());
        let all = prove(777, 0, |_| true);
        assert_eq!((all.proof.len(), root_of(777, &all.records, &[])), (0, Some(all.root)));
        let none = prove(777, 0, |_| false);
        assert_eq!(none.proof, [none.root]);
    }

    proptest! {
        #[test]
        fn any_records_are_proved_and_no_others(
            size in 1_u64..400,
            removed in 0_u64..400,
            wanted in proptest::collection::btree_set(1_u64..400, 1..30),
            at in any::<proptest::sample::Index>(),
        ) {
            let removed = removed.min(size - 1);
            let Proved { root, proof, records } = prove(size, removed, |n| wanted.contains(&n));
            prop_assume!(!records.is_empty());
            prop_assert_eq!(root_of(size, &records, &proof), Some(root));
            // Another record, another position, one less, one more.
            let at = at.index(records.len());
            let mut other = records.clone();
            other[at].1 = record(0);
            prop_assert_ne!(root_of(size, &other, &proof), Some(root));
            // A log of one record has one position.
            if size > 1 {
                let mut moved = records.clone();
                moved[at].0 = if moved[at].0 == size { 1 } else { moved[at].0 + 1 };
                prop_assert_ne!(root_of(size, &moved, &proof), Some(root));
            }
            let mut fewer = records.clone();
            fewer.remove(at);
            prop_assert_ne!(root_of(size, &fewer, &proof), Some(root));
            for end in 0..proof.len() {
                prop_assert_eq!(root_of(size, &records, &proof[..end]), None);
            }
            prop_assert_eq!(root_of(size, &records, &[&proof[..], &[root]].concat()), None);
        }
    }

    #[test]
    fn malformed_proofs_are_refused() {
        assert_eq!(root_of(0, &[], &[]), None);
        assert_eq!(root_of(5, &[(0, record(0))], &[]), None);
        assert_eq!(root_of(5, &[(6, record(6))], &[record(1); 9]), None);
        assert_eq!(root_of(5, &[(2, record(2)), (2, record(2))], &[record(1); 9]), None);
        assert_eq!(root_of(u64::MAX, &[(u64::MAX, record(1))], &[record(1); 3]), None);
        assert!(root_of(u64::MAX, &[(u64::MAX, record(1))], &[record(1); 63]).is_some());
        assert!(Prover::behind(5, &[record(1)]).is_none());
    }
}
