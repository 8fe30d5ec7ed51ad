//! Recognises runs whose directories came back from a backup.
//!
//! A restored directory has the files of the old one, and another identity. The container of a run holds the old one, so the run cannot go on:
//! nothing distinguishes a copy at its paths from a directory that somebody else put there.

use std::path::PathBuf;

use identity::RunId;

use crate::record::{Place, Workspace};
use run_directories::workspace::open_own;

/// Explains that the directories of a run are copies, if none of those that the daemon made for it is the one of the launch.
///
/// Only a copy of the whole `state_dir` replaces them all. If one differs and another does not, it was replaced.
pub(crate) fn explain(run: RunId, used: &Workspace, own: &[(PathBuf, Place)]) -> Option<String> {
    let is_copy = |(path, was): &(PathBuf, Place)| {
        let found = open_own(path).ok().and_then(|found| Place::of(&found.handle).ok());
        found.is_some_and(|found| !found.is(*was))
    };
    if own.is_empty() || !own.iter().all(is_copy) {
        return None;
    }
    let next = match used {
        Workspace::Managed | Workspace::Clone { .. } | Workspace::CloneOfUrl { .. } => continued(run),
        Workspace::Kept { workspace } => continued(*workspace),
        Workspace::Overlay { .. } | Workspace::Checkpoint { .. } => {
            format!(
                "apply its changes with `coffer run accept {run}`, or drop them with `coffer run discard {run}`"
            )
        }
        Workspace::Base { .. } => {
            format!("drop its changes with `coffer run discard {run}`, and create a new run on its base")
        }
        Workspace::Bind { .. } => "create a new run for the directory that it used".to_owned(),
    };
    Some(format!(
        "its directories are copies of those that it began with, as after a restore from a backup, and its container \
         cannot use copies; {next}"
    ))
}

fn continued(workspace: RunId) -> String {
    format!("continue with its files in a new run: `coffer run create --workspace {workspace}`")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Puts another directory at the path. The old one remains, so that its identity is not used again.
    fn replace(path: &Path) {
        std::fs::rename(path, path.with_extension("old")).unwrap();
        std::fs::create_dir(path).unwrap();
    }

    #[test]
    fn restored_directories_are_told_from_one_that_was_replaced() {
        let state = tempfile::tempdir().unwrap();
        let own = ["state", "private"].map(|name| {
            let path = state.path().join(name);
            std::fs::create_dir(&path).unwrap();
            let place = Place::of(&open_own(&path).unwrap().handle).unwrap();
            (path, place)
        });
        let run = RunId::new();
        let told = |used: &Workspace| explain(run, used, &own);
        assert_eq!(told(&Workspace::Managed), None, "nothing has changed");
        replace(&own[0].0);
        assert_eq!(told(&Workspace::Managed), None, "the other one is still that of the launch");
        replace(&own[1].0);
        let kept = RunId::new();
        for (used, next) in [
            (Workspace::Managed, format!("`coffer run create --workspace {run}`")),
            (Workspace::Kept { workspace: kept }, format!("`coffer run create --workspace {kept}`")),
            (Workspace::Overlay { path: "/srv/a".into() }, format!("`coffer run accept {run}`")),
            (Workspace::Bind { path: "/srv/a".into() }, "create a new run".to_owned()),
        ] {
            let told = told(&used).unwrap();
            assert!(told.contains("as after a restore from a backup") && told.contains(&next), "{told}");
            assert!(!told.contains("/srv"), "no path of the host: {told}");
        }
        std::fs::remove_dir(&own[1].0).unwrap();
        assert_eq!(told(&Workspace::Managed), None, "a directory that is gone is no copy");
    }
}
