//! Makes the directories of a checkpoint: in a staging directory first, which becomes the checkpoint by one rename.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use atomic_file::tree as complete;
pub(crate) use atomic_file::tree::staging;
use executor::layer;
use host_launch::{Marks, Owner, TreeBounds};
use identity::CheckpointId;
use operations::{Digest, Reason};
use refusal::Refusal;
use runs::make_directory;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use tokio::task::{block_in_place, spawn_blocking};
use wire::v1;

use crate::changed::Changed;
use crate::opaque::opaque;
use crate::record::{Part, PartCopy};

/// Name of the list, beside the copied names, of a root's directories that hide the one beneath.
const OPAQUE: &str = "opaque";

/// Makes the empty staging directory, which only the daemon may enter.
pub(crate) fn begin(staging: &Path) -> Result<(), Refusal> {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let made = block_in_place(|| make_directory(staging, Owner { uid: uid.as_raw(), gid: gid.as_raw() }));
    made.map(drop).map_err(|error| Refusal::internal("making the directory of a checkpoint", &error))
}

/// Returns the present time by the clock of the file system that has the staging directory.
pub(crate) fn clock(staging: &Path) -> Result<(i64, u32), Refusal> {
    let changed = || -> Result<_, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = rustix::fs::open(staging, flags, Mode::empty())?;
        // Even the same mode is a change, which gets a time.
        rustix::fs::fchmod(&directory, Mode::RWXU)?;
        rustix::fs::fstat(&directory)
    };
    let stat = block_in_place(changed);
    let stat = stat.map_err(|errno| Refusal::internal("looking at the directory of a checkpoint", &errno))?;
    Ok((stat.st_ctime, u32::try_from(stat.st_ctime_nsec).unwrap_or(0)))
}

/// Copies one directory of a run into the staging directory, within `most`.
pub(crate) async fn part(staging: &Path, from: &Changed, most: TreeBounds) -> Result<PartCopy, Refusal> {
    let part = from.part;
    let path = staging.join(part.name());
    let into = block_in_place(|| make_directory(&path, from.directory.owner))
        .map_err(|error| Refusal::internal("making the directory of a checkpoint", &error))?;
    let marks = if from.is_layer { Marks::Listed } else { Marks::Ignored };
    let saved = layer::save(&from.directory, &into, most, marks).await;
    let mut copy = copied(part, saved.map_err(|refusal| at(part, refusal))?);
    if part == Part::Root {
        let listed = block_in_place(|| list_opaque(&path, from, most.files));
        let listed = listed.map_err(|error| Refusal::internal("reading the layer of a root", &error))?;
        let mut digest = Digest::default();
        digest.update(copy.digest.as_bytes());
        digest.update(&listed);
        copy.digest = digest.hex();
    }
    Ok(copy)
}

fn copied(part: Part, answer: v1::Base) -> PartCopy {
    let v1::Base { digest, size_bytes: bytes, files, left_out, .. } = answer;
    PartCopy { part, digest, bytes, files, left_out }
}

fn list_opaque(part: &Path, from: &Changed, most: u64) -> io::Result<Vec<u8>> {
    let listed = opaque(&from.directory.handle, most)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let list = rustix::fs::open(part.join(OPAQUE), flags, Mode::RUSR | Mode::WUSR)?;
    // Its owner reads it, whatever the umask of the daemon is.
    rustix::fs::fchmod(&list, Mode::from_raw_mode(0o644))?;
    File::from(list).write_all(&listed)?;
    Ok(listed)
}

/// Names the part that cannot be copied.
fn at(part: Part, refusal: Refusal) -> Refusal {
    match refusal.reason {
        Reason::PreconditionFailed => {
            let message = format!("no checkpoint was made: {} of the run: {}", part.name(), refusal.message);
            Refusal { message, ..refusal }
        }
        _ => refusal,
    }
}

/// Gives a tree its final name, and returns when the tree and the name are on disk.
pub(crate) async fn place(path: &Path) -> Result<(), Refusal> {
    let path = path.to_owned();
    let placed = spawn_blocking(move || complete::place(&path)).await;
    placed
        .map_err(|error| Refusal::internal("placing a checkpoint", &error))?
        .map_err(|error| Refusal::internal("placing a checkpoint", &error))
}

/// Returns the id of the checkpoint whose tree, complete or not, has this name.
pub(crate) fn id_of(name: &str) -> Option<CheckpointId> {
    CheckpointId::parse(complete::final_name(name)).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_tree_has_its_final_name_alone_when_it_is_placed() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("checkpoints").join(CheckpointId::new().to_string());
        begin(&staging(&path)).unwrap();
        fs::write(staging(&path).join("file"), "x").unwrap();
        super::place(&path).await.unwrap();
        assert!(!staging(&path).exists());
        assert_eq!(fs::read(path.join("file")).unwrap(), b"x");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_clock_is_that_of_the_files_and_goes_on() {
        use std::os::unix::fs::MetadataExt as _;

        let place = tempfile::tempdir().unwrap();
        let staging = place.path().join("x.part");
        fs::create_dir(&staging).unwrap();
        let changed = |path: &Path| {
            let meta = fs::metadata(path).unwrap();
            (meta.ctime(), u32::try_from(meta.ctime_nsec()).unwrap())
        };
        let (before, after) = (place.path().join("before"), place.path().join("after"));
        fs::write(&before, "x").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        let now = clock(&staging).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::write(&after, "x").unwrap();
        assert!(changed(&before) < now && now < changed(&after), "{now:?}");
        assert!(clock(&place.path().join("none")).is_err());
    }

    #[test]
    fn names_of_trees_have_the_ids_of_their_checkpoints() {
        let id = CheckpointId::new();
        assert_eq!((id_of(&id.to_string()), id_of(&format!("{id}.part"))), (Some(id), Some(id)));
        assert_eq!((id_of("x"), id_of(".part")), (None, None));
    }
}
