//! Finds the run's directories for this process: at the top of its root, or, in the weaker form, at their paths on the host.

use std::path::PathBuf;
use std::sync::OnceLock;

use host_launch::args::JailMount;

static LINKED: OnceLock<String> = OnceLock::new();
static ON_THE_HOST: OnceLock<Vec<(JailMount, PathBuf)>> = OnceLock::new();

/// Records, once, that this process has the host's root, with the host's paths of the directories.
pub(crate) fn stay_on_the_host(paths: Vec<(JailMount, PathBuf)>) {
    // Set-up happens once.
    let _ = ON_THE_HOST.set(paths);
}

/// Records, once, that the workspace is the repository's linked work tree of this name.
pub(crate) fn link(work_tree: &str) {
    let _ = LINKED.set(work_tree.to_owned());
}

/// Returns the name of the linked work tree, if the workspace is one.
pub(crate) fn linked() -> Option<&'static str> {
    LINKED.get().map(String::as_str)
}

/// Returns true if this process has the host's root.
pub(crate) fn is_on_the_host() -> bool {
    ON_THE_HOST.get().is_some()
}

/// Returns the path of the directory; `None` if there is none.
pub(crate) fn path(jail_mount: JailMount) -> Option<PathBuf> {
    match ON_THE_HOST.get() {
        None => Some(PathBuf::from(format!("/{}", jail_mount.name()))),
        Some(paths) => paths.iter().find(|(each, _)| *each == jail_mount).map(|(_, path)| path.clone()),
    }
}
