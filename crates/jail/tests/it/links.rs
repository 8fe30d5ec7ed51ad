//! P4, the part that needs a tree: the kinds of cases that the public tables of libpathrs and filepath-securejoin have,
//! over a tree of our own. There absolute links begin at the root again; here they leave the mount.

use std::fs;
use std::os::unix::fs::symlink;

use cofferdam_jail::{FileKind, SandboxPath};

use crate::support::Scene;

const DIRECTORIES: [&str; 7] = ["plain", "deep/x/y/z", "near", "far", "farther", "pit/x/y", "ring/x"];
const FILES: [&str; 3] = ["deep/x/file", "goal/file", "pit/x/y/file"];
const LINKS: [(&str, &str); 27] = [
    ("short", "deep/x/file"),
    ("shorter", "short"),
    ("spelled", "./deep//x/./y/../file"),
    ("up", "plain/.."),
    ("near/goal", "../goal"),
    ("near/goal-absolute", "/goal"),
    ("far/near", "../near"),
    ("far/near-absolute", "/near"),
    ("farther/goal", "../far/near/goal"),
    ("farther/missing", "../far/near/goal/missing"),
    ("farther/over", "../far/near/../goal/file"),
    ("dangling", "missing"),
    ("dangling-deep", "missing/x/y/.."),
    ("dangling-back", "missing/../plain"),
    ("pit/a", "x/b"),
    ("pit/x/b", "../c"),
    ("pit/c", "x/y/nowhere/d"),
    ("pit/through", "x/y/file/d"),
    ("ring/self", "self"),
    ("ring/self-up", "../ring/self-up"),
    ("ring/one", "x/two"),
    ("ring/x/two", "../three"),
    ("ring/three", "one"),
    ("outside-relative", "../outside/canary"),
    ("outside-late", "deep/x/../../../outside/canary"),
    ("outside-chain", "far/../outside-relative"),
    ("outside-and-back", "../inside/goal/file"),
];

fn scene() -> Scene {
    let scene = Scene::new();
    for directory in DIRECTORIES {
        fs::create_dir_all(scene.inside.join(directory)).unwrap();
    }
    for file in FILES {
        let place = scene.inside.join(file);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, file).unwrap();
    }
    for (link, target) in LINKS {
        symlink(target, scene.inside.join(link)).unwrap();
    }
    scene
}

const ESCAPES: &str = "a symlink that leaves its mount (absolute links count)";
const MISSING: &str = "no such file or directory";
const NO_DIRECTORY: &str = "not a directory";
const LOOP: &str = "too many levels of symlinks";

#[test]
fn p4_links_lead_to_files_or_to_a_reason() {
    let scene = scene();
    for (given, expected) in [
        ("deep/x/file", Ok("deep/x/file")),
        ("deep///././x////.//file", Ok("deep/x/file")),
        ("short", Ok("deep/x/file")),
        ("short/", Ok("deep/x/file")),
        ("shorter", Ok("deep/x/file")),
        ("spelled", Ok("deep/x/file")),
        ("up/goal/file", Ok("goal/file")),
        ("up/up/up/goal/file", Ok("goal/file")),
        ("near/goal/file", Ok("goal/file")),
        ("far/near/goal/file", Ok("goal/file")),
        ("farther/goal/file", Ok("goal/file")),
        ("farther/goal//./file", Ok("goal/file")),
        // `..` behind a link is the parent of where the link leads, not of where it lies.
        ("farther/over", Ok("goal/file")),
        ("near/goal/none", Err(MISSING)),
        ("farther/missing", Err(MISSING)),
        ("farther/missing/x", Err(MISSING)),
        ("plain/x/y/z", Err(MISSING)),
        ("dangling", Err(MISSING)),
        ("dangling/x", Err(MISSING)),
        ("dangling-deep", Err(MISSING)),
        ("dangling-back", Err(MISSING)),
        ("pit/a", Err(MISSING)),
        ("pit/through", Err(NO_DIRECTORY)),
        ("short/x", Err(NO_DIRECTORY)),
        ("deep/x/file/y", Err(NO_DIRECTORY)),
        ("near/goal-absolute/file", Err(ESCAPES)),
        ("far/near-absolute/goal/file", Err(ESCAPES)),
        ("outside-relative", Err(ESCAPES)),
        ("outside-late", Err(ESCAPES)),
        ("outside-chain", Err(ESCAPES)),
        ("outside-and-back", Err(ESCAPES)),
        ("up/../goal", Err("`..`")),
        ("near/goal/../goal/file", Err("`..`")),
        ("ring/self", Err(LOOP)),
        ("ring/self/x", Err(LOOP)),
        ("ring/self-up", Err(LOOP)),
        ("ring/one", Err(LOOP)),
        ("ring/x/two/y", Err(LOOP)),
    ] {
        let found =
            SandboxPath::parse(given).map_err(|refusal| refusal.to_string()).and_then(|_| scene.read(given));
        match (found, expected) {
            (Ok(text), Ok(file)) => assert_eq!(text, file, "{given}"),
            (Err(message), Err(reason)) => assert!(message.contains(reason), "{given}: {message}"),
            (found, expected) => panic!("{given}: {found:?}, not {expected:?}"),
        }
    }
}

#[test]
fn p4_link_limit_equals_the_kernels() {
    let scene = Scene::new();
    fs::write(scene.inside.join("0"), "end").unwrap();
    for number in 1..=41 {
        symlink((number - 1).to_string(), scene.inside.join(number.to_string())).unwrap();
    }
    assert_eq!(scene.read("40"), Ok("end".to_owned()));
    assert!(scene.read("41").unwrap_err().contains(LOOP));
}

#[test]
fn p4_names_of_every_length_open_or_are_refused() {
    let scene = Scene::new();
    let longest = "é".repeat(127);
    fs::write(scene.inside.join(&longest), "text").unwrap();
    assert_eq!(scene.read(&longest), Ok("text".to_owned()));
    let deep = vec!["d".repeat(255); 15].join("/");
    fs::create_dir_all(scene.inside.join(&deep)).unwrap();
    let place = SandboxPath::parse(&deep).unwrap();
    assert_eq!(scene.jail.readable(&place).unwrap().metadata().unwrap().kind, FileKind::Directory);
    // 16 of 255 bytes and 15 slashes are 4,095: what a path may have, and what the kernel takes.
    let deepest = format!("{deep}/{}", "d".repeat(255));
    assert!(scene.read(&deepest).unwrap_err().ends_with(MISSING));
    assert!(SandboxPath::parse(&format!("{deepest}//")).is_err());
}

#[test]
fn p4_the_limit_of_length_is_the_same_in_every_form() {
    let longest = format!("{}/{}/{}", vec!["d".repeat(255); 15].join("/"), "x".repeat(128), "y".repeat(127));
    assert_eq!(longest.len(), 4_096);
    for form in ["", "@project/", "/workspace/"] {
        let path = SandboxPath::parse(&format!("{form}{longest}")).unwrap();
        assert_eq!(SandboxPath::parse(&path.container_path()), Ok(path), "{form}");
        assert!(SandboxPath::parse(&format!("{form}{longest}/")).is_err(), "{form}");
    }
}
