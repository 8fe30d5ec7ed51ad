//! Copying the directory that becomes a base, and digesting trees, in the real jail.
#![allow(clippy::unwrap_used, clippy::expect_used)] // also outside of test functions

mod support;

use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use host_launch::{LayerError, Marks, TreeBounds};
use support::{Scratch, directory, fingerprint, git_in, launcher, run};
use wire::v1::Base;

const TIME: Duration = Duration::from_secs(60);
const MOST: TreeBounds = TreeBounds { bytes: 1 << 20, files: 1_000 };

/// Copies the workspace into the directory `state` beside it.
fn copy(scratch: &Scratch, most: TreeBounds) -> Result<Base, LayerError> {
    let (from, into) = (directory(&scratch.workspace()), directory(&scratch.dir.path().join("state")));
    launcher().copy(from.as_fd(), into.as_fd(), (scratch.uid, scratch.uid), most, TIME)
}

fn digest(tree: &Path, uid: u32) -> Result<Base, LayerError> {
    launcher().digest(directory(tree).as_fd(), (uid, uid), MOST, TIME)
}

fn is_refused(done: Result<Base, LayerError>, words: &str) {
    let refused = done.unwrap_err();
    assert!(matches!(&refused, LayerError::Refused(why) if why.contains(words)), "{refused}");
}

#[test]
fn a_tree_is_copied_as_its_owner_and_no_link_is_followed() {
    let scratch = Scratch::new();
    scratch.write("dir/a.txt", "one\n");
    symlink(scratch.outside(), scratch.workspace().join("out")).unwrap();
    symlink(scratch.outside().join("canary"), scratch.workspace().join("dir/canary")).unwrap();
    scratch.own();
    let before = fingerprint(&scratch.workspace());
    let made = copy(&scratch, MOST).unwrap();
    assert_eq!((made.files, made.size_bytes, made.left_out), (5, 4, 0));
    let copied = scratch.dir.path().join("state");
    assert_eq!(digest(&copied, scratch.uid).unwrap().digest, made.digest);
    assert_eq!(fs::read_link(copied.join("dir/canary")).unwrap(), scratch.outside().join("canary"));
    for name in ["dir", "dir/a.txt", "out"] {
        assert_eq!(fs::symlink_metadata(copied.join(name)).unwrap().uid(), scratch.uid, "{name}");
    }
    assert_eq!(fingerprint(&scratch.workspace()), before, "the source is only read");
    fs::write(copied.join("dir/a.txt"), "two\n").unwrap();
    assert_ne!(digest(&copied, scratch.uid).unwrap().digest, made.digest);
}

#[test]
fn a_tree_that_its_owner_cannot_read_is_refused_by_name() {
    let scratch = Scratch::new();
    let secret = scratch.write("dir/secret", "s\n");
    chown(&secret, Some(0), Some(0)).unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    is_refused(copy(&scratch, MOST), "dir/secret: permission denied");
    fs::remove_file(&secret).unwrap();
    fs::set_permissions(scratch.workspace().join("dir"), fs::Permissions::from_mode(0o000)).unwrap();
    is_refused(digest(&scratch.workspace(), scratch.uid), "dir: permission denied");
}

/// Saves the workspace into the directory `state` beside it.
fn save(scratch: &Scratch) -> Result<Base, LayerError> {
    let (from, into) = (directory(&scratch.workspace()), directory(&scratch.dir.path().join("state")));
    let owner = (scratch.uid, scratch.uid);
    launcher().save((from.as_fd(), into.as_fd()), owner, (MOST, Marks::Listed), TIME)
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o777
}

#[test]
fn names_that_an_agent_has_made_unreadable_are_saved_filled_and_put_back() {
    const SHUT: [(&str, u32); 4] = [("shut/in", 0o311), ("shut", 0), ("closed", 0), ("sealed", 0o555)];
    for uid in [1234, 0] {
        let scratch = Scratch::owned_by(uid);
        let (saved, filled) = (scratch.dir.path().join("state"), scratch.dir.path().join("pkg"));
        for (path, content) in [("shut/in/file", "one"), ("closed", "two"), ("sealed/file", "three")] {
            scratch.write(path, content);
        }
        run(Command::new("mknod").arg(scratch.workspace().join("sealed/gone")).args(["c", "0", "0"]));
        scratch.own();
        for (name, mode) in SHUT {
            set_mode(&scratch.workspace().join(name), mode);
        }
        let before = fingerprint(&scratch.workspace());
        assert_eq!(save(&scratch).unwrap().files, 8, "six names, a deleted one, and the topmost directory");
        assert_eq!(fingerprint(&scratch.workspace()), before, "the source is only read");
        assert_eq!(fs::read(saved.join("marks")).unwrap(), b"wsealed/gone\0");

        // What is there already is unreadable as well, and the directory of a deleted name is read-only.
        fs::create_dir_all(filled.join("shut/old/er")).unwrap();
        fs::create_dir(filled.join("sealed")).unwrap();
        fs::write(filled.join("sealed/gone"), "x").unwrap();
        run(Command::new("chown").arg("-Rh").arg(format!("{uid}:{uid}")).arg(&filled));
        for name in ["shut/old/er", "shut/old", "shut"] {
            set_mode(&filled.join(name), 0);
        }
        set_mode(&filled.join("sealed"), 0o555);
        let owner = (uid, uid);
        launcher().fill(directory(&saved).as_fd(), directory(&filled).as_fd(), owner, TIME).unwrap();

        // Now the agent makes everything else, just as unreadable.
        run(Command::new("sh").current_dir(scratch.workspace()).args(["-c", "rm -rf ./*"]));
        for (path, content) in [("closed/deep/er", "x"), ("shut/in", "x"), ("new/er", "x")] {
            scratch.write(path, content);
        }
        scratch.own();
        for name in ["closed/deep", "closed", "shut/in", "shut", "new/er", "new"] {
            set_mode(&scratch.workspace().join(name), 0);
        }
        let (from, into) = (directory(&saved), directory(&scratch.workspace()));
        for _ in 0..2 {
            launcher().restore((from.as_fd(), into.as_fd()), None, owner, TIME).unwrap();
        }
        assert!(!scratch.workspace().join("new").exists());
        assert!(filled.join("shut/old").exists() && !filled.join("sealed/gone").exists());
        for tree in [&filled, &scratch.workspace(), &saved.join("files")] {
            assert_eq!(fs::read(tree.join("shut/in/file")).unwrap(), b"one");
            assert_eq!(fs::read(tree.join("closed")).unwrap(), b"two");
            assert_eq!(fs::read(tree.join("sealed/file")).unwrap(), b"three");
            assert_eq!(SHUT.map(|(name, _)| mode(&tree.join(name))), SHUT.map(|(_, mode)| mode));
        }
    }
}

#[test]
fn names_of_another_user_that_the_owner_cannot_read_are_not_saved() {
    for (name, uid, gid, mode, is_saved) in [
        ("file", 0, 0, 0o600, false),
        ("file", 0, 1234, 0o604, false),
        ("file", 0, 1234, 0o640, true),
        ("file", 0, 0, 0o604, true),
        ("dir", 0, 0, 0o704, false),
        ("dir", 0, 0, 0o705, true),
        ("dir/file", 0, 0, 0o600, false),
    ] {
        let scratch = Scratch::new();
        scratch.write("dir/file", "s\n");
        let named = if name == "file" { scratch.write(name, "s\n") } else { scratch.workspace().join(name) };
        chown(&named, Some(uid), Some(gid)).unwrap();
        set_mode(&named, mode);
        let done = save(&scratch);
        let copy = scratch.dir.path().join("state/files").join(name);
        if is_saved {
            done.unwrap();
            assert!(copy.exists());
        } else {
            is_refused(done, &format!("{name}: permission denied"));
            assert!(!copy.is_file(), "a part of it was copied");
        }
    }
}

#[test]
fn a_file_beneath_an_overlay_that_the_owner_cannot_read_is_not_put_back_for_it() {
    for (name, mode) in [("secret", 0o600), ("dir", 0o700)] {
        let scratch = Scratch::new();
        let [saved, before, beneath] = ["state", "pkg", "private"].map(|name| scratch.dir.path().join(name));
        let owner = (scratch.uid, scratch.uid);
        let save = |into: &Path| {
            let from = directory(&scratch.workspace());
            let into = directory(into);
            launcher().save((from.as_fd(), into.as_fd()), owner, (MOST, Marks::Listed), TIME).unwrap();
        };
        save(&saved);
        // The agent has replaced a name of the host that it cannot read.
        scratch.write(name, "mine");
        save(&before);
        fs::create_dir(beneath.join("dir")).unwrap();
        for secret in ["secret", "dir/secret"] {
            fs::write(beneath.join(secret), "s").unwrap();
        }
        set_mode(&beneath.join(name), mode);
        let [from, into, beneath, before] =
            [&saved, &scratch.workspace(), &beneath, &before].map(|path| directory(path));
        let layer = Some((beneath.as_fd(), before.as_fd()));
        let refused = launcher().restore((from.as_fd(), into.as_fd()), layer, owner, TIME).unwrap_err();
        assert!(
            matches!(&refused, LayerError::Refused(why) if why.contains("permission denied")),
            "{refused}"
        );
        assert!(!scratch.workspace().join("dir/secret").exists());
        assert_ne!(fs::read(scratch.workspace().join("secret")).unwrap_or_default(), b"s");
    }
}

#[test]
fn directories_that_are_nested_too_deeply_are_refused_by_their_path() {
    let scratch = Scratch::new();
    scratch.write(&["way", &["d"; 140].join("/"), "file"].join("/"), "x");
    is_refused(save(&scratch), "way/d/d/");
}

#[test]
fn a_task_on_a_whole_tree_has_a_lower_priority() {
    let scratch = Scratch::new();
    // Reading it takes much longer than the test.
    fs::File::create(scratch.workspace().join("sparse")).unwrap().set_len(1 << 40).unwrap();
    scratch.own();
    let (tree, uid) = (directory(&scratch.workspace()), scratch.uid);
    let most = TreeBounds { bytes: u64::MAX, files: 10 };
    let digest =
        std::thread::spawn(move || launcher().digest(tree.as_fd(), (uid, uid), most, Duration::from_secs(5)));
    let is_lower = |pid: &String| nice(pid) == Some(5) && io_priority(pid) == "best-effort: prio 7";
    let mut is_seen = false;
    while !is_seen && !digest.is_finished() {
        is_seen = children().iter().any(is_lower);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(is_seen);
    assert!(matches!(digest.join().unwrap(), Err(LayerError::TimedOut(_))));
}

/// Returns the niceness of a process, the 19th field of its `stat`. The second one ends with the last bracket.
fn nice(pid: &str) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(16)?.parse().ok()
}

fn io_priority(pid: &str) -> String {
    let shown = Command::new("ionice").args(["-p", pid]).output().unwrap();
    String::from_utf8(shown.stdout).unwrap().trim().to_owned()
}

/// Returns the ids of the processes that the threads of this one have started.
fn children() -> Vec<String> {
    let threads = fs::read_dir("/proc/self/task").unwrap().flatten();
    let listed = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    listed.flat_map(|listed| listed.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

#[test]
fn a_tree_beyond_its_bounds_is_refused() {
    for most in [TreeBounds { files: 3, ..MOST }, TreeBounds { bytes: 9, ..MOST }] {
        let scratch = Scratch::new();
        for name in ["a", "b", "c"] {
            scratch.write(name, "xxxx");
        }
        let words = if most.files == 3 { "more than 3 files" } else { "larger than 0 MiB" };
        is_refused(copy(&scratch, most), words);
    }
}

#[test]
fn a_saved_tree_fills_another_directory_as_its_owner() {
    let scratch = Scratch::new();
    scratch.write("dir/a.txt", "one\n");
    symlink(scratch.outside().join("canary"), scratch.workspace().join("canary")).unwrap();
    run(Command::new("mknod").arg(scratch.workspace().join("gone")).args(["c", "0", "0"]));
    scratch.own();
    let (saved, filled) = (scratch.dir.path().join("state"), scratch.dir.path().join("pkg"));
    let (owner, before) = ((scratch.uid, scratch.uid), fingerprint(&scratch.workspace()));
    let (from, into) = (directory(&scratch.workspace()), directory(&saved));
    let made = launcher().save((from.as_fd(), into.as_fd()), owner, (MOST, Marks::Listed), TIME).unwrap();
    assert_eq!((made.files, made.size_bytes, made.left_out), (5, 4, 0));
    assert_eq!(fs::read(saved.join("marks")).unwrap(), b"wgone\0");
    assert_eq!(fingerprint(&scratch.workspace()), before, "the source is only read");

    fs::create_dir(filled.join("gone")).unwrap();
    fs::write(filled.join("gone/deep"), "x").unwrap();
    fs::write(filled.join("stays"), "s").unwrap();
    // A link of the same name is replaced and not followed.
    symlink(scratch.outside(), filled.join("dir")).unwrap();
    run(Command::new("chown").arg("-Rh").arg(format!("{0}:{0}", scratch.uid)).arg(&filled));
    launcher().fill(into.as_fd(), directory(&filled).as_fd(), owner, TIME).unwrap();
    assert_eq!(fs::read(filled.join("dir/a.txt")).unwrap(), b"one\n");
    assert_eq!(fs::read_link(filled.join("canary")).unwrap(), scratch.outside().join("canary"));
    assert!(!filled.join("gone").exists() && filled.join("stays").exists());
    assert!(!scratch.outside().join("a.txt").exists());
    assert_eq!(fs::symlink_metadata(filled.join("dir/a.txt")).unwrap().uid(), scratch.uid);

    // A list that somebody changed on the host names nothing outside.
    fs::write(saved.join("marks"), "w../outside/canary\0").unwrap();
    let refused = launcher().fill(into.as_fd(), directory(&filled).as_fd(), owner, TIME).unwrap_err();
    assert!(matches!(&refused, LayerError::Refused(why) if why.contains("damaged")), "{refused}");
    assert!(scratch.outside().join("canary").exists());
}

#[test]
fn a_saved_tree_is_put_back_and_no_link_is_followed() {
    let scratch = Scratch::new();
    scratch.write("dir/a.txt", "one\n");
    scratch.write("same", "same\n");
    scratch.own();
    let (saved, owner) = (scratch.dir.path().join("state"), (scratch.uid, scratch.uid));
    let (workspace, into) = (directory(&scratch.workspace()), directory(&saved));
    let save = launcher().save((workspace.as_fd(), into.as_fd()), owner, (MOST, Marks::Listed), TIME);
    let digest_of = |tree: &Path| digest(tree, scratch.uid).unwrap().digest;
    save.unwrap();
    let before = digest_of(&scratch.workspace());

    fs::remove_dir_all(scratch.workspace().join("dir")).unwrap();
    symlink(scratch.outside(), scratch.workspace().join("dir")).unwrap();
    symlink(scratch.outside().join("canary"), scratch.workspace().join("new")).unwrap();
    scratch.write("deep/er/file", "x");
    run(Command::new("mknod").arg(scratch.workspace().join("fifo")).arg("p"));
    scratch.own();
    // A directory of the daemon's is left alone.
    fs::create_dir(scratch.workspace().join("logs")).unwrap();
    fs::write(scratch.workspace().join("logs/kept"), "k").unwrap();
    for _ in 0..2 {
        launcher().restore((into.as_fd(), workspace.as_fd()), None, owner, TIME).unwrap();
    }
    assert_eq!(fs::read(scratch.workspace().join("logs/kept")).unwrap(), b"k");
    fs::remove_dir_all(scratch.workspace().join("logs")).unwrap();
    assert_eq!(digest_of(&scratch.workspace()), before);
    assert!(scratch.outside().join("canary").exists() && !scratch.outside().join("a.txt").exists());

    fs::write(saved.join("marks"), "w../outside/canary\0").unwrap();
    let refused = launcher().restore((into.as_fd(), workspace.as_fd()), None, owner, TIME).unwrap_err();
    assert!(matches!(&refused, LayerError::Refused(why) if why.contains("damaged")), "{refused}");
}

#[test]
fn a_clone_is_identified_by_branch_commit_and_tags() {
    let scratch = Scratch::new();
    let source = scratch.outside();
    let git = |args: &[&str]| {
        run(Command::new("chown").arg("-Rh").arg("0:0").arg(&source));
        run(&mut git_in(&source, args));
        run(Command::new("chown").arg("-Rh").arg(format!("{0}:{0}", scratch.uid)).arg(&source));
    };
    git(&["init", "-q", "-b", "trunk"]);
    git(&["add", "canary"]);
    git(&["commit", "-q", "-m", "one"]);
    let identify = |revision: &str| {
        let owner = (scratch.uid, scratch.uid);
        launcher().identify(directory(&source).as_fd(), (revision, ""), owner, TIME)
    };
    let head = identify("").unwrap();
    assert_eq!((head.len(), &identify("trunk").unwrap()), (64, &head));
    git(&["branch", "topic"]);
    let topic = identify("topic").unwrap();
    assert!(topic != head && identify("").unwrap() == head, "another branch of the same commit");
    git(&["tag", "v1"]);
    let tagged = identify("").unwrap();
    assert_ne!(tagged, head);
    assert!(![&tagged, &topic].contains(&&identify("v1").unwrap()), "no branch");
    assert!(matches!(identify("none"), Err(LayerError::Refused(why)) if why.contains("none")));
}
