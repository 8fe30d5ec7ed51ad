//! Tests that an effect applies to the state that was shown, or not at all.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use jail::Private;
use operations::{
    Bounds, Delete, Edit, EditChange, Held, Outcome, Patch, PatchChange, Preview, Reason, ToolFailure, Write,
};

use super::{Scene, path};
use crate::write::{delete, edit, patch, preview_delete, preview_edit, preview_patch, preview_write, write};

const GOOD: &str = "one\ngood\n";
const EVIL: &str = "two\nevil\n";

/// What is done to `d/f`, which has [`GOOD`].
#[derive(Debug, Clone, Copy)]
enum What {
    Write,
    Edit,
    Patch,
    Several,
    Delete,
    DeleteByPatch,
}

const ALL: [What; 6] =
    [What::Write, What::Edit, What::Patch, What::Several, What::Delete, What::DeleteByPatch];

struct Location {
    scene: Scene,
    _private: tempfile::TempDir,
}

impl Location {
    fn new() -> Self {
        let mut scene = Scene::new();
        let private = tempfile::tempdir().unwrap();
        scene.jail = std::mem::replace(&mut scene.jail, jail::Jail::new([], jail::Protection::default()))
            .with_private(Private::open(private.path(), 1).unwrap());
        fs::create_dir(scene.inside.join("d")).unwrap();
        scene.put("d/f", GOOD);
        scene.put("d/g", GOOD);
        Self { scene, _private: private }
    }

    fn at(&self, name: &str) -> std::path::PathBuf {
        self.scene.inside.join(name)
    }

    fn preview(&self, what: What) -> Preview {
        let (jail, bounds) = (&self.scene.jail, Bounds::default());
        match what {
            What::Write => preview_write(jail, &a_write(), &bounds),
            What::Edit => preview_edit(jail, &an_edit(), &bounds),
            What::Delete => preview_delete(jail, &a_delete(), &bounds),
            What::Patch | What::Several | What::DeleteByPatch => preview_patch(jail, &a_patch(what), &bounds),
        }
        .unwrap()
    }

    fn execute(&self, what: What, held_to: Option<Held>) -> Outcome {
        let (jail, bounds) = (&self.scene.jail, Bounds { held_to, ..Bounds::default() });
        match what {
            What::Write => write(jail, &a_write(), &bounds, None),
            What::Edit => edit(jail, &an_edit(), &bounds, None),
            What::Delete => delete(jail, &a_delete(), &bounds),
            What::Patch | What::Several | What::DeleteByPatch => patch(jail, &a_patch(what), &bounds),
        }
    }

    /// Everything below the workspace with its content and permissions.
    fn tree(&self) -> Vec<(String, u32, Vec<u8>)> {
        fn walk(at: &Path, found: &mut Vec<(String, u32, Vec<u8>)>) {
            for entry in fs::read_dir(at).unwrap() {
                let path = entry.unwrap().path();
                let meta = fs::symlink_metadata(&path).unwrap();
                let content = if meta.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
                found.push((path.to_str().unwrap().to_owned(), meta.permissions().mode(), content));
                if meta.is_dir() {
                    walk(&path, found);
                }
            }
        }
        let mut found = Vec::new();
        walk(&self.scene.inside, &mut found);
        found.sort();
        found
    }
}

fn a_write() -> Write {
    Write::new(path("d/f"), "new\n")
}

fn an_edit() -> Edit {
    let change = EditChange::StrReplace { old: "\n".to_owned(), new: " new\n".to_owned(), replace_all: true };
    Edit { path: path("d/f"), change, if_match_sha256: None }
}

fn a_delete() -> Delete {
    Delete { path: path("d/f"), if_match_sha256: None }
}

fn a_patch(what: What) -> Patch {
    let text = match what {
        What::Patch => "*** Begin Patch\n*** Update File: d/f\n@@\n-one\n+new\n*** End Patch\n",
        What::Several => {
            "*** Begin Patch\n*** Update File: d/f\n@@\n-one\n+new\n*** Delete File: d/g\n*** Add File: e/h\n+new\n*** End Patch\n"
        }
        _ => "*** Begin Patch\n*** Delete File: d/f\n*** End Patch\n",
    };
    Patch::new(PatchChange::Envelope(text.to_owned())).unwrap()
}

fn refused(outcome: Outcome) -> ToolFailure {
    let failure = outcome.unwrap_err();
    assert_eq!(failure.reason, Reason::PreconditionFailed, "{failure:?}");
    failure
}

#[test]
fn previewed_effect_is_executed() {
    for what in ALL {
        let location = Location::new();
        let held = location.preview(what).bound.held();
        assert!(held.is_some());
        assert_eq!(location.preview(what).bound.held(), held, "two looks at one state: {what:?}");
        location.execute(what, held.clone()).unwrap();
        let after = location.tree();
        assert!(after.iter().all(|(name, ..)| !name.contains("cofferdam-tmp")), "{after:?}");
        // It happens as without a consent.
        let other = Location::new();
        other.execute(what, None).unwrap();
        let contents = |location: &Location| -> Vec<_> {
            location.tree().into_iter().map(|(_, mode, content)| (mode, content)).collect()
        };
        assert_eq!(contents(&location), contents(&other), "{what:?}");
        // And once: what it was given to is not there any more.
        let _ = location.execute(what, held).unwrap_err();
    }
}

#[test]
fn changed_target_is_not_touched() {
    type Swap = (&'static str, fn(&Location));
    let swaps: [Swap; 9] = [
        ("another content in place", |location| fs::write(location.at("d/f"), EVIL).unwrap()),
        ("another file", |location| {
            fs::write(location.at("d/x"), EVIL).unwrap();
            fs::rename(location.at("d/x"), location.at("d/f")).unwrap();
        }),
        ("nothing", |location| fs::remove_file(location.at("d/f")).unwrap()),
        ("a link", |location| {
            fs::rename(location.at("d/f"), location.at("d/x")).unwrap();
            symlink("x", location.at("d/f")).unwrap();
        }),
        ("a directory", |location| {
            fs::remove_file(location.at("d/f")).unwrap();
            fs::create_dir(location.at("d/f")).unwrap();
        }),
        ("other permissions", |location| {
            fs::set_permissions(location.at("d/f"), fs::Permissions::from_mode(0o755)).unwrap();
        }),
        ("another directory with the same", |location| {
            fs::rename(location.at("d"), location.at("old")).unwrap();
            fs::create_dir(location.at("d")).unwrap();
            for name in ["f", "g"] {
                fs::copy(location.at("old").join(name), location.at("d").join(name)).unwrap();
            }
        }),
        ("a link to a directory with the same", |location| {
            fs::rename(location.at("d"), location.at("old")).unwrap();
            symlink("old", location.at("d")).unwrap();
        }),
        ("no directory", |location| fs::remove_dir_all(location.at("d")).unwrap()),
    ];
    for what in ALL {
        for (name, swap) in swaps {
            let location = Location::new();
            let held = location.preview(what).bound.held();
            swap(&location);
            let before = location.tree();
            assert!(location.execute(what, held).is_err(), "{what:?}, {name}");
            assert_eq!(location.tree(), before, "{what:?}, {name}");
        }
    }
}

#[test]
fn a_new_file_is_bound_to_its_absence() {
    let location = Location::new();
    fs::remove_file(location.at("d/f")).unwrap();
    let held = location.preview(What::Write).bound.held();
    location.scene.put("d/f", EVIL);
    refused(location.execute(What::Write, held.clone()));
    assert_eq!(location.scene.get("d/f"), EVIL.as_bytes());
    fs::remove_file(location.at("d/f")).unwrap();
    location.execute(What::Write, held).unwrap();
    assert_eq!(location.scene.get("d/f"), b"new\n");
}

#[test]
fn a_directory_is_bound_to_itself() {
    let location = Location::new();
    let (jail, request) = (&location.scene.jail, Delete { path: path("e"), if_match_sha256: None });
    fs::create_dir(location.at("e")).unwrap();
    let held_to = preview_delete(jail, &request, &Bounds::default()).unwrap().bound.held();
    fs::create_dir(location.at("x")).unwrap();
    fs::rename(location.at("x"), location.at("e")).unwrap();
    let bounds = Bounds { held_to, ..Bounds::default() };
    refused(delete(jail, &request, &bounds));
    assert!(location.at("e").is_dir());
}

/// The moment between the last look and the effect: somebody exchanges the file all the time, and whatever becomes of the call,
/// the content that the consent was not given to is never the content that it replaces.
#[test]
fn a_flipper_gains_nothing() {
    for what in [What::Write, What::Edit, What::Delete, What::Several] {
        for in_place in [false, true] {
            flip(what, in_place);
        }
    }
}

fn flip(what: What, in_place: bool) {
    let location = Location::new();
    let (mut happened, mut refusals) = (0_u32, 0_u32);
    for _ in 0..effort::cases(60, 500) {
        let _ = fs::remove_dir_all(location.at("d"));
        let _ = fs::remove_dir_all(location.at("e"));
        fs::create_dir(location.at("d")).unwrap();
        location.scene.put("d/f", GOOD);
        location.scene.put("d/g", GOOD);
        location.scene.put("good", GOOD);
        let held = location.preview(what).bound.held();
        let (stop, file, aside) = (AtomicBool::new(false), location.at("d/f"), location.at("aside"));
        let flips = AtomicBool::new(false);
        // What the call has displaced: the flipper finds out by what is left of its own.
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    for content in [EVIL, GOOD] {
                        // Once it is gone or changed it is let be.
                        let now = fs::read(&file).unwrap_or_default();
                        if now != GOOD.as_bytes() && now != EVIL.as_bytes() {
                            continue;
                        }
                        if in_place {
                            let _ = fs::OpenOptions::new().write(true).open(&file).and_then(|mut file| {
                                std::io::Write::write_all(&mut file, content.as_bytes())
                            });
                        } else {
                            fs::write(&aside, content).unwrap();
                            let _ = rustix::fs::renameat_with(
                                rustix::fs::CWD,
                                &aside,
                                rustix::fs::CWD,
                                &file,
                                rustix::fs::RenameFlags::EXCHANGE,
                            );
                        }
                        flips.store(true, Ordering::Relaxed);
                    }
                }
            });
            // On a busy machine it begins late.
            let patience = Instant::now() + Duration::from_secs(30);
            while !flips.load(Ordering::Relaxed) && Instant::now() < patience {
                std::thread::yield_now();
            }
            let outcome = location.execute(what, held);
            stop.store(true, Ordering::Relaxed);
            outcome
        });
        assert!(flips.into_inner(), "nobody flips");
        match outcome {
            Ok(result) => {
                happened += 1;
                // What it says to have displaced is what was seen, and an edit made of it what the reviewer saw.
                let text = format!("{result:?}");
                assert!(text.contains(&operations::sha256(GOOD.as_bytes())), "{what:?}: {text}");
                assert!(!text.contains(&operations::sha256(EVIL.as_bytes())), "{what:?}: {text}");
            }
            Err(failure) => {
                refusals += 1;
                assert_ne!(failure.reason, Reason::Internal, "{failure:?}");
            }
        }
    }
    assert!(happened + refusals > 0);
    assert!(refusals > 0, "{what:?}, in place {in_place}: the flipper was never in the way");
}
