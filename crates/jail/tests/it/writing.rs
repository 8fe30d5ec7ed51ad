//! Tests writing beneath a root: wholeness, replaced files, and refusals.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;

use crate::support::{Scene, names, path};
use cofferdam_jail::{FileKind, Found, Parents, WriteError, WriteMode, Written};
use rustix::fs::{CWD, Mode, mkfifoat};

fn write(scene: &Scene, text: &str, bytes: &str, mode: WriteMode) -> Result<Written, String> {
    let path = path(text);
    let place = scene.jail.writable(&path).map_err(|refusal| refusal.to_string())?;
    let target = place.target(Parents::Create).map_err(|error| error.to_string())?;
    target.write(bytes.as_bytes(), mode).map_err(|error| error.to_string())
}

fn mode(scene: &Scene, name: &str) -> u32 {
    fs::symlink_metadata(scene.inside.join(name)).unwrap().mode() & 0o7777
}

#[test]
fn new_files_and_their_parents() {
    let scene = Scene::new();
    let written = write(&scene, "a/b/c.txt", "text", WriteMode::CreateOnly);
    assert_eq!(written, Ok(Written { replaced: Found::Absent, mode: 0o644 }));
    assert_eq!(fs::read_to_string(scene.inside.join("a/b/c.txt")).unwrap(), "text");
    assert_eq!((mode(&scene, "a/b/c.txt"), mode(&scene, "a") & 0o700), (0o644, 0o700));
    assert_eq!(names(&scene.inside.join("a/b")), ["c.txt"]);
    assert_eq!(
        write(&scene, "a/b/c.txt", "other", WriteMode::CreateOnly),
        Err("@project/a/b/c.txt: already exists".to_owned())
    );
    assert_eq!(
        write(&scene, "a/b/c.txt/d", "x", WriteMode::Replace),
        Err("@project/a/b/c.txt/d: not a directory".to_owned())
    );
}

#[test]
fn missing_parents_can_be_an_error() {
    let scene = Scene::new();
    let path = path("a/b");
    let error = scene.jail.writable(&path).unwrap().target(Parents::MustExist).unwrap_err();
    assert_eq!(error.to_string(), "@project/a/b: no such file or directory");
    assert!(names(&scene.inside).is_empty());
}

#[test]
fn modes_are_kept_without_setuid() {
    let scene = Scene::new();
    for (name, before, after) in
        [("run.sh", 0o755, 0o755), ("private", 0o600, 0o600), ("suid", 0o6755, 0o755)]
    {
        fs::write(scene.inside.join(name), "old").unwrap();
        fs::set_permissions(scene.inside.join(name), fs::Permissions::from_mode(before)).unwrap();
        let written = write(&scene, name, "new", WriteMode::Replace).unwrap();
        assert_eq!((written.mode, mode(&scene, name)), (after, after), "{name}");
    }
}

#[test]
fn other_names_of_a_hard_link_keep_their_content() {
    let scene = Scene::new();
    fs::hard_link(scene.outside.join("canary"), scene.inside.join("peer")).unwrap();
    write(&scene, "peer", "new", WriteMode::Replace).unwrap();
    assert_eq!(fs::read_to_string(scene.outside.join("canary")).unwrap(), "canary");
    assert_eq!(scene.read("peer"), Ok("new".to_owned()));
}

#[test]
fn special_files_give_way() {
    let scene = Scene::new();
    mkfifoat(CWD, scene.inside.join("fifo"), Mode::RUSR | Mode::WUSR).unwrap();
    let _listener = UnixListener::bind(scene.inside.join("socket")).unwrap();
    for (name, kind) in [("fifo", FileKind::Fifo), ("socket", FileKind::Socket)] {
        let written = write(&scene, name, "text", WriteMode::Replace).unwrap();
        assert!(matches!(written.replaced, Found::Special(meta) if meta.kind == kind), "{name}");
        assert_eq!(scene.read(name), Ok("text".to_owned()));
        assert_eq!(mode(&scene, name), 0o644);
    }
}

#[test]
fn links_are_not_written_through() {
    let scene = Scene::new();
    fs::write(scene.inside.join("real"), "old").unwrap();
    fs::create_dir(scene.inside.join("dir")).unwrap();
    symlink("real", scene.inside.join("link")).unwrap();
    symlink("nowhere", scene.inside.join("dangling")).unwrap();
    symlink("dir", scene.inside.join("dirlink")).unwrap();
    symlink(&scene.outside, scene.inside.join("out")).unwrap();
    symlink("../outside/new", scene.inside.join("newlink")).unwrap();
    for name in [
        "link",
        "dangling",
        "dirlink/f",
        "dirlink/deep/er/f",
        "out/canary",
        "out/new/f",
        "newlink",
        "dangling/f",
    ] {
        for how in [WriteMode::Replace, WriteMode::CreateOnly] {
            assert_eq!(
                write(&scene, name, "x", how),
                Err(format!("@project/{name}: a symlink is in the path and is not followed here"))
            );
        }
    }
    assert_eq!(scene.read("real"), Ok("old".to_owned()));
    assert_eq!(scene.outside_names(), ["canary"]);
    assert_eq!(fs::read_to_string(scene.outside.join("canary")).unwrap(), "canary");
    assert_eq!(names(&scene.inside.join("dir")), [""; 0]);
}

#[test]
fn directories_and_the_root_are_not_files() {
    let scene = Scene::new();
    fs::create_dir(scene.inside.join("dir")).unwrap();
    assert_eq!(write(&scene, "dir", "x", WriteMode::Replace), Err("@project/dir: is a directory".to_owned()));
    assert_eq!(write(&scene, ".", "x", WriteMode::Replace), Err("@project: is a directory".to_owned()));
}

#[test]
fn a_change_in_between_is_noticed() {
    let scene = Scene::new();
    fs::write(scene.inside.join("f"), "one").unwrap();
    let path = path("f");
    let open = || scene.jail.writable(&path).unwrap().target(Parents::MustExist).unwrap();

    let mut target = open();
    assert_eq!(std::io::read_to_string(target.read().unwrap().unwrap().file).unwrap(), "one");
    fs::write(scene.inside.join("f"), "three").unwrap();
    assert!(matches!(target.write(b"two", WriteMode::ReplaceUnchanged), Err(WriteError::Changed { .. })));
    assert_eq!(scene.read("f"), Ok("three".to_owned()));

    open().write(b"two", WriteMode::ReplaceUnchanged).unwrap();
    assert_eq!(scene.read("f"), Ok("two".to_owned()));

    let target = open();
    fs::remove_file(scene.inside.join("f")).unwrap();
    assert!(matches!(target.write(b"x", WriteMode::ReplaceUnchanged), Err(WriteError::Changed { .. })));

    let mut target = open();
    assert!(target.read().unwrap().is_none());
    fs::write(scene.inside.join("f"), "appeared").unwrap();
    assert!(matches!(target.write(b"x", WriteMode::ReplaceUnchanged), Err(WriteError::Changed { .. })));
    assert_eq!(scene.read("f"), Ok("appeared".to_owned()));
    assert_eq!(names(&scene.inside), ["f"]);
}

#[test]
fn a_failed_write_leaves_nothing() {
    let scene = Scene::new();
    let path = path("f");
    let target = scene.jail.writable(&path).unwrap().target(Parents::MustExist).unwrap();
    fs::create_dir(scene.inside.join("f")).unwrap();
    let error = target.write(b"x", WriteMode::Replace).unwrap_err();
    assert_eq!(error.to_string(), "@project/f: is a directory");
    assert_eq!(names(&scene.inside), ["f"]);
}
