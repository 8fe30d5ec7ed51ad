//! The path of a walk for the path rules, even where no path can express it exactly.

use jail::{EntryName, Mount, RelPath, SandboxPath};

/// Returns the path of `name` in `dir`.
///
/// A name that is not UTF-8 is used as it is displayed, which is exact enough for rules about names and for the paths below. `None` means
/// that the path is too long; nothing below it is visited.
pub(super) fn below(dir: &RelPath, name: &EntryName) -> Option<RelPath> {
    dir.join(name).or_else(|| dir.join(&EntryName::new(name.shown().as_bytes())?))
}

/// Returns the path `rel` in the mount of another path.
pub(super) fn beside(other: &SandboxPath, rel: Option<&RelPath>) -> Option<SandboxPath> {
    rel.map(|rel| in_mount(other.mount(), rel))
}

pub(super) fn in_mount(mount: Mount, rel: &RelPath) -> SandboxPath {
    SandboxPath::new(mount, rel.clone())
}
