//! Races against an attacker who changes directories while a call is under way.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::support::{Scene, names, path};
use cofferdam_jail::{Parents, WriteError, WriteMode};
use rustix::fs::{CWD, RenameFlags, renameat_with};

/// Until one of them gets through.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often something is attempted, and how often the directory is exchanged meanwhile, at least.
fn times() -> u32 {
    effort::cases(1_000, 5_000)
}

#[test]
fn one_of_many_creators_wins() {
    const WRITERS: usize = 8;
    let scene = Scene::new();
    for round in 0..50 {
        let path = path(&format!("f{round}"));
        let barrier = Barrier::new(WRITERS);
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let (scene, path, barrier) = (&scene, &path, &barrier);
                    scope.spawn(move || {
                        let target = scene.jail.writable(path).unwrap().target(Parents::MustExist).unwrap();
                        barrier.wait();
                        target.write(writer.to_string().as_bytes(), WriteMode::CreateOnly)
                    })
                })
                .collect();
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        let winners: Vec<_> = (0..WRITERS).filter(|&writer| outcomes[writer].is_ok()).collect();
        assert_eq!(winners.len(), 1, "{outcomes:?}");
        assert_eq!(scene.read(&format!("f{round}")), Ok(winners[0].to_string()));
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(_) | Err(WriteError::Exists { .. }))));
    }
    assert_eq!(names(&scene.inside).len(), 50);
}

/// Runs `attempt` at least [`times`] times, and until as many swaps happened and one got through, while `d` changes between a
/// directory and a link to the outside. How many got through.
fn against_swapper(scene: &Scene, attempt: impl Fn(u32) -> bool) -> usize {
    let (dir, link) = (scene.inside.join("d"), scene.inside.join("swap"));
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("canary"), "inside").unwrap();
    // Relative: an absolute one would be stopped by NO_XDEV alone.
    symlink("../outside", &link).unwrap();
    let (done, swaps) = (AtomicBool::new(false), AtomicU32::new(0));
    let began = Instant::now();
    std::thread::scope(|scope| {
        let swapper = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                renameat_with(CWD, &dir, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                swaps.fetch_add(1, Ordering::Relaxed);
            }
        });
        // Also when `attempt` panics: the scope waits for its threads.
        let _stop = StoreOnDrop(&done);
        let (mut round, mut through) = (0, 0);
        let times = times();
        while (round < times || swaps.load(Ordering::Relaxed) < times || through == 0)
            && !swapper.is_finished()
        {
            assert!(through > 0 || began.elapsed() < PATIENCE, "none of {round} got through");
            through += usize::from(attempt(round));
            round += 1;
        }
        through
    })
}

struct StoreOnDrop<'a>(&'a AtomicBool);

impl Drop for StoreOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn races_write_nothing_outside() {
    let scene = Scene::new();
    let written = against_swapper(&scene, |round| {
        let path = path(&format!("d/f{round}"));
        let target = scene.jail.writable(&path).unwrap().target(Parents::Create);
        target.is_ok_and(|target| target.write(b"x", WriteMode::Replace).is_ok())
    });
    assert!(scene.outside_names() == ["canary"], "{} names outside", scene.outside_names().len());
    assert_eq!(fs::read_to_string(scene.outside.join("canary")).unwrap(), "canary");
    let real = if scene.inside.join("d").is_symlink() { "swap" } else { "d" };
    assert_eq!(names(&scene.inside.join(real)).len(), written + 1, "a write was lost, or a temporary left");
}

#[test]
fn races_read_nothing_outside() {
    let scene = Scene::new();
    against_swapper(&scene, |_| {
        let read = scene.read("d/canary");
        match &read {
            Ok(text) => assert_eq!(text, "inside"),
            Err(message) => assert!(!message.contains("outside"), "{message}"),
        }
        read.is_ok()
    });
}

/// Operations of one run that each change what they have read, as often as it takes.
#[test]
fn no_change_of_one_file_is_lost_to_another() {
    const WRITERS: u32 = 4;
    let changes = effort::cases(100, 2_000);
    let (scene, _private) = Scene::new().private(1);
    fs::write(scene.inside.join("count"), "0").unwrap();
    let path = path("count");
    let add_one = || loop {
        let mut target = scene.jail.writable(&path).unwrap().target(Parents::MustExist).unwrap();
        let count = std::io::read_to_string(target.read().unwrap().unwrap().file).unwrap();
        let more = (count.parse::<u32>().unwrap() + 1).to_string();
        match target.write(more.as_bytes(), WriteMode::ReplaceUnchanged) {
            Ok(_) => return,
            Err(WriteError::Changed { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| (0..changes).for_each(|_| add_one()));
        }
    });
    assert_eq!(scene.read("count"), Ok((WRITERS * changes).to_string()));
}
