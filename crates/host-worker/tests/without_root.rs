//! The daemon as an ordinary user: with user namespaces all of it works, without them it says so and refuses, unless the
//! operator accepts the weaker form by its name.
//!
//! Each test starts itself again as somebody with less rights, and does its work there.
#![allow(clippy::unwrap_used, clippy::expect_used)] // also outside of test functions

mod support;

use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use host_launch::{
    CloneError, CloneSpec, HostWorkerSpec, Landlock, Marks, Namespaces, TreeBounds, WeakerForm,
};
use operations::{Git, Reason};
use rustix::process::geteuid;
use support::{DEADLINE, Hand, Scratch, directory, launcher};

/// Set where a test was started again.
const AGAIN: &str = "HOST_WORKER_TEST_AGAIN";

fn is_again() -> bool {
    std::env::var_os(AGAIN).is_some()
}

/// Starts `test` of this file again, by the command that `wrap` makes of a program.
fn again(test: &str, wrap: impl FnOnce(&Path) -> Command) {
    let place = tempfile::tempdir().unwrap();
    // Other users may not reach the build directory, so they get copies.
    let programs =
        [std::env::current_exe().unwrap(), PathBuf::from(env!("CARGO_BIN_EXE_coffer-host-worker"))];
    for (from, to) in programs.iter().zip(["test", "coffer-host-worker"]) {
        fs::copy(from, place.path().join(to)).unwrap();
        fs::set_permissions(place.path().join(to), fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = wrap(&place.path().join("test"));
    let output = command
        .args(["--exact", test, "--nocapture"])
        .env(AGAIN, "1")
        .env(support::PROGRAM, place.path().join("coffer-host-worker"))
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}

/// An ordinary user of a host that allows user namespaces.
fn ordinary(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.uid(1234).gid(1234);
    command
}

/// A process without any privilege, on a host that allows no user namespaces.
fn without_namespaces(program: &Path) -> Command {
    let mut command = Command::new("unshare");
    let none = "echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --inh-caps=-all \
                --ambient-caps=-all --securebits=+noroot \"$@\"";
    command.args(["--user", "--map-root-user", "sh", "-c", none, "sh"]).arg(program);
    command
}

fn spec(scratch: &Scratch, uid: u32) -> HostWorkerSpec {
    let open = |name: &str| directory(&scratch.dir.path().join(name));
    HostWorkerSpec {
        workspace: open("workspace"),
        state: Some(open("state")),
        pkg: Some(open("pkg")),
        private: Some(open("private")),
        linked: None,
        owner_uid: uid,
        owner_gid: uid,
    }
}

#[test]
fn an_ordinary_user_has_the_whole_jail_where_user_namespaces_are_allowed() {
    if !is_again() {
        return again("an_ordinary_user_has_the_whole_jail_where_user_namespaces_are_allowed", ordinary);
    }
    assert_eq!(geteuid().as_raw(), 1234);
    assert_eq!(launcher().probe().unwrap().namespaces, Namespaces::User);
    let scratch = Scratch::new();
    let mut host_worker = scratch.host_worker();
    let keeper = host_worker.process.pid();
    let root = fs::read_link(format!("/proc/{keeper}/root"));
    assert!(root.is_err(), "it can be looked at: {root:?}");
    host_worker.write("d/new.txt", "one\n").unwrap();
    let written = fs::metadata(scratch.workspace().join("d/new.txt")).unwrap();
    assert_eq!((written.uid(), written.gid(), written.mode() & 0o777), (1234, 1234, 0o644));
    symlink("../outside", scratch.workspace().join("link")).unwrap();
    assert_eq!(host_worker.write("link/canary", "x").unwrap_err().reason, Reason::SandboxViolation);
    scratch.init();
    host_worker.add(&["d"]).unwrap();
    host_worker.commit("first").unwrap();
    assert!(host_worker.status().contains("## main"));

    host_worker.process.end().unwrap();
    scratch.host_worker().write("d/new.txt", "two\n").unwrap();
    let refused = launcher().serve(&spec(&scratch, 4321)).unwrap().wait(Duration::from_secs(30)).unwrap();
    assert!(refused.contains("must belong to the daemon's own user"), "{refused}");
}

#[test]
fn an_ordinary_user_saves_what_an_agent_has_made_unreadable() {
    if !is_again() {
        return again("an_ordinary_user_saves_what_an_agent_has_made_unreadable", ordinary);
    }
    let scratch = Scratch::new();
    scratch.write("shut/closed", "one");
    let saved = scratch.dir.path().join("state");
    let set_modes = |tree: &Path, directory: u32, file: u32| {
        for (name, mode) in [("shut", 0o700), ("shut/closed", file), ("shut", directory)] {
            fs::set_permissions(tree.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
    };
    set_modes(&scratch.workspace(), 0, 0);
    let (from, into) = (directory(&scratch.workspace()), directory(&saved));
    let most = TreeBounds { bytes: 1_000, files: 10 };
    let made = launcher()
        .save((from.as_fd(), into.as_fd()), (1234, 1234), (most, Marks::Ignored), DEADLINE)
        .unwrap();
    assert_eq!((made.files, made.size_bytes), (3, 3));
    let copy = saved.join("files");
    assert_eq!(fs::metadata(copy.join("shut")).unwrap().mode() & 0o777, 0);
    // So that they can be removed.
    set_modes(&scratch.workspace(), 0o700, 0o600);
    set_modes(&copy, 0o700, 0o600);
    assert_eq!(fs::read(copy.join("shut/closed")).unwrap(), b"one");
}

#[test]
fn missing_user_namespaces_are_reported_and_refused() {
    if !is_again() {
        return again("missing_user_namespaces_are_reported_and_refused", without_namespaces);
    }
    let scratch = Scratch::owned_by(0);
    for said in [
        launcher().probe().unwrap_err().to_string(),
        launcher().serve(&spec(&scratch, 0)).unwrap().wait(Duration::from_secs(30)).unwrap(),
    ] {
        assert!(said.starts_with("cannot set up the jail: creating a user namespace: "), "{said}");
        assert!(said.contains("run the daemon as root, or allow unprivileged user namespaces"), "{said}");
    }
}

#[test]
fn the_weaker_form_is_for_files_alone_and_only_where_it_is_accepted() {
    // Where there can be a jail there is one, whatever is accepted.
    let accepting = || launcher().accepting(Some(WeakerForm::LandlockOnly));
    if !is_again() {
        assert_eq!(accepting().probe().unwrap().namespaces, Namespaces::Privileged);
        return again("the_weaker_form_is_for_files_alone_and_only_where_it_is_accepted", without_namespaces);
    }
    let report = accepting().probe().unwrap();
    assert_eq!(report.namespaces, Namespaces::None);
    assert_ne!(report.landlock, Landlock::Absent);

    let scratch = Scratch::owned_by(0);
    let mut host_worker = Hand::of(accepting().serve(&spec(&scratch, 0)).unwrap());
    host_worker.write("d/new.txt", "one\n").unwrap();
    host_worker.write("@state/note", "x").unwrap();
    assert_eq!(fs::read_to_string(scratch.workspace().join("d/new.txt")).unwrap(), "one\n");
    for path in ["@pkg/x", ".git/config"] {
        assert_eq!(host_worker.write(path, "x").unwrap_err().reason, Reason::SandboxViolation, "{path}");
    }
    symlink("../outside", scratch.workspace().join("link")).unwrap();
    symlink(scratch.outside(), scratch.workspace().join("absolute")).unwrap();
    for path in ["link/canary", "absolute/canary", "link"] {
        assert_eq!(host_worker.write(path, "x").unwrap_err().reason, Reason::SandboxViolation, "{path}");
    }
    let refused = host_worker.git(Git::Status).unwrap_err();
    assert_eq!(refused.reason, Reason::PermissionDenied);
    assert!(refused.message.starts_with("git is not available: "), "{refused:?}");

    // What a killed host worker leaves is found here as well.
    let digits = "00112233445566778899aabbccddeeff";
    symlink("@project", scratch.dir.path().join(format!("private/temporaries/1.{digits}"))).unwrap();
    let left = scratch.write(format!(".cofferdam-tmp-{digits}").as_str(), "half");
    assert_eq!(host_worker.process.wait(DEADLINE).unwrap(), "");
    assert!(!left.exists());

    let clone = CloneSpec {
        workspace: directory(&scratch.workspace()),
        source: directory(&scratch.dir.path().join("pkg")),
        revision: String::new(),
        work_tree: String::new(),
        most: TreeBounds { bytes: u64::MAX, files: u64::MAX },
        owner_uid: 0,
        owner_gid: 0,
    };
    let refused = accepting().clone_repository(&clone, DEADLINE).unwrap_err();
    assert!(matches!(&refused, CloneError::Jail(why) if why.contains("landlock-only")), "{refused}");
}
