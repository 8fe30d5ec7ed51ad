//! A directory that is exchanged with a link while git looks at the work tree.
#![allow(clippy::unwrap_used, clippy::expect_used)] // also outside of test functions

mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use support::{DEADLINE, Scratch, fifo};

/// A repository of ten directories with 53 files each.
fn repository() -> Scratch {
    let scratch = Scratch::new();
    scratch.init();
    for number in 0..520 {
        let path = format!("d{}/s{}/f{}.txt", number % 10, number / 10 % 4, number / 40);
        let place = scratch.workspace().join(&path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, format!("{path}\n")).unwrap();
    }
    for number in 0..10 {
        fs::write(scratch.workspace().join(format!("d{number}/own")), "own\n").unwrap();
    }
    // Not as their owner, and without giving them away afterwards: the index must know the files as they are.
    let git = |args: &[&str]| support::run(&mut scratch.git_command(args));
    git(&["add", "-A"]);
    git(&["commit", "-q", "-m", "first"]);
    own_repository(&scratch);
    scratch
}

fn own_repository(scratch: &Scratch) {
    let owner = format!("{0}:{0}", scratch.uid);
    support::run(Command::new("chown").args(["-Rh", &owner]).arg(scratch.workspace().join(".git")));
}

#[test]
fn a_directory_that_is_exchanged_with_a_link_is_never_read_through_it() {
    let scratch = repository();
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
    let (directory, other) = (scratch.workspace().join("d5"), scratch.workspace().join("other"));
    let mut host_worker = scratch.host_worker();
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
                let status = host_worker.status();
                answers += 1;
                let lines: Vec<_> = status.lines().filter(|line| line.contains(" d5/")).collect();
                there |= lines.len() < 53;
                gone |= !lines.is_empty();
                // Gone, or caught in between; what is behind the link would be changed files.
                assert_eq!(lines.iter().find(|line| line.starts_with(" M")), None, "{status}");
                assert!(!racing.is_finished(), "the race was not run: {there} {gone}");
            }
            over.store(true, Ordering::Relaxed);
        });
        fs::remove_file(&other).unwrap();
        assert_eq!(host_worker.status(), "## main\n?? lure/\n", "as before the race");
    }
}
