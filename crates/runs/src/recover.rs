//! Recovers from operations of a host worker that died together with its daemon, before the next client is admitted.
//!
//! A host worker that outlives its daemon, or a daemon that outlives its host worker, recovers by itself. Here neither did, and the run's
//! private directory shows an operation that was not finished. The workspace is opened as for a launch, and a jailed process does what the
//! host worker would have done. The workspace must still have the owner for whom the private directory was made: the notes of one user's
//! run are never executed as another user.

#![expect(clippy::disallowed_methods, reason = "directories that the daemon made, by their names alone")]

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::time::Duration;

use crate::record::{Changes, Record};
use executor::launcher;
use host_launch::{HostWorkerSpec, Owner};
use identity::RunId;
use jail::Private;
use refusal::chain;
use rustix::fs::{Mode, OFlags};

use crate::launch::source;
use ::leftovers::remove_tree;
use run_directories::directories::Directories;
use run_directories::workspace::Roots;

/// Longest that the recovery of one run may take.
const LONGEST: Duration = Duration::from_secs(60);

/// Recovers these runs, none of which is live, and removes the private directories of unknown runs. A live run recovers by itself.
pub(crate) async fn recover(
    records: Vec<Record>,
    directories: &Directories,
    roots: &Roots,
    lives: impl Fn(RunId) -> bool,
) {
    let records: BTreeMap<RunId, Record> = records.into_iter().map(|record| (record.id, record)).collect();
    for entry in std::fs::read_dir(directories.privates()).into_iter().flatten().flatten() {
        let run = entry.file_name().to_str().and_then(|name| RunId::parse(name).ok());
        if run.is_some_and(&lives) {
            continue;
        }
        let Some(record) = run.and_then(|run| records.get(&run)) else {
            tracing::warn!(path = %entry.path().display(), "removing the private directory of a run that is gone");
            remove_tree(entry.path()).await;
            continue;
        };
        let (id, record, directories, roots) =
            (record.id, record.clone(), directories.clone(), roots.clone());
        let recovered = tokio::task::spawn_blocking(move || one(&record, &directories, &roots)).await;
        match recovered.unwrap_or_else(|error| Err(chain(&error))) {
            Ok(words) if words.is_empty() => {}
            Ok(words) => tracing::warn!(run = %id, words, "unfinished operations were repaired"),
            Err(why) => {
                tracing::error!(run = %id, why, "operations were not finished and could not be repaired: check the workspace");
            }
        }
    }
}

/// Returns a description of the recovery. It is empty if none was necessary.
fn one(record: &Record, directories: &Directories, roots: &Roots) -> Result<String, String> {
    let run = record.id.to_string();
    let private = open(&directories.private(&run)).map_err(|error| chain(&error))?;
    let owner = rustix::fs::fstat(&private).map_err(|error| chain(&error))?;
    let owner = Owner { uid: owner.st_uid, gid: owner.st_gid };
    let copy = private.try_clone().map_err(|error| chain(&error))?;
    if Private::of(copy, 0).is_clean().map_err(|error| chain(&error))? {
        return Ok(String::new());
    }
    let path = record.started.as_ref().map(|started| started.workspace_path.as_path());
    let path = path.ok_or("the run never started")?;
    let workspace = if let Some(layer) = record.layer() {
        if layer.changes != Changes::Pending {
            return Ok(String::new());
        }
        // The operation was in the overlay, and not in the directory beneath it. The overlay's user owns the private directory, too.
        source::overlay_again(&run, path, layer, owner, directories, roots)?
    } else if path.starts_with(directories.workspaces()) {
        open(path).map_err(|error| chain(&error))?
    } else {
        roots.reopen(path).ok_or("its workspace no longer exists")?
    };
    let found = rustix::fs::fstat(workspace.as_fd()).map_err(|error| chain(&error))?;
    if (found.st_uid, found.st_gid) != (owner.uid, owner.gid) {
        return Err("its workspace now belongs to another user".to_owned());
    }
    let spec = HostWorkerSpec {
        workspace,
        state: Some(open(&directories.run_state(&run)).map_err(|error| chain(&error))?),
        pkg: None,
        private: Some(private),
        linked: None,
        owner_uid: owner.uid,
        owner_gid: owner.gid,
    };
    launcher().recover(&spec, LONGEST).map_err(|error| chain(&error))
}

/// Opens a directory that the daemon made.
fn open(path: &Path) -> Result<OwnedFd, rustix::io::Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}
