//! One directory of a walk, with the names that are still to be visited.

use std::cmp::Ordering;
use std::sync::Arc;
use std::vec;

use jail::{Dir, Entry, FileKind, SandboxPath};

/// Directory that the walk is in.
pub(super) struct Level {
    pub(super) dir: Arc<Dir>,
    /// Path made of the names that the walk went through, for the rules.
    pub(super) place: SandboxPath,
    pub(super) rest: vec::IntoIter<Entry>,
    /// Bytes of its names.
    pub(super) held: usize,
    /// Lengths of the walk's two paths in this directory.
    pub(super) raw: usize,
    pub(super) shown: usize,
}

/// Names in a directory, as far as they could be read.
#[derive(Default)]
pub(super) struct Names {
    pub(super) sorted: Vec<Entry>,
    /// Bytes of the names.
    pub(super) held: usize,
    /// True if some names are missing.
    pub(super) partial: bool,
}

impl Names {
    /// Returns false if `name` is certainly not here, so that opening it would waste a system call.
    pub(super) fn may_have(&self, name: &[u8]) -> bool {
        self.partial || self.sorted.iter().any(|entry| entry.name.as_bytes() == name)
    }
}

/// Orders entries by path: a directory sorts as if its name ended in the slash that follows, so `a-b` comes before `a/b`.
pub(super) fn path_order(a: &Entry, b: &Entry) -> Ordering {
    let (left, right) = (a.name.as_bytes(), b.name.as_bytes());
    let shared = left.len().min(right.len());
    left[..shared].cmp(&right[..shared]).then_with(|| byte(a, shared).cmp(&byte(b, shared)))
}

/// Returns the byte at `at`, which is at most the name's length.
fn byte(entry: &Entry, at: usize) -> Option<u8> {
    let slash = (entry.kind == FileKind::Directory).then_some(b'/');
    entry.name.as_bytes().get(at).copied().or(slash)
}

#[cfg(test)]
mod tests {
    use jail::EntryName;
    use proptest::prelude::*;

    use super::*;

    fn entry((name, is_dir): &(Vec<u8>, bool)) -> Entry {
        let kind = if *is_dir { FileKind::Directory } else { FileKind::File };
        Entry { name: EntryName::new(name).unwrap(), kind }
    }

    proptest! {
        /// The order of names is that of the paths that begin with them.
        #[test]
        fn names_are_in_the_order_of_paths(
            a in ("[-./0a~]{1,4}".prop_map(|name| name.replace('/', "\u{1}x").into_bytes()), any::<bool>()),
            b in ("[-.0a~]{1,4}".prop_map(String::into_bytes), any::<bool>()),
        ) {
            prop_assume!([&a, &b].iter().all(|(name, _)| EntryName::new(name).is_some()) && a.0 != b.0);
            let path = |(name, is_dir): &(Vec<u8>, bool)| {
                let mut path = name.clone();
                if *is_dir {
                    path.push(b'/');
                }
                path
            };
            prop_assert_eq!(path_order(&entry(&a), &entry(&b)), path(&a).cmp(&path(&b)));
        }
    }
}
