//! Copies the directories of a frozen run at the same time, within bounds that hold for all of them together.
//!
//! The workspace may be large. The other directories are usually small, and most of the time of their copies is the start of a host
//! worker. So each gets a small share of the bounds, and the workspace gets the rest. A directory that does not fit is copied again, alone,
//! with all that the others have left.

use std::path::Path;

use futures_util::future::join_all;
use host_launch::TreeBounds;
use operations::Reason;
use refusal::Refusal;
use runs::remove_tree;

use crate::changed::Changed;
use crate::make;
use crate::record::PartCopy;

/// Most bounds of each directory but the first.
const SHARE: TreeBounds = TreeBounds { bytes: 16 << 20, files: 4_096 };

/// Copies the directories into the staging directory, within `most` together.
pub(crate) async fn copy(
    staging: &Path,
    changes: &[Changed],
    most: TreeBounds,
) -> Result<Vec<PartCopy>, Refusal> {
    let bounds = shares(changes.len(), most);
    let copies = changes.iter().zip(&bounds).map(|(from, most)| make::part(staging, from, *most));
    let mut copies = join_all(copies).await;
    let mut left = copies.iter().flatten().map(PartCopy::size).fold(most, less);
    for (from, copy) in changes.iter().zip(&mut copies) {
        if copy.as_ref().is_err_and(|refusal| refusal.reason == Reason::PreconditionFailed) {
            remove_tree(staging.join(from.part.name())).await;
            let again = make::part(staging, from, left).await?;
            left = less(left, again.size());
            *copy = Ok(again);
        }
    }
    copies.into_iter().collect()
}

/// Returns the bounds of each of `count` directories, which are together within `most`.
fn shares(count: usize, most: TreeBounds) -> Vec<TreeBounds> {
    let share = TreeBounds { bytes: SHARE.bytes.min(most.bytes / 8), files: SHARE.files.min(most.files / 8) };
    let others = vec![share; count.saturating_sub(1)];
    let first = others.iter().copied().fold(most, less);
    std::iter::once(first).chain(others).take(count).collect()
}

/// Returns the bounds that a tree of this size leaves.
fn less(most: TreeBounds, used: TreeBounds) -> TreeBounds {
    TreeBounds { bytes: most.bytes.saturating_sub(used.bytes), files: most.files.saturating_sub(used.files) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_together_within_the_bounds_and_the_first_has_most_of_them() {
        for most in [
            TreeBounds { bytes: 0, files: 1 },
            TreeBounds { bytes: 1_000, files: 100 },
            TreeBounds { bytes: 1 << 40, files: 1_000_000 },
        ] {
            assert!(shares(0, most).is_empty());
            assert_eq!(shares(1, most), [most]);
            let shares = shares(4, most);
            assert_eq!(shares.len(), 4);
            let sum = |of: fn(&TreeBounds) -> u64| shares.iter().map(of).sum::<u64>();
            assert_eq!((sum(|share| share.bytes), sum(|share| share.files)), (most.bytes, most.files));
            assert!(shares[1..].iter().all(|share| share.bytes <= SHARE.bytes && share.files <= SHARE.files));
            assert!(shares[0].bytes >= most.bytes / 2 && shares[0].files >= most.files / 2);
        }
        assert_eq!(shares(2, TreeBounds { bytes: 1 << 40, files: 1_000_000 })[1], SHARE);
    }
}
