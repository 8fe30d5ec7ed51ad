//! On a real file system with project quotas, made and mounted for the test. A kernel without the quota format that ext4 uses
//! (CONFIG_QFMT_V2) cannot mount it: there these tests say so and have nothing to try.

use std::fs;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::Command;

use super::*;

const MOST: Amount = Amount { bytes: 1 << 20, files: 100 };

struct Scene {
    place: tempfile::TempDir,
}

impl Scene {
    /// `None`: the kernel has no project quotas.
    fn new() -> Option<Self> {
        let scene = Self { place: tempfile::tempdir().unwrap() };
        let image = scene.place.path().join("image");
        fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        fs::create_dir(scene.state()).unwrap();
        let make = ["-q", "-O", "quota,project", "-E", "quotatype=prjquota"];
        let mut mount = Command::new("mount");
        for command in [
            Command::new("mkfs.ext4").args(make).arg(&image),
            mount.args(["-o", "loop,prjquota"]).arg(&image).arg(scene.state()),
        ] {
            let output = command.output().unwrap();
            let why = String::from_utf8_lossy(&output.stderr);
            if why.contains("wrong fs type, bad option") {
                eprintln!("not tried: this kernel has no project quotas");
                return None;
            }
            assert!(output.status.success(), "as root: {why}");
        }
        for directory in scene.counted() {
            fs::create_dir(directory).unwrap();
        }
        Some(scene)
    }

    fn state(&self) -> PathBuf {
        self.place.path().join("state")
    }

    fn counted(&self) -> Vec<PathBuf> {
        ["runs", "workspaces"].map(|name| self.state().join(name)).into()
    }

    fn open(&self) -> Projects {
        Projects::open(&self.state(), self.counted()).unwrap()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.state()).status();
    }
}

/// Makes what a run has in these directories, in its project.
fn make(projects: &Projects, run: RunId, continued: Option<RunId>, parents: &[PathBuf]) {
    projects.allot(run, continued, MOST);
    for parent in parents {
        let path = parent.join(run.to_string());
        fs::create_dir(&path).unwrap();
        projects.assign(run, fs::File::open(&path).unwrap().as_fd());
    }
}

fn of(projects: &Projects, run: RunId) -> Option<ProjectId> {
    projects.table.lock().get(&run).copied()
}

#[test]
fn a_project_belongs_to_one_run_outlives_the_daemon_and_ends_with_its_files() {
    let Some(scene) = Scene::new() else { return };
    let projects = scene.open();
    assert!(projects.are_held());
    let (one, other) = (RunId::new(), RunId::new());
    let counted = scene.counted();
    make(&projects, one, None, &counted);
    make(&projects, other, None, &counted[..1]);
    assert_ne!(of(&projects, one), of(&projects, other));
    assert_eq!(projects.used(one).unwrap().unwrap().files, 2, "state and workspace together");

    let again = scene.open();
    assert_eq!(*again.table.lock(), *projects.table.lock());

    // A run that goes on in its workspace has its project, and no other run's.
    let next = RunId::new();
    make(&again, next, Some(one), &counted[..1]);
    assert_eq!(of(&again, next), of(&again, one));
    assert_eq!(again.used(next).unwrap().unwrap().files, 3);

    let project = of(&again, one).unwrap();
    let quotas = again.quotas.as_ref().unwrap();
    for parent in &counted {
        again.settle(one);
        assert!(of(&again, one).is_some(), "something is left");
        fs::remove_dir(parent.join(one.to_string())).unwrap();
    }
    again.settle(one);
    assert_eq!(of(&again, one), None);
    assert!(!quotas.is_free(project).unwrap(), "the next one has it");
    fs::remove_dir(counted[0].join(next.to_string())).unwrap();
    again.settle(next);
    assert!(quotas.is_free(project).unwrap());
}

#[test]
fn project_number_in_use_is_not_taken() {
    let Some(scene) = Scene::new() else { return };
    let projects = scene.open();
    let quotas = projects.quotas.as_ref().unwrap();
    let one = RunId::new();
    let wanted = ProjectId::from_any(one.low_bits());
    // Another daemon's, and one of ours that has nothing so far.
    quotas.limit(wanted, Some(MOST)).unwrap();
    projects.table.lock().insert(RunId::new(), wanted.next());
    make(&projects, one, None, &scene.counted());
    assert_eq!(of(&projects, one), Some(wanted.next().next()));
}

#[test]
fn a_workspace_without_a_project_is_left_as_it_is() {
    let Some(scene) = Scene::new() else { return };
    let projects = scene.open();
    let (old, next) = (RunId::new(), RunId::new());
    fs::create_dir(scene.counted()[1].join(old.to_string())).unwrap();
    make(&projects, next, Some(old), &scene.counted()[..1]);
    assert!(projects.used(next).is_none(), "the daemon measures it");
}

#[test]
fn other_file_systems_have_no_projects() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let projects = Projects::open(place.path(), Vec::new()).unwrap();
    let one = RunId::new();
    projects.allot(one, None, MOST);
    assert!(projects.used(one).is_none() && !projects.are_held());
    projects.settle(one);
}

#[test]
fn a_tree_that_was_made_before_its_run_is_taken_in_as_a_whole() {
    let Some(scene) = Scene::new() else { return };
    let projects = scene.open();
    let run = RunId::new();
    projects.allot(run, None, MOST);
    let tree = scene.counted()[0].join(run.to_string());
    fs::create_dir_all(tree.join("upper/etc")).unwrap();
    fs::create_dir_all(tree.join("work/work")).unwrap();
    fs::write(tree.join("upper/etc/passwd"), "x").unwrap();
    // What an overlay keeps to cover files of the image.
    let whiteout = rustix::fs::makedev(0, 0);
    let mode = Mode::empty();
    rustix::fs::mknodat(CWD, tree.join("work/work/#1"), FileType::CharacterDevice, mode, whiteout).unwrap();
    let open = || fs::File::open(&tree).unwrap();
    projects.take_in(run, open().as_fd()).unwrap();
    assert_eq!(projects.used(run).unwrap().unwrap().files, 6);
    // What is made in it later counts as well.
    fs::write(tree.join("upper/etc/group"), "x").unwrap();
    std::os::unix::fs::symlink("passwd", tree.join("work/work/link")).unwrap();
    assert_eq!(projects.used(run).unwrap().unwrap().files, 8);
    projects.take_in(run, open().as_fd()).unwrap_err();
    // A run without a project is measured.
    projects.take_in(RunId::new(), open().as_fd()).unwrap();
}
