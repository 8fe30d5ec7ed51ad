//! Removes what a private daemon may leave: mounts, containers and its directory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use crate::failure::Failure;

/// Deletes a directory, but never through a mount that a killed daemon left in it.
pub(crate) fn remove(directory: &Path) -> Result<(), Failure> {
    for mount in mounts(directory)? {
        let _ = leftovers::detach(&mount);
    }
    if let Some(mount) = mounts(directory)?.first() {
        return Err(Failure::failed(
            format!("{} was left there, because {} is still mounted", directory.display(), mount.display()),
            format!("`umount {}`, then delete the directory", mount.display()),
        ));
    }
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Failure::of_file(directory, &error)),
        _ => Ok(()),
    }
}

fn mounts(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    match leftovers::mounts_below(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        found => found.map_err(|error| Failure::of_file(directory, &error)),
    }
}

/// Removes the containers of a daemon that was killed. Without the `docker` command they stay until a restart of it.
pub(crate) async fn remove_containers(instance: &str) {
    if instance.is_empty() {
        return;
    }
    let filter = format!("label={}={instance}", leftovers::LABEL_INSTANCE);
    let mut list = Command::new("docker");
    list.args(["ps", "--all", "--quiet", "--filter", &filter]).stdin(Stdio::null()).stderr(Stdio::null());
    let Ok(listed) = list.kill_on_drop(true).output().await else { return };
    let ids = String::from_utf8_lossy(&listed.stdout);
    for id in ids.split_whitespace() {
        let mut remove = Command::new("docker");
        remove.args(["rm", "--force", id]).stdin(Stdio::null()).kill_on_drop(true);
        let _ = remove.output().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_gone_needs_no_removal() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("gone");
        fs::create_dir(&path).unwrap();
        assert_eq!(remove(&path), Ok(()));
        assert_eq!(remove(&path), Ok(()));
        assert!(!path.exists());
    }
}
