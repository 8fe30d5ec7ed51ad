//! Failing and dying at every point of a transaction, and somebody hostile at every point: all of it or nothing, and no
//! untruth about what could not be taken back.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

use super::*;
use crate::Mount;
use crate::private::{Private, Whose};
use crate::protect::Protection;
use crate::root::Root;

/// Files and directories beneath a directory; a directory's content is `/`, a link's where it leads.
type Tree = BTreeMap<String, String>;

struct Scene {
    // Held for its removal.
    _top: tempfile::TempDir,
    inside: PathBuf,
    private: PathBuf,
}

impl Scene {
    fn new() -> Self {
        // In memory where there is such a place: there are thousands of syncs, and no loss of power here.
        let memory = Path::new("/dev/shm");
        let top = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        let [inside, outside, private] = ["inside", "outside", "private"].map(|name| top.path().join(name));
        for directory in [&inside, &outside, &private, &inside.join("d")] {
            fs::create_dir(directory).unwrap();
        }
        for (name, content) in
            [("a", "old a"), ("d/b", "old b"), ("gone", "old gone"), ("m", "old m"), ("other", "x")]
        {
            fs::write(inside.join(name), content).unwrap();
        }
        fs::write(outside.join("canary"), "canary").unwrap();
        fs::set_permissions(inside.join("m"), fs::Permissions::from_mode(0o750)).unwrap();
        Self { _top: top, inside, private }
    }

    fn jail(&self) -> Jail {
        Jail::new([Root::open(Mount::Project, &self.inside).unwrap()], Protection::default())
            .with_private(Private::open(&self.private, 7).unwrap())
    }

    fn tree(&self) -> Tree {
        tree(&self.inside)
    }

    /// Updates two files, removes one, moves one, and creates two in directories that are not there.
    fn run(&self, hook: Hook<'_>) -> Result<(), CommitError> {
        let jail = self.jail();
        let paths =
            ["a", "d/b", "gone", "m", "n/m2", "n/e/new", "top"].map(|path| SandboxPath::parse(path).unwrap());
        let place = |path: usize| jail.writable(&paths[path]).unwrap();
        let seen = |path: usize| {
            let mut target = place(path).target(Parents::MustExist).ok()?;
            target.read().unwrap();
            Some(target)
        };
        let Found::File(mode) = seen(3).unwrap().found() else { unreachable!() };
        let put = |content: &str, like| Then::Put { content: content.as_bytes().to_vec(), like };
        let changes = [
            (0, put("new a", None)),
            (1, put("new b", None)),
            (2, Then::Gone),
            (3, Then::Gone),
            (4, put("new m", Some(mode))),
            (5, put("new", None)),
            (6, put("new top", None)),
        ];
        let changes =
            changes.into_iter().map(|(path, then)| Change::new(place(path), seen(path), then)).collect();
        jail.commit_with(changes, hook)
    }

    /// What the host worker does after a death.
    fn recover(&self) -> Vec<PatchRecovery> {
        let jail = self.jail();
        let recovered = jail.recover_patches(Whose::Everyone).unwrap();
        jail.sweep(Whose::Everyone).unwrap();
        recovered
    }

    fn is_clean(&self) -> bool {
        Private::open(&self.private, 7).unwrap().is_clean().unwrap()
    }
}

fn tree(top: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut left = vec![top.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(top).unwrap().to_str().unwrap().to_owned();
            let kind = fs::symlink_metadata(&path).unwrap().file_type();
            let content = if kind.is_symlink() {
                format!("-> {}", fs::read_link(&path).unwrap().display())
            } else if kind.is_dir() {
                left.push(path);
                "/".to_owned()
            } else {
                fs::read_to_string(&path).unwrap()
            };
            tree.insert(name, content);
        }
    }
    tree
}

fn of(entries: &[(&str, &str)]) -> Tree {
    entries.iter().map(|&(name, content)| (name.to_owned(), content.to_owned())).collect()
}

fn old() -> Tree {
    of(&[("a", "old a"), ("d", "/"), ("d/b", "old b"), ("gone", "old gone"), ("m", "old m"), ("other", "x")])
}

fn new() -> Tree {
    of(&[
        ("a", "new a"),
        ("d", "/"),
        ("d/b", "new b"),
        ("n", "/"),
        ("n/e", "/"),
        ("n/e/new", "new"),
        ("n/m2", "new m"),
        ("other", "x"),
        ("top", "new top"),
    ])
}

/// Every point that a transaction passes.
fn points() -> Vec<Point> {
    let mut points = Vec::new();
    Scene::new()
        .run(&mut |point| {
            points.push(point);
            Ok(())
        })
        .unwrap();
    points
}

fn is_committed(point: Point) -> bool {
    matches!(point, Point::Committed | Point::Clean(_) | Point::Cleaned)
}

#[test]
fn all_of_it() {
    let scene = Scene::new();
    let before = fs::metadata(scene.inside.join("a")).unwrap();
    scene.run(&mut |_| Ok(())).unwrap();
    assert_eq!(scene.tree(), new());
    let mode = |name: &str| fs::metadata(scene.inside.join(name)).unwrap().mode() & 0o7777;
    assert_eq!((mode("a"), mode("n/m2"), mode("top")), (before.mode() & 0o7777, 0o750, 0o644));
    assert!(scene.is_clean());
    assert_eq!(scene.recover(), []);
}

#[test]
fn a_failure_at_any_point_leaves_nothing() {
    for at in points() {
        for errno in [Errno::NOSPC, Errno::DQUOT, Errno::ROFS, Errno::IO] {
            let scene = Scene::new();
            let result = scene.run(&mut |point| if point == at { Err(errno) } else { Ok(()) });
            match (is_committed(at), result) {
                (false, Err(error)) => {
                    assert!(error.undone && error.left.is_empty(), "{at:?}: {error}");
                    assert!(error.to_string().ends_with("; no file was changed"), "{at:?}: {error}");
                    assert_eq!(scene.tree(), old(), "{at:?}");
                    assert!(scene.is_clean(), "{at:?}");
                }
                (true, result) => {
                    assert_eq!(result.is_err(), at == Point::Committed);
                    assert!(result.is_ok_and(|()| true) || at == Point::Committed);
                    for recovered in scene.recover() {
                        assert_eq!(recovered.recovery, Recovery::Completed);
                    }
                    assert_eq!(scene.tree(), new(), "{at:?}");
                    assert!(scene.is_clean(), "{at:?}");
                }
                (false, Ok(())) => panic!("{at:?} did not fail"),
            }
        }
    }
}

/// Unwinding simulates a death: nothing in a transaction tidies up when it is dropped.
fn die(scene: &Scene, hook: Hook<'_>) {
    assert!(catch_unwind(AssertUnwindSafe(|| scene.run(hook))).is_err());
}

fn death() -> Result<(), Errno> {
    resume_unwind(Box::new("death"))
}

#[test]
fn a_death_at_any_point_leaves_all_or_nothing() {
    for at in points() {
        let scene = Scene::new();
        die(&scene, &mut |point| if point == at { death() } else { Ok(()) });
        let jail = scene.jail();
        assert_eq!(jail.recover_patches(Whose::Job(8)).unwrap(), [], "another operation's");
        let recovered = scene.recover();
        let expected = if is_committed(at) { new() } else { old() };
        // Directories are made before they can be known to be ours.
        let mut tree = scene.tree();
        if matches!(at, Point::Prepare(_) | Point::Journal) {
            tree.retain(|_, content| content != "/");
            tree.insert("d".to_owned(), "/".to_owned());
        }
        assert_eq!(tree, expected, "{at:?}");
        assert!(recovered.iter().all(|recovered| recovered.left.is_empty() && recovered.finished), "{at:?}");
        assert!(scene.is_clean(), "{at:?}");
        assert_eq!(scene.recover(), [], "twice is once");
    }
}

#[test]
fn a_death_while_it_is_undone_does_not_matter() {
    for at in
        points().into_iter().filter(|at| matches!(at, Point::Apply(_) | Point::Applied(_) | Point::Commit))
    {
        for step in 0..7 {
            let scene = Scene::new();
            die(&scene, &mut |point| match point {
                Point::Revert(now) if now == step => death(),
                point if point == at => Err(Errno::NOSPC),
                _ => Ok(()),
            });
            let recovered = scene.recover();
            assert_eq!(recovered.len(), 1);
            assert_eq!(recovered[0].left, []);
            assert_eq!(scene.tree(), old(), "{at:?} {step}");
            assert!(scene.is_clean());
        }
    }
}

/// What somebody hostile can do at once.
type Blow = fn(&Path);
const ATTACKS: [(&str, Blow); 9] = [
    ("overwrite in place", |top| drop(fs::write(top.join("a"), "theirs"))),
    ("replace", |top| {
        fs::write(top.join("other"), "theirs").unwrap();
        drop(fs::rename(top.join("other"), top.join("d/b")));
    }),
    ("remove", |top| drop(fs::remove_file(top.join("a")))),
    ("remove what is new", |top| drop(fs::remove_file(top.join("top")))),
    ("create what is to be new", |top| {
        if !top.join("top").exists() {
            fs::write(top.join("top"), "theirs").unwrap();
        }
    }),
    ("remove shadows", |top| {
        for name in shadows(top) {
            fs::remove_file(name).unwrap();
        }
    }),
    ("exchange shadows", |top| {
        for name in shadows(top) {
            fs::remove_file(&name).unwrap();
            fs::write(name, "theirs").unwrap();
        }
    }),
    ("take a directory away", |top| drop(fs::rename(top.join("d"), top.join("away")))),
    ("put a link in its place", |top| {
        let _ = fs::rename(top.join("d"), top.join("away"));
        let _ = symlink("../outside", top.join("d"));
    }),
];

fn shadows(top: &Path) -> Vec<PathBuf> {
    let names = tree(top).into_keys().filter(|name| name.contains(".cofferdam-tmp-"));
    names.map(|name| top.join(name)).collect()
}

#[test]
fn interference_at_any_point_is_reported() {
    for (attack, blow) in ATTACKS {
        for at in points() {
            for fails in [false, true] {
                let scene = Scene::new();
                let result = scene.run(&mut |point| {
                    if point == at {
                        blow(&scene.inside);
                    }
                    // Whatever they did, the transaction is to be taken back in the end.
                    if fails && point == Point::Commit { Err(Errno::NOSPC) } else { Ok(()) }
                });
                let context = format!("{attack} at {at:?}, fails: {fails}: {result:?}");
                let outside = tree(&scene.inside.parent().unwrap().join("outside"));
                assert_eq!(outside, of(&[("canary", "canary")]), "{context}");
                if let Err(error) = result {
                    assert!(error.undone, "{context}");
                    check_left(&scene, attack, &error.left, &context);
                } else {
                    assert!(!fails, "{context}");
                }
                scene.recover();
                assert_eq!(shadows(&scene.inside), [] as [PathBuf; 0], "{context}");
            }
        }
    }
}

/// Every file that is not named is as it was, unless the attack itself changed it.
fn check_left(scene: &Scene, attack: &str, left: &[Left], context: &str) {
    let (tree, before) = (scene.tree(), old());
    let away = |name: &str| name.replacen("d/", "away/", 1);
    for name in ["a", "d/b", "gone", "m", "n/m2", "n/e/new", "top"] {
        let now = tree.get(name).or_else(|| tree.get(&away(name)));
        let named = left.iter().find(|left| left.path == format!("@project/{name}"));
        let was = before.get(name);
        match named.map(|left| left.state) {
            None => assert!(
                now == was || now.is_some_and(|now| now == "theirs") || (now.is_none() && attack == "remove"),
                "{name} is {now:?}, {context}"
            ),
            Some(LeftState::New) => {
                assert!(now.is_some_and(|now| now.starts_with("new")), "{name}, {context}");
            }
            Some(LeftState::Theirs) => assert!(now.is_some(), "{name}, {context}"),
            Some(LeftState::Gone) => assert_eq!(now, None, "{name}, {context}"),
            Some(LeftState::Unknown) => {}
        }
    }
}

/// Plays the process that is killed: only where the environment says so.
#[test]
fn victim() {
    let Some(top) = std::env::var_os("COFFERDAM_PATCH_VICTIM").map(PathBuf::from) else { return };
    for round in (0_u64..).map(|round| round % 2) {
        let jail = victims_jail(&top);
        let paths: Vec<SandboxPath> =
            (0..8).map(|n| SandboxPath::parse(&format!("d{n}/f")).unwrap()).collect();
        let come_and_go = SandboxPath::parse(if round == 0 { "even/x" } else { "odd/x" }).unwrap();
        let gone = SandboxPath::parse(if round == 0 { "odd/x" } else { "even/x" }).unwrap();
        let change = |path, then| {
            let place = jail.writable(path).unwrap();
            let mut target = place.target(Parents::MustExist).ok();
            target.as_mut().map(|target| target.read().unwrap());
            Change::new(place, target, then)
        };
        let content = || Then::Put { content: round.to_string().repeat(5000).into_bytes(), like: None };
        let mut changes: Vec<_> = paths.iter().map(|path| change(path, content())).collect();
        changes.push(change(&come_and_go, content()));
        if top.join("inside").join(gone.rel().as_str()).exists() {
            changes.push(change(&gone, Then::Gone));
        }
        jail.commit(changes).unwrap();
        fs::write(top.join("begun"), "").unwrap();
    }
}

fn victims_jail(top: &Path) -> Jail {
    Jail::new([Root::open(Mount::Project, &top.join("inside")).unwrap()], Protection::default())
        .with_private(Private::open(&top.join("private"), 1).unwrap())
}

#[test]
fn a_killed_process_leaves_all_or_nothing() {
    let kills = effort::cases(20, 60);
    let top = tempfile::tempdir().unwrap();
    let inside = top.path().join("inside");
    for directory in ["inside", "private"] {
        fs::create_dir(top.path().join(directory)).unwrap();
    }
    for n in 0..8 {
        fs::create_dir(inside.join(format!("d{n}"))).unwrap();
        fs::write(inside.join(format!("d{n}/f")), "1".repeat(5000)).unwrap();
    }
    for name in ["odd", "even"] {
        fs::create_dir(inside.join(name)).unwrap();
    }
    fs::write(inside.join("odd/x"), "1".repeat(5000)).unwrap();
    let (mut put_right, mut versions) = (0, [0; 2]);
    for kill in 0..kills {
        let mut victim = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "transaction::tests::victim", "--test-threads=1"])
            .env("COFFERDAM_PATCH_VICTIM", top.path())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let mut committed = || {
            while fs::remove_file(top.path().join("begun")).is_err() {
                assert!(victim.try_wait().unwrap().is_none(), "it ended by itself");
                std::thread::yield_now();
            }
            std::time::Instant::now()
        };
        let first = committed();
        let commit = committed() - first;
        // Any moment of the next two commits, however long they take on this machine, and each of them comes up.
        std::thread::sleep(commit * (kill * 7919 % 2_000) / 1_000);
        victim.kill().unwrap();
        victim.wait().unwrap();
        let jail = victims_jail(top.path());
        let recovered = jail.recover_patches(Whose::Everyone).unwrap();
        jail.sweep(Whose::Everyone).unwrap();
        put_right += recovered.len();
        assert!(recovered.iter().all(|recovered| recovered.finished && recovered.left.is_empty()));
        let mut tree = tree(&inside);
        tree.retain(|_, content| content != "/");
        let version = tree["d0/f"].as_bytes()[0] - b'0';
        let content = version.to_string().repeat(5000);
        let there = if version == 0 { "even/x" } else { "odd/x" };
        let mut expected: Tree = (0..8).map(|n| (format!("d{n}/f"), content.clone())).collect();
        expected.insert(there.to_owned(), content);
        assert!(
            tree == expected,
            "kill {kill}: {:?}",
            tree.iter().map(|(name, content)| (name, content.get(..2))).collect::<Vec<_>>()
        );
        versions[usize::from(version)] += 1;
        assert!(Private::open(&top.path().join("private"), 1).unwrap().is_clean().unwrap());
    }
    assert!(put_right > 0 && versions[0] > 0 && versions[1] > 0, "{put_right} of {kills}, {versions:?}");
}
