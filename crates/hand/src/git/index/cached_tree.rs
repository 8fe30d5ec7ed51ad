//! The extension `TREE`: of which directories the index still has exactly what a tree has. It makes the difference
//! between HEAD and an index that was not touched free.

use git2::Oid;

/// Directories in each other, at most; what is deeper is not known.
const DEPTH: usize = 256;

/// A directory.
pub(in super::super) struct CachedTree {
    /// The tree with this content, and how many entries of the index it has; `None` since something changed beneath.
    pub(in super::super) known: Option<(usize, Oid)>,
    /// Directories in it, in the order of their names.
    children: Vec<(Vec<u8>, CachedTree)>,
}

impl CachedTree {
    /// `None` when it is damaged: it only helps.
    pub(super) fn parse(mut bytes: &[u8]) -> Option<Self> {
        let (name, tree) = Self::node(&mut bytes, 0)?;
        (name.is_empty() && bytes.is_empty()).then_some(tree)
    }

    fn node(bytes: &mut &[u8], depth: usize) -> Option<(Vec<u8>, Self)> {
        if depth > DEPTH {
            return None;
        }
        let name = take_until(bytes, 0)?.to_vec();
        let entries: i64 = std::str::from_utf8(take_until(bytes, b' ')?).ok()?.parse().ok()?;
        let children: usize = std::str::from_utf8(take_until(bytes, b'\n')?).ok()?.parse().ok()?;
        let known = match usize::try_from(entries) {
            Ok(entries) => {
                let (id, rest) = bytes.split_at_checked(20)?;
                *bytes = rest;
                Some((entries, Oid::from_bytes(id).ok()?))
            }
            Err(_) => None,
        };
        // Each child has a few bytes at least, so that hostile counts end by themselves.
        let mut children: Vec<_> =
            (0..children).map(|_| Self::node(bytes, depth + 1)).collect::<Option<_>>()?;
        children.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        Some((name, Self { known, children }))
    }

    /// The directory of this name.
    pub(in super::super) fn child(&self, name: &[u8]) -> Option<&Self> {
        let at = self.children.binary_search_by(|(each, _)| each.as_slice().cmp(name)).ok()?;
        self.children.get(at).map(|(_, child)| child)
    }
}

fn take_until<'b>(bytes: &mut &'b [u8], end: u8) -> Option<&'b [u8]> {
    let at = bytes.iter().position(|byte| *byte == end)?;
    let (taken, rest) = bytes.split_at(at);
    *bytes = &rest[1..];
    Some(taken)
}
