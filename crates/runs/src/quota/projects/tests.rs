//! On a real file system with project quotas, made and mounted for the test. A kernel without the quota format that ext4 uses
//! (CONFIG_QFMT_V2) cannot mount it: there these tests say so and have nothing to try.

use std::fs;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::Command;

use super::*;
use crate::testing::record;

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
        for directory in scene.directories().counted() {
            fs::create_dir(directory).unwrap();
        }
        Some(scene)
    }

    fn state(&self) -> PathBuf {
        self.place.path().join("state")
    }

    fn directories(&self) -> Directories {
        Directories { state: self.state() }
    }

    fn open(&self) -> Projects {
        Projects::open(self.directories()).unwrap()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.state()).status();
    }
}

/// A run on this workspace.
fn run(workspace: Workspace) -> Record {
    let mut run = record();
    run.spec.workspace = workspace;
    run
}

/// Makes what a run has, in its project.
fn make(projects: &Projects, record: &Record) {
    projects.allot(record, MOST);
    for path in projects.directories.counted_of(record) {
        if !path.exists() {
            fs::create_dir(&path).unwrap();
            projects.assign(record.id, fs::File::open(&path).unwrap().as_fd());
        }
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
    let (one, other) = (run(Workspace::Managed), run(Workspace::Bind { path: "/".into() }));
    make(&projects, &one);
    make(&projects, &other);
    assert_ne!(of(&projects, one.id), of(&projects, other.id));
    assert_eq!(projects.used(one.id).unwrap().unwrap().files, 2, "state and workspace together");

    let again = scene.open();
    assert_eq!(*again.table.lock(), *projects.table.lock());

    // A run that goes on in its workspace has its project, and nobody else's.
    let next = run(Workspace::Kept { workspace: one.id });
    make(&again, &next);
    assert_eq!(of(&again, next.id), of(&again, one.id));
    assert_eq!(again.used(next.id).unwrap().unwrap().files, 3);

    let project = of(&again, one.id).unwrap();
    let quotas = again.quotas.as_ref().unwrap();
    for path in again.directories.counted_of(&one) {
        again.settle(one.id);
        assert!(of(&again, one.id).is_some(), "something is left");
        fs::remove_dir(path).unwrap();
    }
    again.settle(one.id);
    assert_eq!(of(&again, one.id), None);
    assert!(!quotas.is_free(project).unwrap(), "the next one has it");
    fs::remove_dir(again.directories.run_state(&next.id.to_string())).unwrap();
    again.settle(next.id);
    assert!(quotas.is_free(project).unwrap());
}

#[test]
fn project_number_in_use_is_not_taken() {
    let Some(scene) = Scene::new() else { return };
    let projects = scene.open();
    let quotas = projects.quotas.as_ref().unwrap();
    let one = run(Workspace::Managed);
    let wanted = ProjectId::from_any(one.id.low_bits());
    // Another daemon's, and one of ours that has nothing so far.
    quotas.limit(wanted, Some(MOST)).unwrap();
    projects.table.lock().insert(run(Workspace::Managed).id, wanted.next());
    make(&projects, &one);
    assert_eq!(of(&projects, one.id), Some(wanted.next().next()));
}

#[test]
fn a_workspace_without_a_project_is_left_as_it_is() {
    let Some(scene) = Scene::new() else { return };
    let projects = scene.open();
    let old = run(Workspace::Managed);
    fs::create_dir(projects.directories.workspace(&old.id.to_string())).unwrap();
    let next = run(Workspace::Kept { workspace: old.id });
    make(&projects, &next);
    assert!(projects.used(next.id).is_none(), "the daemon measures it");
}

#[test]
fn other_file_systems_have_no_projects() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let projects = Projects::open(Directories { state: place.path().to_owned() }).unwrap();
    let one = run(Workspace::Managed);
    projects.allot(&one, MOST);
    assert!(projects.used(one.id).is_none() && !projects.are_held());
    projects.settle(one.id);
}
