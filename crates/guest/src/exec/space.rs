//! Whether a command had no room left to write to. A program that meets the end of a disk says so in its own words, if
//! at all, and not whose disk it was.

use std::path::Path;

use jail::Mount;
use operations::Limit;
use rustix::fs::statvfs;

use crate::args::Mounts;

/// The places of a run that have no room, or no room for another file.
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
    // A file system without a number of blocks or files has no such limit.
    statvfs(at).is_ok_and(|found| {
        (found.f_blocks > 0 && found.f_bavail == 0) || (found.f_files > 0 && found.f_favail == 0)
    })
}
