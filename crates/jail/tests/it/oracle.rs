//! Compares the crate with the standard library on paths, and with the kernel on links.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Component, Path, PathBuf};

use cofferdam_jail::{PathRefusal, SandboxPath};
use proptest::prelude::*;
use rustix::fs::{Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;

use crate::support::{Scene, path};

/// Components of which small trees are made, so that random links meet random paths.
const NAMES: [&str; 3] = ["a", "b", "c"];

fn component() -> impl Strategy<Value = &'static str> {
    prop_oneof![8 => prop::sample::select(NAMES.to_vec()), 2 => Just(".."), 1 => Just(".")]
}

fn joined(part: impl Strategy<Value = &'static str>, most: usize) -> impl Strategy<Value = String> {
    prop::collection::vec(part, 1..=most).prop_map(|parts| parts.join("/"))
}

#[derive(Debug, Clone)]
enum Kind {
    Directory,
    File,
    Link(String),
}

/// A place and what is to be there. Places that cannot be made, since a file or a link is in the way, are left out.
fn entry() -> impl Strategy<Value = (String, Kind)> {
    let target = (joined(component(), 4), prop::bool::weighted(0.1));
    let target = target.prop_map(|(target, absolute)| if absolute { format!("/{target}") } else { target });
    let kind =
        prop_oneof![3 => Just(Kind::Directory), 4 => Just(Kind::File), 6 => target.prop_map(Kind::Link)];
    (joined(prop::sample::select(NAMES.to_vec()), 3), kind)
}

fn scene(entries: &[(String, Kind)]) -> Scene {
    let scene = Scene::new();
    for (place, kind) in entries {
        let (parent, name) = place.rsplit_once('/').unwrap_or(("", place));
        let Some(parent) = real_directory(&scene.inside, parent) else { continue };
        let place = parent.join(name);
        if place.symlink_metadata().is_err() {
            match kind {
                Kind::Directory => fs::create_dir(&place).unwrap(),
                Kind::File => fs::write(&place, "text").unwrap(),
                Kind::Link(target) => symlink(target, &place).unwrap(),
            }
        }
    }
    scene
}

/// The directory `rel` below `top`, made where it is missing; `None` where a link or a file is in the way.
fn real_directory(top: &Path, rel: &str) -> Option<PathBuf> {
    let mut place = top.to_owned();
    for name in rel.split('/').filter(|name| !name.is_empty()) {
        place.push(name);
        match place.symlink_metadata() {
            Ok(meta) if meta.is_dir() => {}
            Ok(_) => return None,
            Err(_) => fs::create_dir(&place).unwrap(),
        }
    }
    Some(place)
}

/// The file that the kernel comes to when it follows links beneath the root by itself: its device and inode. It says
/// `EAGAIN` where a path climbs while anything on the machine is renamed (openat2(2)): asked again until it knows.
fn by_kernel(scene: &Scene, text: &str) -> Result<(u64, u64), Errno> {
    let root = fs::File::open(&scene.inside).unwrap();
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    let opened = loop {
        match openat2(&root, text, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty(), resolve) {
            Err(Errno::AGAIN) => {}
            answer => break answer?,
        }
    };
    let meta = fstat(opened)?;
    if meta.st_mode & 0o170_000 != 0o100_000 {
        return Err(Errno::ISDIR);
    }
    Ok((meta.st_dev, meta.st_ino))
}

fn by_jail(scene: &Scene, text: &str) -> Option<(u64, u64)> {
    let meta = scene.jail.readable(&path(text)).ok()?.open_file().ok()?.file.metadata().unwrap();
    Some((meta.dev(), meta.ino()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn links_lead_where_the_kernel_says(
        entries in prop::collection::vec(entry(), 4..20),
        places in prop::collection::vec(joined(prop::sample::select(NAMES.to_vec()), 3), 16),
    ) {
        let scene = scene(&entries);
        for place in &places {
            match (by_kernel(&scene, place), by_jail(&scene, place)) {
                (Ok(expected), found) => prop_assert_eq!(found, Some(expected), "{}", place),
                // `file/..` is an error to the kernel and nothing to us, as in every path that is given.
                (Err(Errno::NOTDIR), Some((_, inode))) => {
                    let inside = |at: &fs::DirEntry| at.metadata().is_ok_and(|meta| meta.ino() == inode);
                    prop_assert!(entries_below(&scene.inside).iter().any(inside), "{}", place);
                }
                (Err(errno), found) => prop_assert_eq!(found, None, "{} {}", place, errno),
            }
        }
        prop_assert_eq!(scene.outside_names(), ["canary"]);
    }
}

fn entries_below(directory: &Path) -> Vec<fs::DirEntry> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            found.extend(entries_below(&entry.path()));
        }
        found.push(entry);
    }
    found
}

/// Text of a relative path, mostly: what begins like a mount, a drive or an absolute path is for the tables.
fn relative() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        6 => "[a-z.]{1,3}",
        2 => Just("..".to_owned()),
        1 => Just(".".to_owned()),
        1 => Just(String::new()),
        1 => "[^/\\\\\0]{1,5}",
    ];
    (("[a-z][a-z]{1,2}"), prop::collection::vec(part, 0..8))
        .prop_map(|(first, rest)| std::iter::once(first).chain(rest).collect::<Vec<_>>().join("/"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn a_relative_path_has_the_components_that_the_standard_library_finds(text in relative()) {
        let mut normal = Vec::new();
        let mut leaves = false;
        for component in Path::new(&text).components() {
            match component {
                Component::Normal(name) => normal.push(name.to_str().unwrap()),
                Component::ParentDir => leaves = true,
                Component::CurDir => {}
                Component::Prefix(_) | Component::RootDir => prop_assert!(false, "{:?} is not relative", text),
            }
        }
        match SandboxPath::parse(&text) {
            Ok(path) => {
                prop_assert!(!leaves, "{:?}", text);
                prop_assert_eq!(path.rel().components().collect::<Vec<_>>(), normal);
            }
            Err(PathRefusal::ParentSegment { .. }) => prop_assert!(leaves, "{:?}", text),
            Err(other) => prop_assert!(false, "{:?}: {}", text, other),
        }
    }
}
