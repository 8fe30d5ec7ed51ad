//! Putting one thing in the place of another, whatever the two are.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use crate::support::{Scene, names};
use cofferdam_jail::{Dir, EntryName, Mount, Root};
use rustix::fs::{CWD, Mode, mkfifoat};

fn top(scene: &Scene) -> Dir {
    Root::open(Mount::Project, &scene.inside).unwrap().top().unwrap()
}

fn name(name: &str) -> EntryName {
    EntryName::new(name.as_bytes()).unwrap()
}

/// Something of every kind.
fn place(directory: &Path) -> [&'static str; 6] {
    fs::write(directory.join("file"), "old").unwrap();
    fs::create_dir_all(directory.join("full/deep")).unwrap();
    fs::write(directory.join("full/deep/inner"), "old").unwrap();
    fs::create_dir(directory.join("empty")).unwrap();
    symlink("/nowhere", directory.join("link")).unwrap();
    mkfifoat(CWD, directory.join("fifo"), Mode::RWXU).unwrap();
    ["file", "full", "empty", "link", "fifo", "none"]
}

#[test]
fn every_kind_gives_way_to_every_other() {
    let scene = Scene::new();
    for kind in ["file", "link", "directory"] {
        let directory = scene.inside.join(kind);
        fs::create_dir(&directory).unwrap();
        let dir = top(&scene).open_dir(&name(kind)).unwrap();
        for old in place(&directory) {
            let (at, path) = (name(old), directory.join(old));
            match kind {
                "file" => {
                    fs::write(scene.inside.join("content"), "new").unwrap();
                    let mut content = File::open(scene.inside.join("content")).unwrap();
                    dir.put_file(&at, &mut content, 0o6755).unwrap();
                    assert_eq!(fs::read_to_string(&path).unwrap(), "new", "{old}");
                    assert_eq!(fs::symlink_metadata(&path).unwrap().mode(), 0o100_755, "{old}");
                }
                "link" => {
                    dir.put_link(&at, b"../elsewhere").unwrap();
                    assert_eq!(fs::read_link(&path).unwrap(), Path::new("../elsewhere"), "{old}");
                    assert_eq!(dir.read_link(&at).unwrap(), b"../elsewhere");
                }
                _ => {
                    dir.put_dir(&at, 0o750).unwrap();
                    assert!(fs::symlink_metadata(&path).unwrap().is_dir(), "{old}");
                    // One that is there is left as it is, with what it has.
                    assert_eq!(path.join("deep/inner").exists(), old == "full");
                }
            }
        }
        let mut found = names(&directory);
        found.sort();
        assert_eq!(found, ["empty", "fifo", "file", "full", "link", "none"], "nothing is left behind");
    }
}

#[test]
fn replacing_keeps_link_targets_and_other_names() {
    let scene = Scene::new();
    let outside = scene.inside.with_file_name("kept");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "kept").unwrap();
    let dir = top(&scene);
    symlink(&outside, scene.inside.join("out")).unwrap();
    fs::create_dir(scene.inside.join("tree")).unwrap();
    symlink(&outside, scene.inside.join("tree/out")).unwrap();
    fs::write(scene.inside.join("one"), "kept").unwrap();
    fs::hard_link(scene.inside.join("one"), scene.inside.join("two")).unwrap();

    fs::write(scene.inside.join("content"), "new").unwrap();
    dir.put_file(&name("two"), &mut File::open(scene.inside.join("content")).unwrap(), 0o644).unwrap();
    dir.put_dir(&name("out"), 0o755).unwrap();
    dir.remove(&name("tree")).unwrap();
    dir.remove(&name("never there")).unwrap();
    assert_eq!(fs::read_to_string(scene.inside.join("one")).unwrap(), "kept");
    assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "kept");
    assert!(!scene.inside.join("tree").exists() && names(&scene.inside.join("out")).is_empty());
}

#[test]
fn sweep_removes_only_incomplete_files() {
    let scene = Scene::new();
    let left = format!(".cofferdam-tmp-{}", "0123456789abcdef".repeat(2));
    for name in [left.as_str(), ".cofferdam-tmp-notes"] {
        fs::create_dir_all(scene.inside.join(name).join("deep")).unwrap();
        fs::set_permissions(scene.inside.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    assert!(name(&left).is_temporary() && !name(".cofferdam-tmp-notes").is_temporary());
    top(&scene).sweep().unwrap();
    assert!(!scene.inside.join(&left).exists() && scene.inside.join(".cofferdam-tmp-notes/deep").exists());
}
