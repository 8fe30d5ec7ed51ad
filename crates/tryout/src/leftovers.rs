//! Removes what a private daemon may leave: mounts, containers and its directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::mount::{UnmountFlags, unmount};
use tokio::process::Command;

use crate::failure::Failure;

/// Deletes a directory, but never through a mount that a killed daemon left in it.
pub(crate) fn remove(directory: &Path) -> Result<(), Failure> {
    for mount in mounts(directory)? {
        let _ = unmount(mount.as_path(), UnmountFlags::DETACH);
    }
    if let Some(mount) = mounts(directory)?.first() {
        return Err(Failure::failed(
            format!("{} was left there, because {} is still mounted", directory.display(), mount.display()),
            format!("`umount {}`, then delete the directory", mount.display()),
        ));
    }
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Failure::of_file(directory, &error))
        }
        _ => Ok(()),
    }
}

fn mounts(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let table = Path::new("/proc/self/mountinfo");
    let text = fs::read_to_string(table).map_err(|error| Failure::of_file(table, &error))?;
    Ok(mounts_beneath(directory, &text))
}

/// Returns the mounts beneath a directory, the deepest first.
fn mounts_beneath(directory: &Path, mountinfo: &str) -> Vec<PathBuf> {
    let points = mountinfo.lines().filter_map(|line| line.split(' ').nth(4));
    let mut mounts: Vec<PathBuf> = points
        .map(|point| PathBuf::from(unescaped(point)))
        .filter(|path| path.starts_with(directory))
        .collect();
    mounts.sort();
    mounts.reverse();
    mounts
}

/// Replaces the escapes of proc_pid_mountinfo(5): space, tab, newline and backslash.
fn unescaped(point: &str) -> String {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    escapes.into_iter().fold(point.to_owned(), |text, (escape, sign)| text.replace(escape, sign))
}

/// Removes the containers of a daemon that was killed. Without the `docker` command they stay until a restart of it.
pub(crate) async fn remove_containers(instance: &str) {
    if instance.is_empty() {
        return;
    }
    let filter = format!("label=io.cofferdam.instance={instance}");
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
    fn mounts_of_the_directory_alone_are_removed_deepest_first() {
        let mountinfo = "\
            22 1 8:1 / / rw - ext4 /dev/vda rw\n\
            30 22 8:1 /w /var/tmp/a/state/mounts/1 rw - ext4 /dev/vda rw\n\
            31 30 8:1 /w /var/tmp/a/state/mounts/1/with\\040space rw - ext4 /dev/vda rw\n\
            32 22 8:1 /w /var/tmp/ab/state rw - ext4 /dev/vda rw\n";
        assert_eq!(
            mounts_beneath(Path::new("/var/tmp/a"), mountinfo),
            [
                PathBuf::from("/var/tmp/a/state/mounts/1/with space"),
                PathBuf::from("/var/tmp/a/state/mounts/1")
            ]
        );
    }

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
