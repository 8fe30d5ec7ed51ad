//! Measures the size of the files of a workspace.

use jail::{Dir, FileKind};

use super::MAX_DEPTH;
use super::names::names;

/// Most files that are counted.
const MOST: u64 = 1_000_000;

/// Returns the sum of the files' lengths in bytes, as far as they can be read.
pub(super) fn measure(top: &Dir) -> u64 {
    let mut left = MOST;
    below(top, 0, &mut left)
}

fn below(directory: &Dir, depth: usize, left: &mut u64) -> u64 {
    let mut sum = 0_u64;
    for name in names(directory).unwrap_or_default() {
        if *left == 0 {
            break;
        }
        *left -= 1;
        let Ok(meta) = directory.metadata(&name) else { continue };
        match meta.kind {
            FileKind::File => sum = sum.saturating_add(meta.size),
            FileKind::Directory if depth < MAX_DEPTH => {
                if let Ok(inner) = directory.open_dir(&name) {
                    sum = sum.saturating_add(below(&inner, depth + 1, left));
                }
            }
            _ => {}
        }
    }
    sum
}
