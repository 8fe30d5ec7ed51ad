//! Where the run's directories are for this process: at the top of a root of its own, or, in the weaker form, where they
//! are on the host.

use std::path::PathBuf;
use std::sync::OnceLock;

use host_launch::args::Place;

static LINKED: OnceLock<String> = OnceLock::new();
static ON_THE_HOST: OnceLock<Vec<(Place, PathBuf)>> = OnceLock::new();

/// Says, once, that there is no root of its own, and where things are instead.
pub(crate) fn stay_on_the_host(paths: Vec<(Place, PathBuf)>) {
    // Set-up happens once.
    let _ = ON_THE_HOST.set(paths);
}

/// Says, once, that the workspace is the linked work tree of this name of the repository.
pub(crate) fn link(work_tree: &str) {
    let _ = LINKED.set(work_tree.to_owned());
}

/// The name of the linked work tree that the workspace is.
pub(crate) fn linked() -> Option<&'static str> {
    LINKED.get().map(String::as_str)
}

/// Whether this process has no root of its own.
pub(crate) fn is_on_the_host() -> bool {
    ON_THE_HOST.get().is_some()
}

/// Where the directory is; `None` where there is none.
pub(crate) fn path(place: Place) -> Option<PathBuf> {
    match ON_THE_HOST.get() {
        None => Some(PathBuf::from(format!("/{}", place.name()))),
        Some(paths) => paths.iter().find(|(each, _)| *each == place).map(|(_, path)| path.clone()),
    }
}
