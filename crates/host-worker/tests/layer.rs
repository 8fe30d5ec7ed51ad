//! Tests layers that no overlay would make, beside directories that their owner changes: the shown and the applied changes.
#![allow(clippy::unwrap_used, clippy::expect_used)] // also outside of test functions

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use host_launch::{LayerError, LayerSpec};
use rustix::fs::{CWD, FileType, Mode, RenameFlags, XattrFlags, mknodat, renameat_with, setxattr};
use support::{Scratch, directory, fingerprint, launcher};
use wire::v1::file_change::Kind;
use wire::v1::{AcceptRunResponse, DiffRunResponse};

const TIME: Duration = Duration::from_secs(60);

/// A workspace as the directory beneath, and a layer of changes beside it.
struct Layer {
    scratch: Scratch,
    changes: PathBuf,
    since: (i64, u32),
}

impl Layer {
    /// With these files beneath, all of them older than the layer.
    fn over(files: &[(&str, &str)]) -> Self {
        let scratch = Scratch::new();
        for (path, content) in files {
            scratch.write(path, content);
        }
        scratch.own();
        let changes = scratch.workspace().with_file_name("changes");
        fs::create_dir(&changes).unwrap();
        let layer = Self { scratch, changes, since: (0, 0) };
        // Files that were made in the same tick of the clock would count as changed.
        let newest = |path: &Path| fs::metadata(path).map(|meta| (meta.ctime(), meta.ctime_nsec())).unwrap();
        let before = newest(&layer.beneath());
        loop {
            fs::set_permissions(&layer.changes, fs::Permissions::from_mode(0o755)).unwrap();
            let now = newest(&layer.changes);
            if now > before {
                return Self { since: (now.0, now.1.try_into().unwrap()), ..layer };
            }
        }
    }

    fn beneath(&self) -> PathBuf {
        self.scratch.workspace()
    }

    fn put(&self, path: &str, content: &str) {
        let path = self.changes.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn device(&self, path: &str, device: u64) {
        let path = self.changes.join(path);
        mknodat(CWD, path, FileType::CharacterDevice, Mode::RWXU, device).expect("run these tests as root");
    }

    fn mark(&self, path: &str, mark: &str, value: &str) {
        setxattr(self.changes.join(path), mark, value.as_bytes(), XattrFlags::empty()).unwrap();
    }

    fn spec(&self) -> LayerSpec {
        support::run(
            std::process::Command::new("chown")
                .args(["-hR", &format!("{0}:{0}", self.scratch.uid)])
                .arg(&self.changes),
        );
        LayerSpec {
            beneath: directory(&self.beneath()),
            changes: directory(&self.changes),
            since: self.since,
            resumed: false,
            owner_uid: self.scratch.uid,
            owner_gid: self.scratch.uid,
        }
    }

    fn diff(&self) -> DiffRunResponse {
        launcher().diff(&self.spec(), 64 * 1024, TIME).unwrap()
    }

    fn accept(&self, force: bool) -> Result<AcceptRunResponse, LayerError> {
        launcher().accept(&self.spec(), force, TIME)
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.beneath().join(path)).unwrap()
    }
}

fn kinds(diff: &DiffRunResponse) -> Vec<(&str, Kind)> {
    diff.changes.iter().map(|change| (change.path.as_str(), change.kind())).collect()
}

#[test]
fn the_kernel_s_notation_is_read() {
    let layer =
        Layer::over(&[("a", "old\n"), ("b", "b\n"), ("kept/x", "x\n"), ("opaque/x", "x\n"), ("same", "s\n")]);
    layer.put("a", "new\n");
    layer.put("same", "s\n");
    layer.device("b", 0);
    layer.device("never", 0);
    layer.put("kept/y", "y\n");
    layer.put("opaque/y", "y\n");
    layer.mark("opaque", "user.overlay.opaque", "y");
    let diff = layer.diff();
    let expected = [
        ("a", Kind::Modified),
        ("b", Kind::Deleted),
        ("kept/y", Kind::Added),
        ("opaque/x", Kind::Deleted),
        ("opaque/y", Kind::Added),
    ];
    assert_eq!(kinds(&diff), expected);
    assert!(diff.unified_diff.starts_with(
        "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-old\n+new\ndiff --git a/b b/b\ndeleted file mode 100644\n"
    ));
    assert_eq!(layer.accept(false).unwrap().applied, 5);
    assert_eq!(
        (layer.read("a"), layer.read("kept/x"), layer.read("opaque/y")),
        ("new\n".into(), "x\n".into(), "y\n".into())
    );
    assert!(!layer.beneath().join("b").exists() && !layer.beneath().join("opaque/x").exists());
    assert!(layer.diff().changes.is_empty(), "what is applied is no change any more");
}

#[test]
fn c5_marks_links_and_devices_in_a_layer_lead_nowhere() {
    let layer = Layer::over(&[("dir/x", "x\n"), ("file", "f\n")]);
    let outside = layer.scratch.outside();
    let before = fingerprint(&outside);
    // Marks that would lead elsewhere, if anybody followed them.
    layer.put("file", "changed\n");
    layer.mark("file", "user.overlay.redirect", "/outside/canary");
    layer.mark("file", "user.overlay.metacopy", "");
    layer.put("dir/y", "y\n");
    layer.mark("dir", "user.overlay.redirect", "/outside");
    // Links where directories are beneath, and devices that are no marks.
    symlink(&outside, layer.changes.join("out")).unwrap();
    symlink(outside.join("canary"), layer.changes.join("canary")).unwrap();
    layer.device("null", rustix::fs::makedev(1, 3));
    support::fifo(layer.changes.join("fifo"));
    let diff = layer.diff();
    let obstacles: Vec<_> = diff
        .changes
        .iter()
        .filter(|change| !change.obstacle.is_empty())
        .map(|change| change.path.as_str())
        .collect();
    assert_eq!(obstacles, ["fifo", "null"]);
    let refused = layer.accept(false).unwrap_err();
    assert!(
        matches!(&refused, LayerError::Refused(why) if why.contains("fifo") && why.contains("nothing")),
        "{refused}"
    );
    assert_eq!(layer.read("file"), "f\n");
    let accepted = layer.accept(true).unwrap();
    assert_eq!(accepted.left_out, ["fifo", "null"]);
    assert_eq!((layer.read("file"), layer.read("dir/y")), ("changed\n".into(), "y\n".into()));
    assert_eq!(fs::read_link(layer.beneath().join("out")).unwrap(), outside);
    assert_eq!(fingerprint(&outside), before);
}

#[test]
fn c5_a_link_beneath_is_not_followed_when_a_directory_of_its_name_is_applied() {
    let layer = Layer::over(&[("file", "f\n")]);
    let outside = layer.scratch.outside();
    symlink(&outside, layer.beneath().join("dir")).unwrap();
    let before = fingerprint(&outside);
    layer.put("dir/canary", "overwritten\n");
    layer.device("file", 0);
    layer.put("dir/new", "x\n");
    layer.accept(true).unwrap();
    assert_eq!(fingerprint(&outside), before);
    assert_eq!(layer.read("dir/canary"), "overwritten\n");
    assert!(!fs::symlink_metadata(layer.beneath().join("dir")).unwrap().is_symlink());
}

#[test]
fn c5_swapped_directory_beneath_lets_no_write_outside() {
    let layer = Layer::over(&[("dir/file", "0\n")]);
    let outside = layer.scratch.outside();
    fs::write(outside.join("file"), "0\n").unwrap();
    let before = fingerprint(&outside);
    symlink(&outside, layer.beneath().join("link")).unwrap();
    let (dir, link) = (layer.beneath().join("dir"), layer.beneath().join("link"));
    let stop = AtomicBool::new(false);
    let mut applied = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                renameat_with(CWD, &dir, CWD, &link, RenameFlags::EXCHANGE).unwrap();
            }
        });
        for round in 0..40 {
            for file in 0..20 {
                layer.put(&format!("dir/f{file}"), &format!("{round}\n"));
            }
            // Some of them fail, since the directory is not there at the moment.
            applied += layer.accept(true).map_or(0, |accepted| accepted.applied);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(fingerprint(&outside), before);
    assert!(applied > 0, "not one of them was applied");
}

#[test]
fn only_changes_beneath_raise_objections() {
    let layer = Layer::over(&[("mine", "1\n"), ("both", "1\n"), ("tree/deep/x", "1\n"), ("calm/x", "1\n")]);
    for path in ["mine", "both"] {
        layer.put(path, "agent\n");
    }
    layer.device("tree", 0);
    layer.device("calm", 0);
    fs::write(layer.beneath().join("both"), "owner\n").unwrap();
    fs::write(layer.beneath().join("tree/deep/x"), "owner\n").unwrap();
    let diff = layer.diff();
    let objections: Vec<_> = diff
        .changes
        .iter()
        .filter(|change| !change.objection.is_empty())
        .map(|change| change.path.as_str())
        .collect();
    assert_eq!(objections, ["both", "tree"]);
    let refused = layer.accept(false).unwrap_err().to_string();
    assert!(
        refused.contains("both: ") && refused.contains("tree: ") && !refused.contains("mine"),
        "{refused}"
    );
    assert_eq!((layer.read("mine"), layer.read("both")), ("1\n".into(), "owner\n".into()));
    assert!(layer.beneath().join("calm/x").exists());
}

#[test]
fn git_control_files_raise_objections_in_any_spelling() {
    let layer = Layer::over(&[("a", "1\n")]);
    let obeyed = [
        ".git/HOOKS/pre-commit",
        ".git/config",
        ".git/modules/sub/config",
        ".git/worktrees/w/gitdir",
        "deep/.Git/config.worktree",
        "file/.git",
    ];
    let harmless =
        [".git/refs/heads/config", ".git/objects/ab/cd", "config", "hooks/pre-commit", ".gitignore"];
    for path in obeyed.iter().chain(&harmless) {
        layer.put(path, "x\n");
    }
    symlink("../a", layer.changes.join(".git/index")).unwrap();
    let diff = layer.diff();
    let objects =
        |path: &str| diff.changes.iter().any(|change| change.path == path && !change.objection.is_empty());
    for path in obeyed.iter().chain(&[".git/index"]) {
        assert!(objects(path), "{path}");
    }
    for path in harmless {
        assert!(!objects(path), "{path}");
    }
}

#[test]
fn modes_are_applied_without_set_id_bits_even_where_they_close_a_directory() {
    let layer = Layer::over(&[("a", "1\n"), ("dir/x", "1\n")]);
    layer.put("a", "1\n");
    layer.put("closed/inner", "x\n");
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    mode(&layer.changes.join("a"), 0o6755);
    mode(&layer.changes.join("closed"), 0o555);
    fs::create_dir(layer.changes.join("dir")).unwrap();
    mode(&layer.changes.join("dir"), 0o700);
    let accepted = layer.accept(false).unwrap();
    assert!(accepted.left_out.is_empty());
    let of = |path: &str| fs::metadata(layer.beneath().join(path)).unwrap().mode() & 0o7777;
    assert_eq!((of("a"), of("closed"), of("dir")), (0o755, 0o555, 0o700));
    assert_eq!(layer.read("closed/inner"), "x\n");
    assert_eq!(fs::metadata(layer.beneath().join("closed/inner")).unwrap().uid(), layer.scratch.uid);
}

#[test]
fn a_diff_is_bounded_and_reports_omissions() {
    let layer = Layer::over(&[]);
    for file in 0..10_050 {
        layer.put(&format!("f{file}"), "x\n");
    }
    layer.put("big", &"long line of text\n".repeat(8_000));
    layer.put("binary", "a\0b");
    let diff = layer.diff();
    assert_eq!((diff.total, diff.changes.len(), diff.truncated), (10_052, 10_000, true));
    assert!(
        diff.unified_diff.len() <= 64 * 1024
            && diff.unified_diff.contains("Binary files /dev/null and b/binary differ")
    );
    assert!(!diff.unified_diff.contains("long line"), "whole or not at all");
    assert_eq!(
        launcher()
            .measure(
                std::os::fd::AsFd::as_fd(&directory(&layer.changes)),
                (layer.scratch.uid, layer.scratch.uid),
                TIME
            )
            .unwrap(),
        10_050 * 2 + 18 * 8_000 + 3
    );
}

#[test]
fn a_full_disk_is_reported_and_applied_changes_stay_whole() {
    let layer = Layer::over(&[("a", "old\n")]);
    support::run(
        std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=256k", "cofferdam"])
            .arg(layer.beneath()),
    );
    let beneath = layer.beneath();
    let unmount = || support::run(std::process::Command::new("umount").arg(&beneath));
    fs::write(beneath.join("z"), "old\n").unwrap();
    std::os::unix::fs::chown(&beneath, Some(layer.scratch.uid), Some(layer.scratch.uid)).unwrap();
    std::os::unix::fs::chown(beneath.join("z"), Some(layer.scratch.uid), Some(layer.scratch.uid)).unwrap();
    layer.put("a", "small\n");
    layer.put("z", &"x".repeat(1024 * 1024));
    let failed = layer.accept(true).map_err(|error| error.to_string());
    let (a, z) = (layer.read("a"), layer.read("z"));
    let names = fs::read_dir(&beneath).unwrap().count();
    unmount();
    let failed = failed.unwrap_err();
    assert!(failed.contains("1 changes were applied") && failed.contains("no space"), "{failed}");
    assert_eq!((a.as_str(), z.as_str(), names), ("small\n", "old\n", 2));
}
