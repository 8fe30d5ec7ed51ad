//! The directories that have the changes of a run, for a checkpoint of it.

use std::path::PathBuf;

use executor::Directory;
use operations::Reason;
use refusal::Refusal;
use runs::record::{Record, Workspace};
use runs::{Directories, open_directory};
use tokio::task::block_in_place;

use crate::record::Part;

/// Directory with a part of a run's changes.
#[derive(Debug)]
pub(crate) struct Changed {
    pub(crate) part: Part,
    pub(crate) directory: Directory,
    /// True if it is the upper layer of an overlay.
    pub(crate) is_layer: bool,
}

/// Opens the directories with the changes of a run. Refuses a run that changes a directory of the host in place.
pub(crate) fn changed(directories: &Directories, record: &Record) -> Result<Vec<Changed>, Refusal> {
    let run = record.id.to_string();
    let mut found = Vec::new();
    match &record.spec.workspace {
        Workspace::Bind { .. } => {
            return Err(Refusal::new(
                Reason::PreconditionFailed,
                "the run changes a directory of the host in place (workspace.bind), which a checkpoint does not copy: \
                 create the run with workspace.overlay, workspace.base, workspace.clone or a managed workspace",
            ));
        }
        Workspace::Managed | Workspace::Clone { .. } | Workspace::CloneOfUrl { .. } => {
            found.push((Part::Workspace, directories.workspace(&run), false));
        }
        Workspace::Kept { workspace } => {
            found.push((Part::Workspace, directories.workspace(&workspace.to_string()), false));
        }
        Workspace::Overlay { .. } | Workspace::Base { .. } | Workspace::Checkpoint { .. } => {
            let layers = directories.layer(&run);
            found.push((Part::Workspace, layers.join("upper"), true));
            found.push((Part::Repository, layers.join("repository").join("upper"), true));
        }
    }
    found.push((Part::State, directories.run_state(&run), false));
    found.push((Part::Root, directories.root_layer(&run).join("upper"), true));
    found.sort_by_key(|(part, ..)| *part);
    let open = |(part, path, is_layer): (Part, PathBuf, bool)| match block_in_place(|| open_directory(&path))
    {
        Ok(directory) => Some(Ok(Changed { part, directory, is_layer })),
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
