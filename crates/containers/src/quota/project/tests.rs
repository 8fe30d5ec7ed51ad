//! On a real file system of its own, made and mounted for the test. A kernel without the quota format that ext4 uses
//! (CONFIG_QFMT_V2) cannot mount it: there these tests say so and have nothing to try.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;
use crate::mounts::overlay::mount_overlay;
use crate::{IdMap, RunUser};

const MIB: u64 = 1 << 20;
/// Neither root nor anybody else.
const AGENT: u32 = 1001;

/// An ext4 of 64 MiB in a file, mounted until the value is dropped.
struct Small {
    place: tempfile::TempDir,
}

impl Small {
    /// `None`: the kernel has no project quotas.
    fn mount(options: &str) -> Option<Self> {
        let place = tempfile::tempdir().unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let image = place.path().join("image");
        File::create(&image).unwrap().set_len(64 * MIB).unwrap();
        let make = ["-q", "-m", "0", "-O", "quota,project", "-E", "quotatype=prjquota"];
        run(Command::new("mkfs.ext4").args(make).arg(&image));
        let small = Self { place };
        fs::create_dir(small.path()).unwrap();
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-o", options]).arg(&image).arg(small.path()).output().unwrap();
        let why = String::from_utf8_lossy(&mounted.stderr);
        if why.contains("wrong fs type, bad option") {
            eprintln!("not tried: this kernel has no project quotas");
            return None;
        }
        assert!(mounted.status.success(), "as root: {why}");
        Some(small)
    }

    fn path(&self) -> PathBuf {
        self.place.path().join("mounted")
    }

    fn open(&self) -> File {
        File::open(self.path()).unwrap()
    }

    /// A directory of the agent's.
    fn directory(&self, name: &str) -> PathBuf {
        let path = self.path().join(name);
        fs::create_dir(&path).unwrap();
        chown(&path, Some(AGENT), Some(AGENT)).unwrap();
        path
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?} as root: {output:?}");
}

/// A shell script as the agent in `directory`: whether it succeeded, and what it says of errors.
fn agent(directory: &Path, script: &str) -> (bool, String) {
    // It enters the directory as root: a descriptor's path is closed to everybody else.
    let ids = [format!("--reuid={AGENT}"), format!("--regid={AGENT}"), "--clear-groups".to_owned()];
    let mut shell = Command::new("setpriv");
    let output = shell.args(ids).args(["sh", "-c", script]).current_dir(directory).output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn kernel_limits_bytes_and_files_of_one_project_only() {
    let Some(small) = Small::mount("loop,prjquota") else { return };
    let quotas = ProjectQuotas::of(small.open().as_fd()).unwrap().expect("enforced");
    let (one, other) = (ProjectId::from_any(1), ProjectId::from_any(2));
    assert!(quotas.is_free(one).unwrap());
    let (a, b) = (small.directory("a"), small.directory("b"));
    let open = |path: &Path| File::open(path).unwrap();
    assert_eq!(quotas.project_of(open(&a).as_fd()).unwrap(), None);
    for (directory, project) in [(&a, one), (&b, other)] {
        quotas.limit(project, Some(Amount { bytes: 8 * MIB, files: 50 })).unwrap();
        quotas.assign(open(directory).as_fd(), project).unwrap();
        assert_eq!(quotas.project_of(open(directory).as_fd()).unwrap(), Some(project));
    }
    assert!(!quotas.is_free(one).unwrap());

    let (done, said) = agent(&a, "mkdir -p d/e && head -c 20000000 /dev/zero >d/e/large");
    assert!(!done && said.contains("quota"), "{said}");
    let used = quotas.used(one).unwrap();
    assert!((7 * MIB..=8 * MIB).contains(&used.bytes), "{used:?}");
    assert_eq!(quotas.project_of(open(&a.join("d/e")).as_fd()).unwrap(), Some(one), "inherited");
    let (done, _) = agent(&a, "fallocate -l 40M more");
    assert!(!done && quotas.used(one).unwrap().bytes <= 8 * MIB);
    // The other one goes on, to its own bound of files.
    assert!(agent(&b, "head -c 4000000 /dev/zero >file").0);
    let (done, said) = agent(&b, "for n in $(seq 100); do : >$n || exit 1; done");
    assert!(!done && said.contains("quota"), "{said}");
    assert_eq!(quotas.used(other).unwrap().files, 50);
    assert!(agent(&a, "rm -r d more; head -c 4000000 /dev/zero >again").0, "what is freed can be used");

    // Nothing is left of a project whose directory is gone.
    fs::remove_dir_all(&a).unwrap();
    quotas.limit(one, None).unwrap();
    assert!(quotas.is_free(one).unwrap());
}

#[test]
fn an_overlay_is_bounded_by_the_project_of_its_layers() {
    let Some(small) = Small::mount("loop,prjquota") else { return };
    let quotas = ProjectQuotas::of(small.open().as_fd()).unwrap().expect("enforced");
    let project = ProjectId::from_any(7);
    let beneath = small.directory("beneath");
    let layers = small.path().join("layers");
    fs::create_dir(&layers).unwrap();
    quotas.assign(File::open(&layers).unwrap().as_fd(), project).unwrap();
    quotas.limit(project, Some(Amount { bytes: 8 * MIB, files: 50 })).unwrap();
    for name in ["upper", "work"] {
        fs::create_dir(layers.join(name)).unwrap();
    }
    chown(layers.join("upper"), Some(AGENT), Some(AGENT)).unwrap();
    let slots = small.path().join("slots");
    fs::create_dir(&slots).unwrap();
    let user = RunUser::DEFAULT;
    let map = IdMap { disk_uid: AGENT, disk_gid: AGENT, seen_uid: user.uid(), seen_gid: user.gid() };
    let (beneath, opened) = (File::open(beneath).unwrap(), File::open(&layers).unwrap());
    let overlay = mount_overlay(beneath.as_fd(), opened.as_fd(), &slots, Some(map), None).unwrap();
    let seen = PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), {
        use std::os::fd::AsRawFd as _;
        overlay.as_raw_fd()
    }));
    // The kernel writes the layers as whoever mounted the overlay: with all privileges no bound would hold.
    let (done, said) = agent(&seen, "mkdir d && head -c 20000000 /dev/zero >d/large");
    assert!(!done && said.contains("quota"), "{said}");
    assert!(quotas.used(project).unwrap().bytes <= 8 * MIB);
    let (done, said) = agent(&seen, "rm d/large; for n in $(seq 100); do : >$n || exit 1; done");
    assert!(!done && said.contains("quota"), "{said}");
    drop((overlay, opened, beneath));
}

#[test]
fn a_file_system_without_enforcement_has_no_quota() {
    assert!(ProjectQuotas::of(File::open("/proc").unwrap().as_fd()).unwrap().is_none());
    let Some(small) = Small::mount("loop,noquota") else { return };
    assert!(ProjectQuotas::of(small.open().as_fd()).unwrap().is_none());
}

#[test]
fn numbers_are_in_our_range() {
    assert_eq!(ProjectId::new(0), None);
    assert_eq!(ProjectId::new(1_000), None);
    for number in [0, 1, u32::MAX, 0x3fff_ffff, 0x4000_0000] {
        let project = ProjectId::from_any(number);
        assert_eq!(ProjectId::new(project.to_string().parse().unwrap()), Some(project));
    }
    assert_eq!(ProjectId::from_any(u32::MAX).next(), ProjectId::from_any(0));
}
