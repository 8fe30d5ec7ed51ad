//! Tests that the sweep removes the leftovers of a killed writer and nothing else.

use std::fs;
use std::os::unix::fs::symlink;

use cofferdam_jail::{Parents, Private, Swept, Whose, WriteMode};

use crate::support::{Scene, names, path};

const DIGITS: &str = "0123456789abcdef0123456789abcdef";

fn temporary() -> String {
    format!(".cofferdam-tmp-{DIGITS}")
}

#[test]
fn a_write_that_ends_leaves_neither_temporary_nor_note() {
    let (scene, private) = Scene::new().private(1);
    fs::create_dir(scene.inside.join("blocked")).unwrap();
    let long = format!("{}f", "d/".repeat(2_000));
    for (name, succeeds) in [("f", true), ("a/b/f", true), (&long, true), ("blocked", false)] {
        let place = path(name);
        let target = scene.jail.writable(&place).unwrap().target(Parents::Create);
        let done = target.is_ok_and(|target| target.write(b"x", WriteMode::Replace).is_ok());
        assert_eq!(done, succeeds, "{name}");
    }
    let target_of = path("late");
    let target = scene.jail.writable(&target_of).unwrap().target(Parents::MustExist).unwrap();
    fs::create_dir(scene.inside.join("late")).unwrap();
    assert!(target.write(b"x", WriteMode::Replace).is_err());
    assert_eq!(names(&scene.inside), ["a", "blocked", "d", "f", "late"]);
    assert_eq!(names(&private), ["names.lock", "temporaries"]);
    assert!(names(&private.join("temporaries")).is_empty());
    assert!(scene.jail.private().unwrap().is_clean().unwrap());
}

#[test]
fn sweep_removes_only_noted_files() {
    let (scene, private) = Scene::new().private(1);
    let (notes, lookalike) = (private.join("temporaries"), ".cofferdam-tmp-fedcba9876543210fedcba9876543210");
    fs::create_dir_all(scene.inside.join("a/b")).unwrap();
    fs::create_dir(&notes).unwrap();
    for name in [temporary().as_str(), lookalike, "file"] {
        fs::write(scene.inside.join("a/b").join(name), "").unwrap();
        fs::write(scene.inside.join("a").join(name), "").unwrap();
    }
    symlink("@project/a/b", notes.join(format!("7.{DIGITS}"))).unwrap();
    assert!(!scene.jail.private().unwrap().is_clean().unwrap());
    assert_eq!(scene.jail.sweep(Whose::Job(77)).unwrap(), Swept::default());
    assert_eq!(scene.jail.sweep(Whose::Job(7)).unwrap(), Swept { removed: 1, left: 0 });
    assert_eq!(names(&scene.inside.join("a/b")), [lookalike, "file"]);
    assert_eq!(names(&scene.inside.join("a")), [temporary().as_str(), "b", "file", lookalike].sorted());
    assert!(scene.jail.private().unwrap().is_clean().unwrap());
}

#[test]
fn p1_no_number_of_notes_or_journals_hides_another() {
    let (scene, private) = Scene::new().private(1);
    for directory in ["temporaries", "patches"] {
        fs::create_dir(private.join(directory)).unwrap();
    }
    for n in 0..12_000 {
        symlink("-", private.join(format!("temporaries/7.{n:032x}"))).unwrap();
    }
    for n in 0..1_200 {
        fs::write(private.join(format!("patches/{n}.part")), "").unwrap();
    }
    assert_eq!(scene.jail.recover_patches(Whose::Everyone).unwrap(), []);
    assert_eq!(names(&private.join("patches")), [""; 0]);
    assert_eq!(scene.jail.sweep(Whose::Job(7)).unwrap(), Swept::default());
    assert_eq!(names(&private.join("temporaries")), [""; 0]);
}

#[test]
fn a_note_in_a_file_is_also_read() {
    let (scene, private) = Scene::new().private(1);
    fs::create_dir(private.join("temporaries")).unwrap();
    fs::write(scene.inside.join(temporary()), "").unwrap();
    fs::write(private.join(format!("temporaries/1.{DIGITS}")), "@project").unwrap();
    assert_eq!(scene.jail.sweep(Whose::Everyone).unwrap(), Swept { removed: 1, left: 0 });
    assert!(names(&scene.inside).is_empty());
}

#[test]
fn a_hostile_note_leads_nowhere() {
    let (scene, private) = Scene::new().private(1);
    let notes = private.join("temporaries");
    fs::create_dir(&notes).unwrap();
    fs::create_dir_all(scene.inside.join(".git/hooks")).unwrap();
    fs::create_dir(scene.inside.join(temporary())).unwrap();
    for place in [&scene.outside, &scene.inside.join(".git")] {
        fs::write(place.join(temporary()), "kept").unwrap();
    }
    symlink("../outside", scene.inside.join("out")).unwrap();
    let outside = scene.outside.to_str().unwrap();
    for (n, target) in [
        "@project/out",
        "@project/../outside",
        "@project/.git",
        "@project",
        "@project/gone",
        "@state",
        "nonsense\u{1}",
        outside,
    ]
    .into_iter()
    .enumerate()
    {
        symlink(target, notes.join(format!("{n}.{DIGITS}"))).unwrap();
    }
    assert_eq!(scene.jail.sweep(Whose::Everyone).unwrap(), Swept::default());
    assert_eq!(scene.outside_names(), [temporary().as_str(), "canary"].sorted());
    assert!(scene.inside.join(".git").join(temporary()).exists());
    assert!(scene.inside.join(temporary()).is_dir());
    assert!(names(&notes).is_empty());
    // What is no note is not judged.
    fs::create_dir(notes.join("directory")).unwrap();
    fs::create_dir(notes.join(format!("1.{DIGITS}"))).unwrap();
    assert_eq!(scene.jail.sweep(Whose::Everyone).unwrap(), Swept { removed: 0, left: 1 });
}

#[test]
fn a_jail_without_a_private_directory_has_nothing_to_sweep() {
    let scene = Scene::new();
    fs::write(scene.inside.join(temporary()), "").unwrap();
    assert_eq!(scene.jail.sweep(Whose::Everyone).unwrap(), Swept::default());
    assert_eq!(names(&scene.inside), [temporary()]);
    assert!(Private::open(&scene.inside.join("none"), 1).is_err());
}

trait Sorted {
    fn sorted(self) -> Self;
}

impl<const N: usize> Sorted for [&str; N] {
    fn sorted(mut self) -> Self {
        self.sort_unstable();
        self
    }
}
