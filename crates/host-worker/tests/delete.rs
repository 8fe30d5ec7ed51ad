//! Deleting in the jail: when the host worker is killed, and when the disk of the trash fails.
#![allow(clippy::unwrap_used, clippy::expect_used)] // also outside of test functions

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use operations::{Delete, DeleteResult, OpResult, Operation, Reason, ToolFailure, TrashRecord};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use support::{DEADLINE, Hand, Scratch, run};

fn deletion(path: &str) -> Operation {
    Operation::Delete(Delete { path: path.parse().unwrap(), if_match_sha256: None })
}

fn delete(host_worker: &mut Hand, path: &str) -> Result<DeleteResult, ToolFailure> {
    match host_worker.call(&deletion(path))? {
        OpResult::Delete(result) => Ok(result),
        other => panic!("{other:?}"),
    }
}

/// The contents in the trash by the paths that they had, and how many files there are.
fn trash(scratch: &Scratch) -> (BTreeMap<String, Vec<u8>>, usize) {
    let directory = scratch.dir.path().join("private/trash");
    let Ok(names) = fs::read_dir(&directory) else { return (BTreeMap::new(), 0) };
    let names: Vec<_> = names.map(|name| name.unwrap().file_name().into_string().unwrap()).collect();
    let entry = |name: &String| {
        let entry = name.strip_suffix(".json")?;
        let record: TrashRecord = serde_json::from_slice(&fs::read(directory.join(name)).unwrap()).unwrap();
        Some((record.path, fs::read(directory.join(entry)).unwrap()))
    };
    (names.iter().filter_map(entry).collect(), names.len())
}

#[test]
fn trashed_files_belong_to_the_owner() {
    let scratch = Scratch::new();
    scratch.write("d/f", "content");
    delete(&mut scratch.host_worker(), "d/f").unwrap();
    let kept = BTreeMap::from([("@project/d/f".to_owned(), b"content".to_vec())]);
    assert_eq!(trash(&scratch), (kept, 2));
    assert!(fs::read_dir(scratch.workspace().join("d")).unwrap().next().is_none());
    for name in fs::read_dir(scratch.dir.path().join("private/trash")).unwrap() {
        let meta = name.unwrap().metadata().unwrap();
        assert_eq!((meta.uid(), meta.mode() & 0o7777), (scratch.uid, 0o600));
    }
}

#[test]
fn a_host_worker_killed_at_any_moment_leaves_each_file_in_its_directory_or_in_the_trash() {
    const FILES: usize = 16;
    let scratch = Scratch::new();
    let (mut moment, mut between) = (1_u64, 0);
    for round in 0..60 {
        let name = |n: usize| format!("f{round}-{n}");
        let content = |n: usize| format!("{round} {n}\n").repeat(10_000).into_bytes();
        for n in 0..FILES {
            scratch.write(&name(n), content(n));
        }
        let mut host_worker = scratch.host_worker();
        for n in 0..FILES {
            host_worker.begin(&deletion(&name(n)), DEADLINE, false);
        }
        moment = moment.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if round % 2 == 0 {
            // The moment is what is tested, so there is nothing to wait for.
            std::thread::sleep(Duration::from_micros((moment >> 33) % 25_000));
        } else {
            // Some come in the middle on a slow machine, too.
            let began = Instant::now();
            while (0..FILES).all(|n| scratch.workspace().join(name(n)).exists()) {
                assert!(began.elapsed() < Duration::from_secs(30), "nothing is deleted");
                std::thread::yield_now();
            }
        }
        host_worker.process.end().unwrap();
        // An operation may outlive its host worker by a moment, and files go one way: who is asked for second has the rest.
        let found: Vec<_> = (0..FILES).map(|n| fs::read(scratch.workspace().join(name(n))).ok()).collect();
        let (kept, _) = trash(&scratch);
        for (n, found) in found.iter().enumerate() {
            let in_trash = kept.get(&format!("@project/{}", name(n)));
            assert!(found.as_ref().is_none_or(|found| *found == content(n)), "{}", name(n));
            assert!(in_trash.is_none_or(|kept| *kept == content(n)), "{}", name(n));
            assert!(found.is_some() || in_trash.is_some(), "{} is nowhere", name(n));
        }
        let there = found.iter().flatten().count();
        between += usize::from((1..FILES).contains(&there));
    }
    assert!(between > 0, "not one kill came in the middle");
}

#[test]
fn c4_a_small_disk_of_the_trash_keeps_every_file_where_it_is() {
    let scratch = Scratch::new();
    let file = scratch.write("f", "content");
    let private = scratch.dir.path().join("private");
    let options = format!("size=1m,uid={0},gid={0}", scratch.uid);
    run(Command::new("mount").args(["-t", "tmpfs", "-o", &options, "none"]).arg(&private));
    let failure = delete(&mut scratch.host_worker(), "f");
    run(Command::new("umount").arg("-l").arg(&private));
    let failure = failure.unwrap_err();
    assert_eq!(failure.reason, Reason::WriteLimit);
    assert!(failure.message.contains("too little space"), "{}", failure.message);
    assert_eq!(fs::read(file).unwrap(), b"content");
}

/// A filter under which `call` fails with `errno`.
fn failing(call: i64, errno: i32) -> BpfProgram {
    let (rules, arch) = (BTreeMap::from([(call, Vec::new())]), std::env::consts::ARCH.try_into().unwrap());
    let errno = SeccompAction::Errno(errno.cast_unsigned());
    SeccompFilter::new(rules, SeccompAction::Allow, errno, arch).unwrap().try_into().unwrap()
}

#[test]
fn c4_wherever_the_disk_of_the_trash_fails_the_file_stays_and_no_entry_does() {
    let scratch = Scratch::new();
    let file = scratch.write("f", "content");
    for call in [libc::SYS_pwrite64, libc::SYS_fsync] {
        for (errno, reason) in [
            (libc::ENOSPC, Reason::WriteLimit),
            (libc::EDQUOT, Reason::WriteLimit),
            (libc::EIO, Reason::Internal),
        ] {
            let failure = std::thread::scope(|scope| {
                let deleted = scope.spawn(|| {
                    seccompiler::apply_filter(&failing(call, errno)).unwrap();
                    delete(&mut scratch.host_worker(), "f").unwrap_err()
                });
                deleted.join().unwrap()
            });
            assert_eq!(failure.reason, reason, "{call}: {}", failure.message);
            assert!(failure.message.contains("so it was not deleted"), "{}", failure.message);
            assert_eq!(fs::read(&file).unwrap(), b"content");
            assert_eq!(trash(&scratch), (BTreeMap::new(), 0));
        }
    }
    delete(&mut scratch.host_worker(), "f").unwrap();
}
