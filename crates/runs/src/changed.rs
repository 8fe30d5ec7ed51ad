//! The directories that have the changes of a run, for a checkpoint of it.

use std::path::PathBuf;

use executor::Directory;
use operations::Reason;
use refusal::Refusal;
use tokio::task::block_in_place;

use crate::record::{Record, Workspace};
use crate::registry::Runs;
use crate::workspace::open_own;

/// Part of a run's changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Workspace,
    State,
    /// The layer of a writable root. Its marks are attributes that only root can read.
    Root,
    /// The layer of the repository whose linked work tree the workspace is.
    Repository,
}

/// Directory with a part of a run's changes.
#[derive(Debug)]
pub struct ChangedDirectory {
    pub part: Part,
    pub directory: Directory,
    /// True if it is the upper layer of an overlay.
    pub is_layer: bool,
}

impl Runs {
    /// Opens the directories with the changes of a run. Refuses a run that changes a directory of the host in place.
    pub fn changed_directories(&self, record: &Record) -> Result<Vec<ChangedDirectory>, Refusal> {
        let (run, directories) = (record.id.to_string(), &self.launcher.directories);
        let mut found = Vec::new();
        match &record.spec.workspace {
            Workspace::Bind { .. } => {
                return Err(Refusal::new(
                    Reason::PreconditionFailed,
                    "the run changes a directory of the host in place (workspace.bind), which a checkpoint does not copy: \
                     create the run with workspace.overlay, workspace.base, workspace.clone or a managed workspace",
                ));
            }
            Workspace::Managed | Workspace::Clone { .. } => {
                found.push((Part::Workspace, directories.workspace(&run), false));
            }
            Workspace::Kept { workspace } => {
                found.push((Part::Workspace, directories.workspace(&workspace.to_string()), false));
            }
            Workspace::Overlay { .. } | Workspace::Base { .. } => {
                let layers = directories.layer(&run);
                found.push((Part::Workspace, layers.join("upper"), true));
                found.push((Part::Repository, layers.join("repository").join("upper"), true));
            }
        }
        found.push((Part::State, directories.run_state(&run), false));
        found.push((Part::Root, directories.root_layer(&run).join("upper"), true));
        found.sort_by_key(|(part, ..)| *part);
        let open = |(part, path, is_layer): (Part, PathBuf, bool)| match block_in_place(|| open_own(&path)) {
            Ok(directory) => Some(Ok(ChangedDirectory { part, directory, is_layer })),
            Err(error)
                if error.kind() == std::io::ErrorKind::NotFound
                    && matches!(part, Part::Root | Part::Repository) =>
            {
                None
            }
            Err(error) => Some(Err(Refusal::internal("opening the changes of a run", &error))),
        };
        found.into_iter().filter_map(open).collect()
    }
}
