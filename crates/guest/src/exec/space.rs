//! Finds out whether a command had no space left to write to.
//!
//! A program on a full disk reports that in its own words, if at all, and does not name the disk.

use std::path::Path;

use jail::Mount;
use operations::Limit;
use rustix::fs::statvfs;

use crate::args::Mounts;

/// Returns the limits of the run's file systems that have no space for more bytes, or for another file.
pub(super) fn full(mounts: &Mounts) -> Vec<Limit> {
    let places = mounts.iter().filter_map(|(mount, at)| match mount {
        Mount::Project => Some((Limit::ProjectSpace, at.as_path())),
        Mount::State => Some((Limit::StateSpace, at.as_path())),
        Mount::Pkg | Mount::Container => None,
    });
    places
        .chain([(Limit::TmpSpace, Path::new("/tmp")), (Limit::ShmSpace, Path::new("/dev/shm"))])
        .filter(|(_, at)| is_full(at))
        .map(|(limit, _)| limit)
        .collect()
}

fn is_full(at: &Path) -> bool {
    // A file system without a fixed number of blocks or files has no such limit.
    statvfs(at).is_ok_and(|found| {
        (found.f_blocks > 0 && found.f_bavail == 0) || (found.f_files > 0 && found.f_favail == 0)
    })
}
