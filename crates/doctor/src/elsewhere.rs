//! Sockets of engines that a newcomer may have, beside that of Docker's package.

use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

/// Most users whose directories are searched.
const USERS: usize = 64;

/// Returns the sockets of Podman and of engines without root on this host, as far as this user may see them.
pub(crate) fn sockets() -> Vec<PathBuf> {
    below(Path::new("/run"))
}

fn below(run: &Path) -> Vec<PathBuf> {
    let users = fs::read_dir(run.join("user")).into_iter().flatten().flatten().take(USERS);
    let mut users: Vec<PathBuf> = users.map(|user| user.path()).collect();
    users.sort();
    let of_users = users.iter().flat_map(|user| [user.join("docker.sock"), user.join("podman/podman.sock")]);
    let is_socket = |path: &PathBuf| fs::metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    std::iter::once(run.join("podman/podman.sock")).chain(of_users).filter(is_socket).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn sockets_of_podman_and_of_users_are_found_and_other_files_are_not() {
        let run = tempfile::tempdir().unwrap();
        assert!(below(run.path()).is_empty());
        for directory in ["podman", "user/1000/podman", "user/1001"] {
            fs::create_dir_all(run.path().join(directory)).unwrap();
        }
        let _listeners = ["podman/podman.sock", "user/1000/podman/podman.sock", "user/1001/docker.sock"]
            .map(|socket| UnixListener::bind(run.path().join(socket)).unwrap());
        fs::write(run.path().join("user/1000/docker.sock"), "").unwrap();
        let found = ["podman/podman.sock", "user/1000/podman/podman.sock", "user/1001/docker.sock"];
        assert_eq!(below(run.path()), found.map(|socket| run.path().join(socket)));
    }
}
