//! Tests removal beneath a root: which files may be removed, and files that change before.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::{Scene, names, path};
use cofferdam_jail::{Removable, Removal, RemoveError};

fn removal(scene: &Scene, text: &str) -> Result<Removal, RemoveError> {
    let path = path(text);
    scene.jail.writable(&path).unwrap().removal()
}

fn refusal(scene: &Scene, text: &str) -> String {
    removal(scene, text).unwrap_err().to_string()
}

#[test]
fn files_and_empty_directories_go() {
    let scene = Scene::new();
    fs::create_dir_all(scene.inside.join("d/empty")).unwrap();
    fs::write(scene.inside.join("d/file"), "text").unwrap();
    let file = removal(&scene, "d/file").unwrap();
    let Removable::File(open) = file.what() else { panic!("a file is a file") };
    assert_eq!(open.meta.size, 4);
    file.remove().unwrap();
    let directory = removal(&scene, "d/empty").unwrap();
    assert!(matches!(directory.what(), Removable::Directory(_)));
    directory.remove().unwrap();
    assert!(names(&scene.inside.join("d")).is_empty());
}

#[test]
fn refused_removals_have_a_reason() {
    let scene = Scene::new();
    fs::create_dir(scene.inside.join("d")).unwrap();
    fs::write(scene.inside.join("d/file"), "").unwrap();
    symlink(&scene.outside, scene.inside.join("out")).unwrap();
    symlink("d", scene.inside.join("in")).unwrap();
    let link = "a symlink is in the path and is not followed here";
    for (text, expected) in [
        ("@project", "@project: another mount point, which no path may cross".to_owned()),
        ("d", "@project/d: the directory is not empty".to_owned()),
        ("gone", "@project/gone: no such file or directory".to_owned()),
        ("out", format!("@project/out: {link}")),
        ("out/canary", format!("@project/out/canary: {link}")),
        ("in/file", format!("@project/in/file: {link}")),
    ] {
        assert_eq!(refusal(&scene, text), expected);
    }
    assert_eq!(
        (names(&scene.inside), scene.outside_names()),
        (vec!["d".into(), "in".into(), "out".into()], vec!["canary".into()])
    );
}

#[test]
fn p1_files_changed_after_the_check_are_not_removed() {
    let scene = Scene::new();
    let (file, other) = (scene.inside.join("file"), scene.inside.join("other"));
    let changes: [(&str, &dyn Fn()); 5] = [
        ("written to", &|| fs::write(&file, "more text").unwrap()),
        ("replaced", &|| fs::rename(&other, &file).unwrap()),
        ("a link", &|| {
            fs::remove_file(&file).unwrap();
            symlink(scene.outside.join("canary"), &file).unwrap();
        }),
        ("a directory", &|| {
            fs::remove_file(&file).unwrap();
            fs::create_dir(&file).unwrap();
        }),
        ("gone", &|| fs::remove_dir(&file).unwrap()),
    ];
    for (what, change) in changes {
        if what != "gone" {
            let _ = fs::remove_dir(&file);
            let _ = fs::remove_file(&file);
            fs::write(&file, "text").unwrap();
        }
        fs::write(&other, "other").unwrap();
        if what == "gone" {
            let directory = removal(&scene, "file").unwrap();
            change();
            assert!(matches!(directory.remove(), Err(RemoveError::Changed { .. })), "{what}");
            continue;
        }
        let looked_at = removal(&scene, "file").unwrap();
        change();
        assert!(matches!(looked_at.remove(), Err(RemoveError::Changed { .. })), "{what}");
        assert!(fs::symlink_metadata(&file).is_ok(), "{what}");
    }
    assert_eq!(fs::read(scene.outside.join("canary")).unwrap(), b"canary");
}

#[test]
fn p1_a_directory_that_was_moved_away_takes_the_removal_with_it() {
    let scene = Scene::new();
    for directory in ["d", "e"] {
        fs::create_dir(scene.inside.join(directory)).unwrap();
        fs::write(scene.inside.join(directory).join("file"), directory).unwrap();
    }
    let looked_at = removal(&scene, "d/file").unwrap();
    fs::rename(scene.inside.join("d"), scene.inside.join("moved")).unwrap();
    symlink(&scene.outside, scene.inside.join("d")).unwrap();
    looked_at.remove().unwrap();
    assert!(names(&scene.inside.join("moved")).is_empty());
    assert_eq!(
        (names(&scene.inside.join("e")), scene.outside_names()),
        (vec!["file".into()], vec!["canary".into()])
    );
}
