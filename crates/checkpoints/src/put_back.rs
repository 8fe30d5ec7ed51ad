//! Makes the directories of a run what they were at a checkpoint. No process of the run uses them meanwhile.
//!
//! A host worker does it, as the owner of the files. The one of an overlay sees them as files of the run's user, through the mount that
//! the run has. So the checkpoints and the directory beneath are mounted read-only for it, with the same owner.

use std::path::{Path, PathBuf};

use executor::{Directory, layer};
use host_launch::Owner;
use jail::Mount;
use operations::Reason;
use refusal::Refusal;
use runs::record::Record;
use runs::{Runs, Seen, open_directory};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use tokio::task::{block_in_place, spawn_blocking};

use crate::changed::changed;
use crate::record::{Checkpoint, Part};

/// Checks that the checkpoints differ only in parts that can be put back.
pub(crate) fn check(to: &Checkpoint, before: &Checkpoint) -> Result<(), Refusal> {
    for fixed in [Part::Root, Part::Repository] {
        let digest = |checkpoint: &Checkpoint| {
            let part = checkpoint.parts.iter().find(|part| part.part == fixed);
            part.map(|part| part.digest.clone())
        };
        if digest(to) != digest(before) {
            let what = match fixed {
                Part::Root => "its writable root",
                _ => "the repository of its linked work tree",
            };
            let message = format!(
                "the run has changed {what} since the checkpoint, which cannot be put back, so nothing was restored: \
                 create a run with workspace.checkpoint, or copy what you need out of the checkpoint"
            );
            return Err(Refusal::new(Reason::PreconditionFailed, message));
        }
    }
    Ok(())
}

/// Makes the workspace and `/state` of a run what they were at `to`. `now` names what is changed at present.
pub(crate) async fn put_back(
    runs: &Runs,
    run: &Record,
    to: &Checkpoint,
    now: &Checkpoint,
) -> Result<(), Refusal> {
    let directories = &runs.launcher.directories;
    // No run has this id, so a daemon that starts removes what is mounted here.
    let slots = directories.slots(&now.id.to_string());
    make_slots(&slots).map_err(failed)?;
    let mut done = Ok(());
    for into in changed(directories, run)? {
        if into.part == Part::State && is_same(Part::State, to, now) {
            continue;
        }
        let part = |checkpoint: &Checkpoint| directories.checkpoint(checkpoint.id).join(into.part.name());
        done = match into.part {
            Part::Workspace if into.is_layer => layered(runs, run, &slots, (part(to), part(now))).await,
            Part::Workspace | Part::State => plain(&slots, &part(to), &into.directory).await,
            Part::Root | Part::Repository => Ok(()),
        };
        if done.is_err() {
            break;
        }
    }
    // Not empty if a mount could not be removed. The next start tries again.
    let _ = rustix::fs::unlinkat(CWD, &slots, AtFlags::REMOVEDIR);
    done
}

/// Returns true if both checkpoints have the same copy of a part, so that nothing has to be put back.
///
/// A digest does not cover special files, which a restore removes.
fn is_same(part: Part, to: &Checkpoint, now: &Checkpoint) -> bool {
    let copy = |of: &Checkpoint| of.parts.iter().find(|copy| copy.part == part).cloned();
    copy(to).is_some_and(|to| to.left_out == 0 && copy(now) == Some(to))
}

async fn plain(slots: &Path, part: &Path, into: &Directory) -> Result<(), Refusal> {
    let saved = block_in_place(|| Seen::of(open(part)?, &slots.join("saved"), into.owner))?;
    layer::restore(saved.directory(), into, None).await?;
    sync(&into.path).await
}

async fn layered(
    runs: &Runs,
    run: &Record,
    slots: &Path,
    (to, now): (PathBuf, PathBuf),
) -> Result<(), Refusal> {
    let made_as = run.made_as().unwrap_or(run.id).to_string();
    let workspace = runs.launcher.directories.slots(&made_as).join(&Mount::Project.container_path()[1..]);
    let into = open(&workspace)?;
    let spec = runs.layer_of(run)?;
    let owner = Owner { uid: spec.owner_uid, gid: spec.owner_gid };
    let beneath = Directory { handle: spec.beneath, path: PathBuf::new(), owner, is_mapped: false };
    let (saved, now, beneath) = block_in_place(|| {
        Ok::<_, Refusal>((
            Seen::of(open(&to)?, &slots.join("saved"), into.owner)?,
            Seen::of(open(&now)?, &slots.join("now"), into.owner)?,
            Seen::of(beneath, &slots.join("beneath"), into.owner)?,
        ))
    })?;
    layer::restore(saved.directory(), &into, Some((beneath.directory(), now.directory()))).await?;
    sync(&into.path).await
}

fn open(path: &Path) -> Result<Directory, Refusal> {
    open_directory(path).map_err(|error| Refusal::internal("opening a directory to restore", &error))
}

/// Makes the restored files durable.
async fn sync(directory: &Path) -> Result<(), Refusal> {
    let path = directory.to_owned();
    let synced = spawn_blocking(move || -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::syncfs(rustix::fs::open(&path, flags, Mode::empty())?)
    });
    let synced = synced.await.map_err(|error| Refusal::internal("restoring files", &error))?;
    synced.map_err(failed)
}

fn make_slots(slots: &Path) -> Result<(), Errno> {
    for directory in [slots.parent().ok_or(Errno::INVAL)?, slots] {
        match rustix::fs::mkdir(directory, Mode::RWXU | Mode::RGRP | Mode::XGRP | Mode::ROTH | Mode::XOTH) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn failed(errno: Errno) -> Refusal {
    Refusal::internal("restoring files", &errno)
}

#[cfg(test)]
mod tests {
    use identity::RunId;
    use timestamp::Timestamp;

    use super::*;
    use crate::record::PartCopy;
    use crate::table::tests::checkpoint;

    #[test]
    fn checkpoints_that_differ_in_a_root_or_a_repository_are_refused() {
        let before = checkpoint(RunId::new(), Timestamp::now(), 1);
        let with = |part, digest: &str| {
            let mut other = before.clone();
            other.parts.push(PartCopy { part, digest: digest.to_owned(), bytes: 0, files: 1, left_out: 0 });
            other
        };
        let mut other = before.clone();
        other.parts[0].digest = "cd".repeat(32);
        check(&other, &before).unwrap();
        for (part, what) in [(Part::Root, "root"), (Part::Repository, "repository")] {
            check(&with(part, "a"), &with(part, "a")).unwrap();
            for refused in [check(&with(part, "a"), &with(part, "b")), check(&before, &with(part, "a"))] {
                let refused = refused.unwrap_err();
                assert!(refused.reason == Reason::PreconditionFailed && refused.message.contains(what));
            }
        }
        check(&with(Part::State, "a"), &before).unwrap();
    }

    #[test]
    fn a_part_is_put_back_unless_both_checkpoints_have_the_same_copy_of_it() {
        let with = |digest: &str, left_out| {
            let mut made = checkpoint(RunId::new(), Timestamp::now(), 1);
            let digest = digest.to_owned();
            made.parts = vec![PartCopy { part: Part::State, digest, bytes: 1, files: 1, left_out }];
            made
        };
        assert!(is_same(Part::State, &with("a", 0), &with("a", 0)));
        assert!(!is_same(Part::State, &with("a", 0), &with("b", 0)));
        assert!(!is_same(Part::State, &with("a", 1), &with("a", 1)), "special files may be others");
        assert!(!is_same(Part::State, &with("a", 0), &with("a", 1)), "a special file is new");
        assert!(!is_same(Part::Workspace, &with("a", 0), &with("a", 0)), "neither has one");
    }
}
