//! Large work trees, which several threads look at: the answer is git's whatever their number, and they can do no more than
//! the one thread of any other operation.
#![allow(clippy::unwrap_used, clippy::expect_used)] // also outside of test functions

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cofferdam_hand::Launcher;
use ops::{Git, Operation};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use support::{DEADLINE, Dice, Hand, Scratch, fifo, launcher};

const THREADS: [usize; 3] = [1, 2, 4];

/// A repository of 7,171 files: many directories, one large one, a root with files of its own, and one that is deep.
fn repository(uid: u32) -> (Scratch, Vec<String>) {
    let scratch = Scratch::owned_by(uid);
    scratch.init();
    let mut paths: Vec<String> = (0..5_200)
        .map(|number| format!("d{}/s{}/f{}.txt", number % 100, number / 100 % 4, number / 400))
        .collect();
    paths.extend((0..1_500).map(|number| format!("flat/{number}")));
    paths.extend((0..300).map(|number| format!("root-{number}")));
    paths.extend((0..170).map(|number| format!("d{number}/own")));
    paths.push(format!("{}bottom", "deep/".repeat(80)));
    for path in &paths {
        let place = scratch.workspace().join(path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, format!("{path}\n")).unwrap();
    }
    fs::write(scratch.workspace().join("d7/s1/f3.txt"), "").unwrap();
    fs::write(scratch.workspace().join(".gitignore"), "*.log\n").unwrap();
    paths.push(".gitignore".to_owned());
    // Not as their owner, and without giving them away afterwards: the index must know the files as they are.
    let git = |args: &[&str]| support::run(&mut scratch.git_command(args));
    // So many new objects would be packed in the background.
    git(&["config", "gc.auto", "0"]);
    git(&["add", "-A"]);
    git(&["commit", "-q", "-m", "first"]);
    own_repository(&scratch);
    let index = fs::metadata(scratch.workspace().join(".git/index")).unwrap();
    let last = fs::metadata(scratch.workspace().join(".gitignore")).unwrap();
    assert!(
        (index.mtime(), index.mtime_nsec()) > (last.ctime(), last.ctime_nsec()),
        "all files would be read"
    );
    (scratch, paths)
}

fn own_repository(scratch: &Scratch) {
    let owner = format!("{0}:{0}", scratch.uid);
    support::run(Command::new("chown").args(["-Rh", &owner]).arg(scratch.workspace().join(".git")));
}

/// All of them say what git says.
fn compare(scratch: &Scratch, when: &str) {
    let git = |args: &[&str]| {
        let output = support::run(scratch.git_command(args).env("GIT_OPTIONAL_LOCKS", "0"));
        String::from_utf8(output).unwrap()
    };
    let status = git(&["status", "--porcelain=v1", "--branch"]);
    let names = git(&["diff", "--name-status"]);
    let patches = git(&["diff"]);
    let some = git(&["diff", "--", "d3", "d12/s1", "flat/77"]);
    for threads in THREADS {
        let mut hand = Hand::start_by(&launcher().threads(threads), scratch);
        assert_eq!(hand.status(), status, "{when}, {threads} threads");
        assert_eq!(hand.diff(&["--name-status"], &[]), names, "{when}, {threads} threads");
        assert_eq!(hand.diff(&[], &[]), patches, "{when}, {threads} threads");
        assert_eq!(hand.diff(&[], &["d3", "d12/s1", "flat/77"]), some, "{when}, {threads} threads");
    }
}

/// What an agent may do to a file.
fn change(scratch: &Scratch, path: &str, how: usize) {
    let place = scratch.workspace().join(path);
    let parent = place.parent().unwrap();
    // Something may have been done to a directory above.
    if fs::symlink_metadata(&place).is_err() || parent.canonicalize().unwrap() != parent {
        return;
    }
    let gone = |place: &std::path::Path| {
        if fs::symlink_metadata(place).unwrap().is_dir() {
            fs::remove_dir_all(place).unwrap();
        } else {
            fs::remove_file(place).unwrap();
        }
    };
    match how {
        0 => fs::write(&place, "changed\n").unwrap(),
        // The same content at another time.
        1 => fs::write(&place, fs::read(&place).unwrap()).unwrap(),
        2 => fs::set_permissions(&place, PermissionsExt::from_mode(0o755)).unwrap(),
        3 => gone(&place),
        4 => {
            gone(&place);
            fs::create_dir(&place).unwrap();
            fs::write(place.join("inside"), "x").unwrap();
        }
        5 => {
            gone(&place);
            symlink("somewhere", &place).unwrap();
        }
        6 => fs::write(parent.join(format!("new-{}", path.len())), "x").unwrap(),
        7 => fs::write(parent.join("ignored.log"), "x").unwrap(),
        8 => fs::create_dir_all(parent.join("empty/empty")).unwrap(),
        9 => fs::write(parent.join(".git"), "no repository").unwrap(),
        // As many names as before.
        10 => fs::rename(&place, place.with_extension("moved")).unwrap(),
        // What git has in a directory becomes something else; not all of the work tree.
        _ if parent == scratch.workspace() => {}
        11 => gone(parent),
        12 => {
            gone(parent);
            symlink("/state", parent).unwrap();
        }
        13 => {
            gone(parent);
            fs::write(parent, "a file\n").unwrap();
        }
        _ => {
            let aside = parent.with_extension("aside");
            if fs::rename(parent, &aside).is_ok() {
                symlink(aside.file_name().unwrap(), parent).unwrap();
            }
        }
    }
}

#[test]
fn the_answer_is_gits_with_any_number_of_threads() {
    let (scratch, paths) = repository(1234);
    compare(&scratch, "clean");
    let mut dice = Dice(7);
    for round in 0..3 {
        for _ in 0..[1, 20, 300][round] {
            change(&scratch, &paths[dice.roll(paths.len())].clone(), dice.roll(15));
        }
        compare(&scratch, &format!("round {round}"));
    }
}

#[test]
fn entries_with_marks_are_as_git_sees_them() {
    let (scratch, _) = repository(1234);
    let git = |args: &[&str]| support::run(&mut scratch.git_command(args));
    for path in ["d1/s1/f1.txt", "root-7", "flat/900"] {
        fs::write(scratch.workspace().join(path), "changed\n").unwrap();
    }
    fs::remove_file(scratch.workspace().join("d2/s2/f2.txt")).unwrap();
    fs::write(scratch.workspace().join("d2/s2/other"), "in its place\n").unwrap();
    fs::write(scratch.workspace().join("d3/s3/announced"), "x\n").unwrap();
    git(&["update-index", "--assume-unchanged", "d1/s1/f1.txt", "root-7"]);
    git(&["update-index", "--skip-worktree", "d2/s2/f2.txt", "flat/900"]);
    git(&["add", "-N", "d3/s3/announced"]);
    own_repository(&scratch);
    compare(&scratch, "marked");
}

/// The process of the operation that is at work, when it has so many threads.
fn at_work(hand: &Hand, threads: usize) -> String {
    let children = |pid: &str| fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let began = Instant::now();
    loop {
        for pid in children(children(&hand.process.pid().to_string()).trim()).split_whitespace() {
            let tasks = fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
            if tasks == threads && field(&format!("/proc/{pid}/status"), "Seccomp_filters:") == "5" {
                return pid.to_owned();
            }
        }
        assert!(began.elapsed() < DEADLINE, "no process with {threads} threads");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn field(file: &str, name: &str) -> String {
    let text = fs::read_to_string(file).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn every_thread_has_all_restrictions_and_nothing_else_has_threads() {
    for uid in [1234, 0] {
        let scratch = Scratch::owned_by(uid);
        scratch.init();
        scratch.write("d/x", "x");
        fifo(scratch.workspace().join("d/.gitignore"));
        for threads in THREADS {
            let mut hand = Hand::start_by(&launcher().threads(threads), &scratch);
            for (operation, threads) in [
                (Operation::Git(Git::Status), threads),
                (Operation::Git(Git::Add { paths: support::paths(&["d"]) }), 1),
            ] {
                let hanging = hand.begin(&operation, DEADLINE, false);
                let pid = at_work(&hand, threads);
                for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
                    let status = task.unwrap().path().join("status");
                    let status = status.to_str().unwrap();
                    for (name, value) in [
                        ("Uid:", format!("{uid} {uid} {uid} {uid}")),
                        ("CapEff:", "0000000000000000".to_owned()),
                        ("CapPrm:", "0000000000000000".to_owned()),
                        ("CapBnd:", "0000000000000000".to_owned()),
                        ("NoNewPrivs:", "1".to_owned()),
                        ("Seccomp:", "2".to_owned()),
                        ("Seccomp_filters:", "5".to_owned()),
                    ] {
                        assert_eq!(field(status, name), value, "{name}");
                    }
                }
                let limits = format!("/proc/{pid}/limits");
                assert_eq!(field(&limits, "Max processes"), "0 0 processes");
                assert_eq!(field(&limits, "Max address space"), "536870912 536870912 bytes");
                hand.cancel(hanging);
                assert!(hand.outcome(hanging).is_err());
            }
        }
    }
}

#[test]
fn where_no_thread_can_be_made_one_does_it_all() {
    // A user of whom there is nothing else: the keeper, the hand, and the process of the operation.
    const UID: u32 = 48_213;
    let (scratch, _) = repository(UID);
    let script = scratch.dir.path().join("limited");
    let program = env!("CARGO_BIN_EXE_coffer-hand");
    fs::write(&script, format!("#!/bin/sh\nexec prlimit --nproc=3:3 -- '{program}' \"$@\"\n")).unwrap();
    fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let mut hand = Hand::start_by(&Launcher::of(script).threads(4), &scratch);
    let trap = scratch.workspace().join("d1/s1/.gitignore");
    fifo(&trap);
    let hanging = hand.begin(&Operation::Git(Git::Status), DEADLINE, false);
    at_work(&hand, 1);
    hand.cancel(hanging);
    assert!(hand.outcome(hanging).is_err());
    fs::remove_file(trap).unwrap();
    fs::write(scratch.workspace().join("d1/s1/f1.txt"), "changed\n").unwrap();
    assert_eq!(hand.status(), "## main\n M d1/s1/f1.txt\n");
}

#[test]
fn a_directory_that_is_exchanged_with_a_link_is_never_read_through_it() {
    let (scratch, _) = repository(1234);
    // What would be seen through it: the same names, with other contents and with what hangs.
    for lure in ["state", "workspace/lure"] {
        let lure = scratch.dir.path().join(lure);
        for number in 0..13 {
            let place = lure.join(format!("s1/f{number}.txt"));
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            if number % 2 == 0 {
                fifo(place);
            } else {
                fs::write(place, "from elsewhere\n").unwrap();
            }
        }
    }
    let (directory, other) = (scratch.workspace().join("d50"), scratch.workspace().join("other"));
    let mut hand = Hand::start_by(&launcher().threads(4), &scratch);
    for target in ["/state", "lure"] {
        symlink(target, &other).unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let racing = scope.spawn(|| {
                let began = Instant::now();
                let mut exchanged = false;
                while !over.load(Ordering::Relaxed) && began.elapsed() < DEADLINE || exchanged {
                    renameat_with(CWD, &directory, CWD, &other, RenameFlags::EXCHANGE).unwrap();
                    exchanged = !exchanged;
                }
            });
            let (mut there, mut gone, mut answers) = (false, false, 0);
            // Until both have been seen, and a little more.
            while answers < 10 || !(there && gone) {
                let status = hand.status();
                answers += 1;
                let lines: Vec<_> = status.lines().filter(|line| line.contains(" d50/")).collect();
                there |= lines.len() < 53;
                gone |= !lines.is_empty();
                assert_eq!(lines.iter().find(|line| !line.starts_with(" D ")), None, "{status}");
                assert!(!racing.is_finished(), "the race was not run: {there} {gone}");
            }
            over.store(true, Ordering::Relaxed);
        });
        fs::remove_file(&other).unwrap();
        assert_eq!(hand.status(), "## main\n?? lure/\n", "as before the race");
    }
}
