//! Inclusion proofs (RFC 6962, section 2.1.1): that a record is among the first so many of a log, as a checkpoint's root
//! says, shown by one hash for each level of the tree.

use std::collections::{BTreeMap, BTreeSet};

use crate::hash::Hash;
use crate::tree::{join, leaf};

/// Records whose subtree is kept as one hash where none of them is to be proved.
const GROUP: usize = 16;

/// Makes proofs for some records of a log, in one pass over its hashes; four bytes a record are kept.
#[derive(Debug)]
pub struct Prover {
    wanted: BTreeSet<u64>,
    /// Leaves of the groups that hold a wanted record, and of the last group.
    leaves: BTreeMap<u64, Vec<Hash>>,
    current: Vec<Hash>,
    /// Roots of whole subtrees: of groups, of pairs of groups, and so on.
    levels: Vec<Vec<Hash>>,
    size: u64,
}

impl Prover {
    /// For the records with these sequence numbers.
    pub fn new(wanted: impl IntoIterator<Item = u64>) -> Self {
        let wanted = wanted.into_iter().filter_map(|sequence| sequence.checked_sub(1)).collect();
        let (leaves, current) = (BTreeMap::new(), Vec::new());
        Self { wanted, leaves, current, levels: vec![Vec::new()], size: 0 }
    }

    /// The hash of the next record, from the log's first on.
    pub fn push(&mut self, record: Hash) {
        self.current.push(leaf(record));
        self.size += 1;
        if self.current.len() < GROUP {
            return;
        }
        let group = (self.size - 1) / GROUP as u64;
        let leaves = std::mem::take(&mut self.current);
        let mut node = root(&leaves);
        let first = group * GROUP as u64;
        if self.wanted.range(first..first + GROUP as u64).next().is_some() {
            self.leaves.insert(group, leaves);
        }
        for level in 0.. {
            if self.levels.len() == level {
                self.levels.push(Vec::new());
            }
            let nodes = &mut self.levels[level];
            nodes.push(node);
            let [.., left, right] = nodes[..] else { break };
            if !nodes.len().is_multiple_of(2) {
                break;
            }
            node = join(left, right);
        }
    }

    /// The root over all that was pushed.
    pub fn root(&self) -> Option<Hash> {
        if self.size == 0 { None } else { self.node(0, self.size) }
    }

    /// The proof of a wanted record, from the leaf upwards. `None`: it was not pushed, or not wanted.
    pub fn proof(&self, sequence: u64) -> Option<Vec<Hash>> {
        let index = sequence.checked_sub(1).filter(|index| *index < self.size)?;
        if !self.wanted.contains(&index) {
            return None;
        }
        let (mut from, mut to) = (0, self.size);
        let mut path = Vec::new();
        while to - from > 1 {
            let middle = from + split(to - from);
            if index < middle {
                path.push(self.node(middle, to)?);
                to = middle;
            } else {
                path.push(self.node(from, middle)?);
                from = middle;
            }
        }
        path.reverse();
        Some(path)
    }

    /// The root of the subtree over the leaves `from..to`, which is one that the tree has.
    fn node(&self, from: u64, to: u64) -> Option<Hash> {
        let (count, group) = (to - from, GROUP as u64);
        if count >= group && count.is_power_of_two() && from.is_multiple_of(count) {
            let level = (count / group).trailing_zeros() as usize;
            return self.levels.get(level)?.get(usize::try_from(from / count).ok()?).copied();
        }
        if count < group {
            let leaves = self.leaves.get(&(from / group)).unwrap_or(&self.current);
            let start = usize::try_from(from % group).ok()?;
            return leaves.get(start..start + usize::try_from(count).ok()?).map(root);
        }
        let middle = from + split(count);
        Some(join(self.node(from, middle)?, self.node(middle, to)?))
    }
}

/// Whether a record with this hash is the one with this sequence number among the first `size` of a log with this root
/// (RFC 9162, section 2.1.3.2).
pub fn is_included(record: Hash, sequence: u64, size: u64, proof: &[Hash], expected: Hash) -> bool {
    let Some(mut at) = sequence.checked_sub(1).filter(|index| *index < size) else { return false };
    let mut last = size - 1;
    let mut node = leaf(record);
    for sibling in proof {
        if last == 0 {
            return false;
        }
        if at % 2 == 1 || at == last {
            node = join(*sibling, node);
            while at.is_multiple_of(2) && at != 0 {
                at /= 2;
                last /= 2;
            }
        } else {
            node = join(node, *sibling);
        }
        at /= 2;
        last /= 2;
    }
    last == 0 && node == expected
}

/// The largest power of two below `count`, which is above 1.
fn split(count: u64) -> u64 {
    count.next_power_of_two() / 2
}

fn root(leaves: &[Hash]) -> Hash {
    match leaves {
        [] => Hash::of(&[]),
        [leaf] => *leaf,
        _ => {
            let (left, right) = leaves.split_at(leaves.len().next_power_of_two() / 2);
            join(root(left), root(right))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    fn record(n: u64) -> Hash {
        Hash::of(&n.to_be_bytes())
    }

    #[test]
    fn every_record_of_every_size_is_proved_and_nothing_else() {
        for size in (1..70).chain([127, 128, 129, 300]) {
            let mut tree = Tree::default();
            let mut prover = Prover::new(1..=size);
            for n in 1..=size {
                tree.push(record(n));
                prover.push(record(n));
            }
            let root = tree.root();
            assert_eq!(prover.root(), Some(root), "{size}");
            for n in 1..=size {
                let proof = prover.proof(n).unwrap();
                assert!(is_included(record(n), n, size, &proof, root), "{n} of {size}");
                assert!(!is_included(record(n + 1), n, size, &proof, root));
                assert!(!is_included(record(n), n + 1, size, &proof, root));
                assert!(!is_included(record(n), n, size, &proof, record(0)));
                if let Some((_, shorter)) = proof.split_last() {
                    assert!(!is_included(record(n), n, size, shorter, root));
                }
                assert!(!is_included(record(n), n, size, &[&proof[..], &[root]].concat(), root));
            }
            assert_eq!((prover.proof(0), prover.proof(size + 1)), (None, None));
        }
    }

    #[test]
    fn what_is_not_wanted_is_not_kept() {
        let mut prover = Prover::new([5, 900]);
        let mut tree = Tree::default();
        for n in 1..=1_000 {
            prover.push(record(n));
            tree.push(record(n));
        }
        assert_eq!(prover.leaves.len(), 2);
        for n in [5, 900] {
            assert!(is_included(record(n), n, 1_000, &prover.proof(n).unwrap(), tree.root()));
        }
        assert_eq!(prover.proof(6), None);
    }
}
