//! The users who may open a Unix socket, from its owner, group and mode.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::accounts::name;
use crate::commands::Host;
use crate::remedy::Remedy;

/// Describes who may open a socket, or enter the first closed directory above it. Empty if neither can be read.
pub fn who_may_open(socket: &Path) -> String {
    let seen = socket.ancestors().find_map(|path| Some((path, fs::metadata(path).ok()?)));
    let Some((path, meta)) = seen else { return String::new() };
    let user = name("/etc/passwd", meta.uid());
    let group = name("/etc/group", meta.gid());
    let path = path.display();
    if meta.mode() & 0o070 == 0 {
        return format!("{path} is accessible to user {user} only");
    }
    format!("{path} is accessible to user {user} and members of group {group}")
}

/// Returns the command that makes this user a member of the group that may open a socket.
///
/// `None` if no other group than root's may, or if the socket does not exist.
pub fn join_group(socket: &Path) -> Option<Remedy> {
    group_of(socket, &Host::detect())
}

/// Like [`join_group`], for the user of `host`.
pub(crate) fn group_of(socket: &Path, host: &Host) -> Option<Remedy> {
    const ROOT: u32 = 0;
    let meta = fs::metadata(socket).ok()?;
    let is_open = meta.mode() & 0o060 == 0o060;
    if !is_open || meta.gid() == ROOT {
        return None;
    }
    host.join(&name("/etc/group", meta.gid()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn only_an_open_group_other_than_that_of_root_is_joined() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        fs::write(&socket, "").unwrap();
        let host = Host { user: Some("alice".into()), ..Host::default() };
        let joined = |mode| {
            fs::set_permissions(&socket, fs::Permissions::from_mode(mode)).unwrap();
            group_of(&socket, &host).map(|remedy| remedy.shown())
        };
        let gid = fs::metadata(&socket).unwrap().gid();
        let group = name("/etc/group", gid);
        let expected = (gid != 0).then(|| format!("sudo usermod --append --groups {group} alice"));
        assert_eq!((joined(0o600), joined(0o660)), (None, expected));
        assert_eq!(group_of(&dir.path().join("gone"), &host), None);
    }

    #[test]
    fn a_socket_names_its_user_and_group() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        fs::write(&socket, "").unwrap();
        let meta = fs::metadata(&socket).unwrap();
        let (user, group) = (name("/etc/passwd", meta.uid()), name("/etc/group", meta.gid()));
        let said = |mode| {
            fs::set_permissions(&socket, fs::Permissions::from_mode(mode)).unwrap();
            who_may_open(&socket)
        };
        assert_eq!(
            said(0o660),
            format!("{} is accessible to user {user} and members of group {group}", socket.display())
        );
        assert_eq!(said(0o600), format!("{} is accessible to user {user} only", socket.display()));
        assert!(
            who_may_open(&dir.path().join("gone/s")).starts_with(&format!("{} is", dir.path().display()))
        );
    }
}
