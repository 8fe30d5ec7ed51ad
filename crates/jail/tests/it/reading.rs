//! Reading beneath a root that somebody filled with traps.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::{ffi, fs};

use crate::support::{Scene, names, path};
use cofferdam_jail::{
    Access, AccessError, EntryName, FileKind, Jail, Mount, OpenErrorKind, Protection, Root, supported,
};
use rustix::fs::{CWD, Mode, mkfifoat};

const ESCAPES: &str = "a symlink that leaves its mount (absolute links count)";

#[test]
fn the_kernel_is_new_enough() {
    supported().unwrap();
}

#[test]
fn symlinks_inside_are_followed() {
    let scene = Scene::new();
    fs::create_dir_all(scene.inside.join("a/b")).unwrap();
    fs::write(scene.inside.join("a/b/f"), "text").unwrap();
    symlink("a/b/f", scene.inside.join("file")).unwrap();
    symlink("a/./b/", scene.inside.join("dir")).unwrap();
    symlink("../../a/../file", scene.inside.join("a/b/round")).unwrap();
    for name in ["a/b/f", "file", "dir/f", "dir/round", "a/b/round"] {
        assert_eq!(scene.read(name), Ok("text".to_owned()), "{name}");
    }
    let meta = scene.jail.readable(&path("file")).unwrap().metadata().unwrap();
    assert_eq!((meta.kind, meta.size), (FileKind::File, 4));
}

#[test]
fn symlinks_that_leave_are_refused() {
    let scene = Scene::new();
    fs::create_dir(scene.inside.join("d")).unwrap();
    let canary = scene.outside.join("canary");
    symlink(&canary, scene.inside.join("absolute")).unwrap();
    symlink("../outside/canary", scene.inside.join("relative")).unwrap();
    symlink("../../outside", scene.inside.join("d/dir")).unwrap();
    symlink("relative", scene.inside.join("chain")).unwrap();
    symlink("d/../chain", scene.inside.join("longer")).unwrap();
    symlink(&scene.outside, scene.inside.join("absolute-dir")).unwrap();
    symlink(&scene.inside, scene.inside.join("absolute-inside")).unwrap();
    symlink("/proc/self/root", scene.inside.join("magic")).unwrap();
    symlink("/proc/self/cwd/canary", scene.inside.join("magic-cwd")).unwrap();
    symlink("..", scene.inside.join("top")).unwrap();
    for name in [
        "absolute",
        "relative",
        "d/dir/canary",
        "chain",
        "longer",
        "absolute-dir/canary",
        "absolute-inside/d",
        "magic/etc/passwd",
        "magic-cwd",
        "top/outside/canary",
    ] {
        assert_eq!(scene.read(name), Err(format!("@project/{name}: {ESCAPES}")));
    }
}

#[test]
fn loops_and_dangling_links_end() {
    let scene = Scene::new();
    symlink("b", scene.inside.join("a")).unwrap();
    symlink("a", scene.inside.join("b")).unwrap();
    symlink("self/self", scene.inside.join("self")).unwrap();
    symlink("nowhere", scene.inside.join("dangling")).unwrap();
    symlink(ffi::OsStr::from_bytes(b"\xff"), scene.inside.join("bytes")).unwrap();
    assert_eq!(scene.read("a"), Err("@project/a: too many levels of symlinks".to_owned()));
    assert_eq!(scene.read("self/x"), Err("@project/self/x: too many levels of symlinks".to_owned()));
    assert_eq!(scene.read("dangling"), Err("@project/dangling: no such file or directory".to_owned()));
    assert_eq!(
        scene.read("bytes"),
        Err("@project/bytes: a symlink to a name that no path can express".to_owned())
    );
}

#[test]
fn links_do_not_get_around_protected_paths() {
    let scene = Scene::with(Protection::default());
    fs::create_dir_all(scene.inside.join(".git/hooks")).unwrap();
    fs::create_dir_all(scene.inside.join("node_modules/.bin")).unwrap();
    fs::write(scene.inside.join(".git/config"), "secret").unwrap();
    fs::write(scene.inside.join("tool.js"), "tool").unwrap();
    symlink("../../tool.js", scene.inside.join("node_modules/.bin/tool")).unwrap();
    symlink(".git/config", scene.inside.join("notes")).unwrap();
    symlink(".git", scene.inside.join("g")).unwrap();
    symlink("node_modules/.bin", scene.inside.join("bin")).unwrap();
    let guarded = "@project/.git/config: git's hooks and configuration are not readable under this profile";
    assert_eq!(scene.read("notes"), Err(guarded.to_owned()));
    assert_eq!(scene.read("g/config"), Err(guarded.to_owned()));
    assert_eq!(scene.read("bin/tool"), Ok("tool".to_owned()));
    assert_eq!(
        scene.read_as("bin/tool", Access::Execute),
        Err("@project/node_modules/.bin: executing in node_modules/.bin is refused".to_owned())
    );
}

#[test]
fn special_files_do_not_hang() {
    let scene = Scene::new();
    mkfifoat(CWD, scene.inside.join("fifo"), Mode::RUSR | Mode::WUSR).unwrap();
    let _listener = UnixListener::bind(scene.inside.join("socket")).unwrap();
    fs::create_dir(scene.inside.join("dir")).unwrap();
    symlink("fifo", scene.inside.join("link")).unwrap();
    assert_eq!(scene.read("fifo"), Err("@project/fifo: not a regular file: fifo".to_owned()));
    assert_eq!(scene.read("link"), Err("@project/link: not a regular file: fifo".to_owned()));
    assert_eq!(scene.read("socket"), Err("@project/socket: not a regular file: socket".to_owned()));
    assert_eq!(scene.read("dir"), Err("@project/dir: is a directory".to_owned()));
    assert_eq!(scene.read("."), Err("@project: is a directory".to_owned()));
    assert_eq!(scene.read("fifo/x"), Err("@project/fifo/x: not a directory".to_owned()));
    assert_eq!(scene.read("none/x"), Err("@project/none/x: no such file or directory".to_owned()));
    let dir = scene.jail.readable(&path("fifo")).unwrap().open_dir();
    assert!(
        matches!(dir, Err(AccessError::Open(error)) if matches!(error.kind, OpenErrorKind::NotADirectory))
    );
}

#[test]
fn devices_are_not_files() {
    let jail = Jail::new([Root::open(Mount::Project, Path::new("/dev")).unwrap()], Protection::default());
    let error = jail.readable(&path("null")).unwrap().open_file().unwrap_err();
    assert_eq!(error.to_string(), "@project/null: not a regular file: device");
}

#[test]
fn mount_points_and_magic_links_are_not_entered() {
    let jail = Jail::new([Root::open(Mount::Project, Path::new("/")).unwrap()], Protection::default());
    let message = |text: &str| jail.readable(&path(text)).unwrap().open_dir().unwrap_err().to_string();
    assert_eq!(message("proc/self"), "@project/proc/self: another mount point, which no path may cross");
    let jail = Jail::new([Root::open(Mount::Project, Path::new("/proc")).unwrap()], Protection::default());
    let message = |text: &str| jail.readable(&path(text)).unwrap().open_dir().unwrap_err().to_string();
    assert_eq!(message("self/root"), format!("@project/self/root: {ESCAPES}"));
    assert_eq!(message("thread-self/cwd"), format!("@project/thread-self/cwd: {ESCAPES}"));
    assert!(jail.readable(&path("self/status")).unwrap().open_file().is_ok());
}

/// A mount within a mount that the set-up names is entered, with the name alone and by walkers; no other one is.
#[test]
fn the_inner_mount_is_entered_and_no_other() {
    let root = Root::open(Mount::State, Path::new("/")).unwrap().with_inner(Path::new("/"), "proc");
    let top = root.top().unwrap();
    let inner = top.open_dir(&EntryName::new(b"proc").unwrap()).unwrap();
    assert!(inner.open_file(&EntryName::new(b"version").unwrap()).is_ok());
    let jail = Jail::new([root], Protection::default());
    let open =
        |text: &str| jail.readable(&path(text)).unwrap().open_file().map(drop).map_err(|e| e.to_string());
    assert_eq!(open("@state/proc/version"), Ok(()));
    assert_eq!(open("@state/proc"), Err("@state/proc: is a directory".to_owned()));
    assert!(jail.readable(&path("@state/proc")).unwrap().open_dir().is_ok());
    assert_eq!(open("@state/process"), Err("@state/process: no such file or directory".to_owned()));
    let beyond = "@state/sys/kernel: another mount point, which no path may cross";
    assert_eq!(open("@state/sys/kernel"), Err(beyond.to_owned()));
    assert!(open("@state/proc/self/root/etc/passwd").is_err(), "a magic link");
    // Where there is none, or a link, there is nothing to enter.
    let scene = Scene::new();
    symlink("/proc", scene.inside.join("proc")).unwrap();
    let root = Root::open(Mount::State, &scene.inside).unwrap().with_inner(&scene.inside, "proc");
    let jail = Jail::new([root], Protection::default());
    assert!(jail.readable(&path("@state/proc/version")).unwrap().open_file().is_err());
}

#[test]
fn absent_mounts_are_refused() {
    let scene = Scene::new();
    assert_eq!(scene.read("@pkg/x"), Err("@pkg is not mounted in this run".to_owned()));
    assert_eq!(scene.jail.check(&path("@state"), Access::Write).unwrap_err().reason(), "not_mounted");
}

#[test]
fn directories_list_their_entries() {
    let scene = Scene::new();
    fs::create_dir(scene.inside.join("d")).unwrap();
    fs::write(scene.inside.join("d/f"), "x").unwrap();
    fs::write(scene.inside.join("d").join(ffi::OsStr::from_bytes(b"n\xff")), "y").unwrap();
    symlink("f", scene.inside.join("d/l")).unwrap();
    let dir = scene.jail.readable(&path("d")).unwrap().open_dir().unwrap();
    let list = || {
        let entries = dir.entries().unwrap().map(Result::unwrap);
        let mut found: Vec<_> = entries.map(|entry| (entry.name, entry.kind)).collect();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found
    };
    let found = list();
    assert_eq!(list(), found, "a directory can be listed again");
    let name = |bytes: &[u8]| EntryName::new(bytes).unwrap();
    assert_eq!(
        found,
        [(name(b"f"), FileKind::File), (name(b"l"), FileKind::Symlink), (name(b"n\xff"), FileKind::File)]
    );
    assert_eq!(std::io::read_to_string(dir.open_file(&name(b"n\xff")).unwrap().file).unwrap(), "y");
    assert_eq!(
        dir.open_file(&name(b"l")).unwrap_err().to_string(),
        "@project/d/l: a symlink is in the path and is not followed here"
    );
    assert_eq!(dir.metadata(&name(b"l")).unwrap().kind, FileKind::Symlink);
}

#[test]
fn the_root_stays_the_directory_that_was_opened() {
    let scene = Scene::new();
    fs::write(scene.inside.join("f"), "real").unwrap();
    let moved = scene.inside.with_file_name("moved");
    fs::rename(&scene.inside, &moved).unwrap();
    symlink(&scene.outside, &scene.inside).unwrap();
    assert_eq!(scene.read("f"), Ok("real".to_owned()));
    assert_eq!(scene.read("canary"), Err("@project/canary: no such file or directory".to_owned()));
    assert_eq!(names(&moved), ["f"]);
}

#[test]
fn a_message_names_the_path_without_control_characters() {
    let scene = Scene::new();
    let place = path("no\nsuch\u{1b}[2J/file");
    let error = scene.jail.readable(&place).unwrap().open_file().unwrap_err();
    assert_eq!(error.to_string(), "@project/no\\nsuch\\u{1b}[2J/file: no such file or directory");
}
