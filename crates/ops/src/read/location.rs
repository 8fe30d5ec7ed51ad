//! Where a walker is: the path for the rules, also where no path can say it exactly.

use jail::{EntryName, Mount, RelPath, SandboxPath};

/// `name` in `dir`. A name that is not UTF-8 is taken as it is shown, which is exact enough for the rules about names
/// and for what lies below. `None` where there is no such path at all (too long): nothing below is visited then.
pub(super) fn below(dir: &RelPath, name: &EntryName) -> Option<RelPath> {
    dir.join(name).or_else(|| dir.join(&EntryName::new(name.shown().as_bytes())?))
}

/// The path in the mount of another one.
pub(super) fn beside(other: &SandboxPath, rel: Option<&RelPath>) -> Option<SandboxPath> {
    rel.map(|rel| in_mount(other.mount(), rel))
}

pub(super) fn in_mount(mount: Mount, rel: &RelPath) -> SandboxPath {
    SandboxPath::new(mount, rel.clone())
}
