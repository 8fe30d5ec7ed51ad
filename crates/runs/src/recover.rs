//! What a host worker left that died together with its daemon: put right before the next client is let in.
//!
//! A host worker that outlives its daemon, or a daemon that outlives its host worker, sees to it themselves. Here nobody did: the run's
//! private directory says that something was begun and is not over. The workspace is opened again as for a launch, and a
//! jailed process does what the host worker would have done. Its owner must still be the one that the private directory was
//! made for: what one user's run has noted is never acted on as another user.

#![expect(clippy::disallowed_methods, reason = "directories that the daemon made, by their names alone")]

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::time::Duration;

use executor::launcher;
use host_launch::{HostWorkerSpec, Owner};
use identity::RunId;
use jail::Private;
use refusal::chain;
use rustix::fs::{Mode, OFlags};
use store::run::{Changes, Record};

use crate::directories::Directories;
use crate::launch::source;
use crate::remove::remove_tree;
use crate::workspace::Roots;

/// Longest that the recovery of one run may take.
const LONGEST: Duration = Duration::from_secs(60);

/// Recovers what is left of these runs, none of which lives, and removes what is left of others. Those that live see to
/// it themselves.
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
            Ok(words) => tracing::warn!(run = %id, words, "operations that were killed were put right"),
            Err(why) => {
                tracing::error!(run = %id, why, "operations were killed and what they left stays: see its workspace");
            }
        }
    }
}

/// What was done; empty when nothing had to be.
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
        // What was begun was begun in the overlay, and not in the directory beneath it. Its user has the private directory, too.
        source::overlay_again(&run, path, layer, owner, directories, roots)?
    } else if path.starts_with(directories.workspaces()) {
        open(path).map_err(|error| chain(&error))?
    } else {
        roots.reopen(path).ok_or("its workspace no longer exists")?
    };
    let found = rustix::fs::fstat(workspace.as_fd()).map_err(|error| chain(&error))?;
    if (found.st_uid, found.st_gid) != (owner.uid, owner.gid) {
        return Err("its workspace belongs to somebody else by now".to_owned());
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

/// Opens a directory of the daemon's own.
fn open(path: &Path) -> Result<OwnedFd, rustix::io::Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}
