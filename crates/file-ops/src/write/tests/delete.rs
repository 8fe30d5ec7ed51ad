//! Tests which files may be deleted, the contents of the trash afterwards, and which files stay.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::PathBuf;

use jail::{Private, Whose};
use operations::{
    Bounds, Delete, DeleteResult, EntryType, Held, OpResult, Outcome, Reason, ToolFailure, TrashEntry,
    TrashRecord,
};
use rustix::fs::{CWD, Mode, mkfifoat};

use super::{Scene, path};
use crate::{delete, preview_delete, recover};

/// Bytes of a file that the trash does not take.
const HUGE: u64 = 256 * 1024 * 1024 + 1;

/// A scene with a trash.
struct Bin {
    scene: Scene,
    private: PathBuf,
}

impl Bin {
    fn new() -> Self {
        let mut scene = Scene::new();
        let private = scene.outside.with_file_name("private");
        fs::create_dir(&private).unwrap();
        scene.jail = scene.jail.with_private(Private::open(&private, 7).unwrap());
        Self { scene, private }
    }

    fn delete(&self, at: &str) -> Result<DeleteResult, ToolFailure> {
        self.delete_if(at, None)
    }

    /// Deletes, after a look at what it would do.
    fn delete_if(&self, at: &str, if_match_sha256: Option<&str>) -> Result<DeleteResult, ToolFailure> {
        let request = Delete { path: path(at), if_match_sha256: if_match_sha256.map(str::to_owned) };
        let before = self.names();
        let foretold = preview_delete(&self.scene.jail, &request, &Bounds::default());
        let foretold = of(foretold.map(|preview| preview.result));
        assert_eq!(self.names(), before, "a preview changes nothing");
        let done = of(delete(&self.scene.jail, &request, &Bounds::default()));
        match (&done, foretold) {
            (Ok(result), Ok(foretold)) => {
                assert_eq!(DeleteResult { trash_entry: String::new(), ..result.clone() }, foretold);
            }
            (Err(failure), foretold) => {
                assert_eq!(Err(failure.clone()), foretold);
                assert_eq!(self.names(), before, "what fails leaves nothing in the trash");
            }
            (Ok(result), Err(foretold)) => panic!("{result:?}, but foretold {foretold:?}"),
        }
        done
    }

    /// What a reviewer would see, and what the consent would be bound to.
    fn foretell(&self, at: &str) -> (DeleteResult, Held) {
        let request = Delete { path: path(at), if_match_sha256: None };
        let preview = preview_delete(&self.scene.jail, &request, &Bounds::default()).unwrap();
        let held = preview.bound.held().unwrap();
        (of(Ok(preview.result)).unwrap(), held)
    }

    fn delete_held(&self, at: &str, held_to: Option<Held>) -> Outcome {
        let request = Delete { path: path(at), if_match_sha256: None };
        delete(&self.scene.jail, &request, &Bounds { held_to, ..Bounds::default() })
    }

    /// A file that is larger than anything that the trash takes.
    fn huge(&self) {
        let file = fs::File::create(self.scene.inside.join("huge")).unwrap();
        file.set_len(HUGE).unwrap();
    }

    /// As much as the trash may hold.
    fn fill(&self) {
        fs::create_dir_all(self.private.join("trash")).unwrap();
        for entry in 0..4 {
            let file = fs::File::create(self.private.join("trash").join(format!("1-1-{entry}"))).unwrap();
            file.set_len(256 * 1024 * 1024).unwrap();
        }
    }

    fn names(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.private.join("trash")) else { return Vec::new() };
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    fn content(&self, entry: &str) -> Vec<u8> {
        fs::read(self.private.join("trash").join(entry)).unwrap()
    }

    fn record(&self, entry: &str) -> TrashRecord {
        serde_json::from_slice(&self.content(&format!("{entry}.json"))).unwrap()
    }
}

fn of(outcome: Outcome) -> Result<DeleteResult, ToolFailure> {
    match outcome? {
        OpResult::Delete(result) => Ok(result),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_is_moved_to_the_trash_with_its_metadata() {
    let bin = Bin::new();
    fs::create_dir(bin.scene.inside.join("d")).unwrap();
    bin.scene.put("d/a.txt", b"one\0two");
    fs::set_permissions(bin.scene.inside.join("d/a.txt"), fs::Permissions::from_mode(0o640)).unwrap();
    let result = bin.delete("d/a.txt").unwrap();
    assert!(!bin.scene.inside.join("d/a.txt").exists());
    assert_eq!(bin.content(&result.trash_entry), b"one\0two");
    let expected = TrashRecord {
        path: "@project/d/a.txt".into(),
        entry_type: EntryType::File,
        size_bytes: 7,
        sha256: operations::sha256(b"one\0two"),
        mode: 0o640,
    };
    assert_eq!(bin.record(&result.trash_entry), expected);
    assert_eq!((result.size_bytes, result.sha256), (7, expected.sha256));
    let entry = TrashEntry::parse(&result.trash_entry).unwrap();
    assert_eq!((entry.job, bin.names().len()), (7, 2));
    for name in bin.names() {
        let mode = fs::metadata(bin.private.join("trash").join(name)).unwrap().mode();
        assert_eq!(mode & 0o7777, 0o600, "nobody else reads it");
    }
}

#[test]
fn the_same_name_again_is_another_entry() {
    let bin = Bin::new();
    let mut entries = Vec::new();
    for n in 0..5 {
        bin.scene.put("a", n.to_string());
        entries.push(bin.delete("a").unwrap().trash_entry);
    }
    for (n, entry) in entries.iter().enumerate() {
        assert_eq!(bin.content(entry), n.to_string().into_bytes());
    }
}

#[test]
fn an_empty_directory_is_deleted() {
    let bin = Bin::new();
    fs::create_dir_all(bin.scene.inside.join("d/e")).unwrap();
    bin.scene.put("d/e/.hidden", "");
    let full = bin.delete("d/e").unwrap_err();
    assert_eq!(full.reason, Reason::PreconditionFailed);
    assert_eq!(
        full.message,
        "@project/d/e: the directory is not empty; delete its content first (hidden names, too)"
    );
    bin.delete("d/e/.hidden").unwrap();
    let result = bin.delete("d/e").unwrap();
    assert_eq!((result.r#type(), result.size_bytes, result.sha256.as_str()), (EntryType::Directory, 0, ""));
    assert!(!bin.scene.inside.join("d/e").exists());
    assert_eq!(bin.record(&result.trash_entry).entry_type, EntryType::Directory);
}

#[test]
fn a_hash_that_differs_keeps_the_file() {
    let bin = Bin::new();
    bin.scene.put("a", "now");
    let (now, other) = (operations::sha256(b"now"), operations::sha256(b"then"));
    let failure = bin.delete_if("a", Some(&other)).unwrap_err();
    assert_eq!((failure.reason, &failure.details["sha256"]), (Reason::PreconditionFailed, &now));
    assert_eq!(bin.scene.get("a"), b"now");
    fs::create_dir(bin.scene.inside.join("d")).unwrap();
    let failure = bin.delete_if("d", Some(&now)).unwrap_err();
    assert_eq!(failure.reason, Reason::PreconditionFailed);
    assert!(failure.message.contains("is a directory"), "{}", failure.message);
    bin.delete_if("a", Some(&now)).unwrap();
}

#[test]
fn p2_p3_p4_special_and_protected_files_are_not_deleted() {
    let bin = Bin::new();
    let (scene, inside) = (&bin.scene, &bin.scene.inside);
    fs::write(scene.outside.join("canary"), "canary").unwrap();
    for directory in [".git", "node_modules/.bin", "real"] {
        fs::create_dir_all(inside.join(directory)).unwrap();
    }
    for file in [".git/index", "node_modules/.bin/tsc", "real/file", ".cofferdam-tmp-0"] {
        scene.put(file, "x");
    }
    symlink(&scene.outside, inside.join("out")).unwrap();
    symlink("real", inside.join("in")).unwrap();
    symlink("real/file", inside.join("link")).unwrap();
    symlink("nowhere", inside.join("dangling")).unwrap();
    mkfifoat(CWD, inside.join("fifo"), Mode::RWXU).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(inside.join("socket")).unwrap();
    for (at, reason) in [
        (".git", Reason::SandboxViolation),
        (".git/index", Reason::SandboxViolation),
        (".GIT/index", Reason::SandboxViolation),
        ("node_modules/.bin/tsc", Reason::SandboxViolation),
        ("node_modules/.bin", Reason::SandboxViolation),
        (".cofferdam-tmp-0", Reason::SandboxViolation),
        ("@pkg/a", Reason::SandboxViolation),
        ("@state/a", Reason::SandboxViolation),
        ("@project", Reason::SandboxViolation),
        ("out/canary", Reason::SandboxViolation),
        ("out", Reason::SandboxViolation),
        ("in/file", Reason::SandboxViolation),
        ("in", Reason::SandboxViolation),
        ("link", Reason::SandboxViolation),
        ("dangling", Reason::SandboxViolation),
        ("fifo", Reason::SandboxViolation),
        ("socket", Reason::SandboxViolation),
        ("node_modules", Reason::PreconditionFailed),
        ("gone", Reason::NotFound),
        ("gone/file", Reason::NotFound),
        ("real/file/x", Reason::InvalidArgument),
    ] {
        let failure = bin.delete(at).unwrap_err();
        assert_eq!(failure.reason, reason, "{at}: {}", failure.message);
    }
    assert_eq!(
        scene.names(),
        [
            ".cofferdam-tmp-0",
            ".git",
            "dangling",
            "fifo",
            "in",
            "link",
            "node_modules",
            "out",
            "real",
            "socket"
        ]
    );
    assert_eq!(fs::read(scene.outside.join("canary")).unwrap(), b"canary");
}

#[test]
fn p3_other_names_of_a_hard_link_stay() {
    let bin = Bin::new();
    bin.scene.put("a", "both");
    fs::hard_link(bin.scene.inside.join("a"), bin.scene.inside.join("b")).unwrap();
    let result = bin.delete("a").unwrap();
    assert_eq!((bin.scene.get("b"), bin.content(&result.trash_entry)), (b"both".to_vec(), b"both".to_vec()));
    assert_eq!(fs::metadata(bin.scene.inside.join("b")).unwrap().nlink(), 1);
}

#[test]
fn c4_a_file_that_the_trash_does_not_take_stays() {
    let bin = Bin::new();
    bin.huge();
    let unasked = |at: &str| of(bin.delete_held(at, None)).unwrap_err();
    assert_eq!(unasked("huge").reason, Reason::WriteLimit);
    assert!(bin.scene.inside.join("huge").exists());

    // The sum counts, too.
    bin.fill();
    bin.scene.put("a", "x");
    let failure = unasked("a");
    assert_eq!((failure.reason, bin.scene.get("a")), (Reason::WriteLimit, b"x".to_vec()));
    assert!(failure.message.contains("trash is full"), "{}", failure.message);
    assert!(failure.message.contains("permanently"), "{}", failure.message);
}

#[test]
fn c4_oversized_files_are_deleted_permanently_with_consent() {
    let bin = Bin::new();
    bin.huge();
    bin.fill();
    bin.scene.put("a", "x");
    let before = bin.names();
    for (at, hashed) in [("huge", false), ("a", true)] {
        let (foretold, held) = bin.foretell(at);
        assert!(foretold.gone_for_good && foretold.sha256.is_empty() != hashed, "{foretold:?}");
        assert_eq!(of(bin.delete_held(at, Some(held))), Ok(foretold), "{at}");
        assert!(!bin.scene.inside.join(at).exists(), "{at}");
    }
    assert_eq!(bin.names(), before);
}

#[test]
fn c4_consent_to_the_trash_does_not_cover_permanent_deletion() {
    let bin = Bin::new();
    bin.scene.put("a", "x");
    let (kept, to_the_trash) = bin.foretell("a");
    bin.fill();
    let (gone, for_good) = bin.foretell("a");
    assert_eq!((kept.gone_for_good, gone.gone_for_good), (false, true));
    assert_ne!(to_the_trash, for_good);
    // The trash filled up while the reviewer looked: what was promised to be kept is.
    let failure = of(bin.delete_held("a", Some(to_the_trash))).unwrap_err();
    assert_eq!((failure.reason, bin.scene.get("a")), (Reason::PreconditionFailed, b"x".to_vec()));
    // It has space again: nothing has to go.
    fs::remove_dir_all(bin.private.join("trash")).unwrap();
    let result = of(bin.delete_held("a", Some(for_good))).unwrap();
    assert!(!result.gone_for_good);
    assert_eq!(bin.content(&result.trash_entry), b"x");

    // A large file is bound to what no program can set.
    bin.huge();
    let (_, held) = bin.foretell("huge");
    fs::write(bin.scene.inside.join("huge"), "other").unwrap();
    fs::File::options()
        .write(true)
        .open(bin.scene.inside.join("huge"))
        .and_then(|file| file.set_len(HUGE))
        .unwrap();
    let failure = of(bin.delete_held("huge", Some(held))).unwrap_err();
    assert_eq!(failure.reason, Reason::PreconditionFailed);
    assert!(bin.scene.inside.join("huge").exists());
}

#[test]
fn without_a_trash_nothing_is_deleted() {
    let scene = Scene::new();
    scene.put("a", "x");
    let request = Delete { path: path("a"), if_match_sha256: None };
    assert!(preview_delete(&scene.jail, &request, &Bounds::default()).is_err());
    let failure = of(delete(&scene.jail, &request, &Bounds::default())).unwrap_err();
    assert_eq!((failure.reason, scene.get("a")), (Reason::Internal, b"x".to_vec()));
}

#[test]
fn a_copy_that_is_no_entry_is_removed_by_recovery() {
    let bin = Bin::new();
    bin.scene.put("a", "x");
    let whole = bin.delete("a").unwrap().trash_entry;
    for orphan in ["1-7-0", "1-8-0", "not ours"] {
        fs::write(bin.private.join("trash").join(orphan), "half").unwrap();
    }
    let left = |whose| {
        recover(&bin.scene.jail, whose).unwrap();
        let mut names = bin.names();
        names.sort();
        names
    };
    let record = format!("{whole}.json");
    assert_eq!(left(Whose::Job(7)), ["1-8-0", &whole, &record, "not ours"]);
    assert_eq!(left(Whose::Everyone), [&whole, &record, "not ours"]);
}
