//! Tests a disk that is full, over its quota, read-only or broken: a clear message, the old content intact, no leftovers.
//!
//! What this machine's file systems cannot do is injected: a filter that the host worker inherits from the thread that starts
//! it answers one system call with one error.
#![allow(clippy::unwrap_used, clippy::expect_used)] // also outside of test functions

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use operations::{Reason, ToolFailure};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Cmp, SeccompCondition, SeccompFilter,
    SeccompRule,
};
use support::{Hand, Scratch, run};

const SIZE: usize = 60_000;

/// A mount over the workspace that goes with this value.
struct Mounted<'s>(&'s Scratch);

impl<'s> Mounted<'s> {
    fn tmpfs(scratch: &'s Scratch, options: &str) -> Self {
        let options = format!("{options},uid={0},gid={0}", scratch.uid);
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &options, "none"]).arg(scratch.workspace()));
        Self(scratch)
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.workspace()).status();
    }
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn notes(scratch: &Scratch) -> usize {
    fs::read_dir(scratch.dir.path().join("private/temporaries")).map_or(0, Iterator::count)
}

/// Fails to write `f`, which is `old`, and leaves everything as it was.
fn fails(scratch: &Scratch, host_worker: &mut Hand) -> ToolFailure {
    let before = names(&scratch.workspace());
    let failure = host_worker.write("f", vec![b'n'; SIZE]).unwrap_err();
    assert_eq!(fs::read_to_string(scratch.workspace().join("f")).unwrap(), "old", "{failure:?}");
    assert_eq!(names(&scratch.workspace()), before, "{failure:?}");
    assert_eq!(notes(scratch), 0, "{failure:?}");
    failure
}

#[test]
fn a_full_disk_is_reported_and_fails_only_the_write() {
    let scratch = Scratch::new();
    let _full = Mounted::tmpfs(&scratch, "size=48k");
    scratch.write("f", "old");
    let mut host_worker = scratch.host_worker();
    let failure = fails(&scratch, &mut host_worker);
    assert_eq!(failure.reason, Reason::WriteLimit);
    assert_eq!(failure.message, "@project/f: no space left (disk, quota or size limit)");
    host_worker.write("f", "small").unwrap();
    assert_eq!(fs::read_to_string(scratch.workspace().join("f")).unwrap(), "small");
}

#[test]
fn missing_inodes_count_as_no_space() {
    let scratch = Scratch::new();
    let _full = Mounted::tmpfs(&scratch, "nr_inodes=3");
    scratch.write("f", "old");
    scratch.write("g", "");
    let mut host_worker = scratch.host_worker();
    assert_eq!(fails(&scratch, &mut host_worker).reason, Reason::WriteLimit);
    assert_eq!(host_worker.write("new/deep/f", "x").unwrap_err().reason, Reason::WriteLimit);
    assert_eq!(names(&scratch.workspace()), ["f", "g"]);
}

#[test]
fn a_read_only_file_system_is_reported() {
    let scratch = Scratch::new();
    let _mount = Mounted::tmpfs(&scratch, "size=1m");
    scratch.write("f", "old");
    run(Command::new("mount").args(["-o", "remount,ro"]).arg(scratch.workspace()));
    let failure = fails(&scratch, &mut scratch.host_worker());
    assert_eq!(failure.reason, Reason::PermissionDenied);
    assert_eq!(failure.message, "@project/f: read-only file system");
}

/// A filter under which `call` fails with `errno`, of writes only the one of the content.
fn failing(call: i64, errno: i32) -> BpfProgram {
    let rules = if call == libc::SYS_write {
        vec![
            SeccompRule::new(vec![SeccompCondition::new(2, Len::Qword, Cmp::Eq, SIZE as u64).unwrap()])
                .unwrap(),
        ]
    } else {
        Vec::new()
    };
    let (rules, arch) = (BTreeMap::from([(call, rules)]), std::env::consts::ARCH.try_into().unwrap());
    let errno = SeccompAction::Errno(errno.cast_unsigned());
    SeccompFilter::new(rules, SeccompAction::Allow, errno, arch).unwrap().try_into().unwrap()
}

/// What a write says in a host worker whose `call` fails with `errno`.
fn injected(scratch: &Scratch, call: i64, errno: i32) -> ToolFailure {
    std::thread::scope(|scope| {
        let written = scope.spawn(|| {
            seccompiler::apply_filter(&failing(call, errno)).unwrap();
            fails(scratch, &mut scratch.host_worker())
        });
        written.join().unwrap()
    })
}

#[test]
fn wherever_the_disk_fails_the_old_content_stays_and_nothing_else() {
    let scratch = Scratch::new();
    scratch.write("f", "old");
    for call in [libc::SYS_write, libc::SYS_fchmod, libc::SYS_fsync, libc::SYS_renameat2] {
        for (errno, reason, text) in [
            (libc::ENOSPC, Reason::WriteLimit, "no space left (disk, quota or size limit)"),
            (libc::EDQUOT, Reason::WriteLimit, "no space left (disk, quota or size limit)"),
            (libc::EROFS, Reason::PermissionDenied, "read-only file system"),
            (libc::EIO, Reason::Internal, "Input/output error (os error 5)"),
        ] {
            let failure = injected(&scratch, call, errno);
            assert_eq!((failure.reason, failure.message), (reason, format!("@project/f: {text}")), "{call}");
        }
    }
}

#[test]
fn writes_without_a_recovery_note_are_refused() {
    let scratch = Scratch::new();
    scratch.write("f", "old");
    for errno in [libc::ENOSPC, libc::EDQUOT] {
        let failure = injected(&scratch, libc::SYS_symlinkat, errno);
        assert_eq!(failure.reason, Reason::Internal);
        assert!(
            failure.message.starts_with("@project/f: not started, because the daemon could not write"),
            "{failure:?}"
        );
    }
}
