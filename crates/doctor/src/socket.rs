//! The users who may open a Unix socket, from its owner, group and mode.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Largest file of accounts that is read, bytes.
const LONGEST: u64 = 4 * 1024 * 1024;

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

/// Returns the name that a file of accounts has for an id, or the id.
fn name(file: &str, id: u32) -> String {
    let is_long = fs::metadata(file).is_ok_and(|meta| meta.len() > LONGEST);
    let text = if is_long { String::new() } else { fs::read_to_string(file).unwrap_or_default() };
    let id = id.to_string();
    let found = text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == id).then(|| name.to_owned())
    });
    found.unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

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
        assert_eq!(name("/etc/passwd", 0), "root");
        assert_eq!(name("/nonexistent", 7), "7");
    }
}
