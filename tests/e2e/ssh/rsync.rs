//! rsync to and from a run.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use super::{User, Way, daemon, run_of, text};

/// Prints path, kind, mode and target of each file of a directory, and the digest of each regular one.
const LIST: &str =
    r"find . -printf '%P %y %m %l\n' | LC_ALL=C sort; find . -type f -exec sha256sum {} + | LC_ALL=C sort";

/// The ends of a copy.
struct Copies<'a> {
    user: &'a User<'a>,
    way: Way,
}

impl Copies<'_> {
    async fn copy(&self, from: &str, to: &str) {
        let shell = format!("ssh -F {}", self.way.file.display());
        let copied =
            self.user.runs(Path::new("rsync"), &["-a", "-z", "--delete", "-e", &shell, from, to]).await;
        assert!(copied.status.success(), "{}", text(&copied.stderr));
    }

    /// Runs a script in a directory of the run.
    async fn there(&self, directory: &str, script: &str) -> String {
        let script = format!("cd {directory} && {script}");
        let file = self.way.file.to_str().unwrap();
        let said = self.user.runs(Path::new("ssh"), &["-F", file, &self.way.alias, &script]).await;
        assert!(said.status.success(), "{}", text(&said.stderr));
        text(&said.stdout)
    }

    /// Lists a directory of the host.
    async fn here(&self, directory: &Path) -> String {
        let script = format!("cd '{}' && {LIST}", directory.display());
        let said = self.user.runs(Path::new("sh"), &["-c", &script]).await;
        assert!(said.status.success(), "{}", text(&said.stderr));
        text(&said.stdout)
    }
}

/// Makes a tree with a file of each sort.
fn make_tree(tree: &Path) {
    std::fs::create_dir_all(tree.join("sub dir")).unwrap();
    let large: Vec<u8> = (0..3_000_000_u32).map(|byte| (byte % 251) as u8).collect();
    for (name, content, mode) in [
        ("sub dir/large", large.as_slice(), 0o644),
        ("tool", b"#!/bin/sh\n".as_slice(), 0o751),
        ("private", b"words\n".as_slice(), 0o600),
        ("gone", b"soon\n".as_slice(), 0o644),
    ] {
        std::fs::write(tree.join(name), content).unwrap();
        std::fs::set_permissions(tree.join(name), Permissions::from_mode(mode)).unwrap();
    }
    std::fs::set_permissions(tree.join("sub dir"), Permissions::from_mode(0o750)).unwrap();
    symlink("sub dir/large", tree.join("link")).unwrap();
    symlink("/nowhere", tree.join("dangling")).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn fw15_rsync_copies_a_tree_both_ways_with_links_modes_and_deletions() {
    let daemon = daemon().await;
    let run = run_of(&daemon, "in").await;
    let home = tempfile::tempdir().unwrap();
    let user = User::new(&daemon, home.path());
    let way = user.way_into(&run).await;
    let remote = format!("{}:/workspace/tree/", way.alias);
    let copies = Copies { user: &user, way };
    let tree = home.path().join("tree");
    make_tree(&tree);
    let local = format!("{}/", tree.display());

    copies.copy(&local, &remote).await;
    let listed = copies.here(&tree).await;
    assert!(listed.contains("tool f 751") && listed.contains("link l 777 sub dir/large"), "{listed}");
    assert_eq!(copies.there("/workspace/tree", LIST).await, listed);

    // A second copy has the changes alone.
    std::fs::remove_file(tree.join("gone")).unwrap();
    std::fs::write(tree.join("private"), "other words\n").unwrap();
    copies.copy(&local, &remote).await;
    let listed = copies.here(&tree).await;
    assert!(!listed.contains("gone"), "{listed}");
    assert_eq!(copies.there("/workspace/tree", LIST).await, listed);

    // The other way.
    let change =
        "rm private && chmod 700 tool && ln -sfn tool link && echo more >>'sub dir/large' && echo new >new";
    copies.there("/workspace/tree", change).await;
    let back = home.path().join("back");
    std::fs::create_dir(&back).unwrap();
    std::fs::write(back.join("stale"), "").unwrap();
    copies.copy(&remote, &format!("{}/", back.display())).await;
    let listed = copies.here(&back).await;
    assert!(listed.contains("link l 777 tool") && listed.contains("new f 644"), "{listed}");
    assert!(!listed.contains("stale") && !listed.contains("private"), "{listed}");
    assert_eq!(copies.there("/workspace/tree", LIST).await, listed);
}
