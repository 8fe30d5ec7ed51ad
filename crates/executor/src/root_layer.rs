//! A writable root: the image's directories under the run's own layer. Each is bound at its path in the image.
//!
//! ```text
//! image, layer ─► overlay in a slot ─► home and `writable_paths` made ─► each top directory bound ─► compared in the container
//! ```
//!
//! The engine's root beneath stays read-only, so no process in the container can move or replace the mounts at its top: these directories,
//! the workspace, the guest. This code resolves all paths in the layer before the container starts, when no other process can change it.

use std::fs::File;
use std::io::{self, Write as _};
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use containers::{GROUP_PATH, HostUser, MountError, MountSlot, MountSpec, PASSWD_PATH, POLICIES, host_files};
use host_launch::Owner;
use operations::Reason;
use refusal::Refusal;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, RenameFlags, ResolveFlags, StatVfsMountFlags, Uid,
};
use rustix::io::Errno;
use tokio::task::block_in_place;

use crate::directory::Directory;

/// Most top directories of a root. No image has so many.
const MOST_DIRECTORIES: usize = 128;
const DIRECTORY: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A root that is mounted.
pub struct RootLayer {
    slot: MountSlot,
    handle: OwnedFd,
    /// Directory of the layer above the image.
    layer: PathBuf,
}

impl RootLayer {
    /// Opens a root that was just mounted. A failure unmounts it.
    pub fn of(slot: MountSlot, layer: PathBuf) -> Result<Self, Errno> {
        let handle = rustix::fs::open(slot.path(), DIRECTORY, Mode::empty())?;
        Ok(Self { slot, handle, layer })
    }

    /// Opens a root that an earlier daemon mounted. A failure leaves it mounted, because another daemon may go on with it.
    pub fn reattach(slot: MountSlot, layer: PathBuf) -> Result<Self, Errno> {
        match rustix::fs::open(slot.path(), DIRECTORY, Mode::empty()) {
            Ok(handle) => Ok(Self { slot, handle, layer }),
            Err(errno) => {
                slot.leave();
                Err(errno)
            }
        }
    }

    /// Returns the mounted root.
    pub fn handle(&self) -> &OwnedFd {
        &self.handle
    }

    /// Returns the root as a directory in which `owner` writes.
    pub fn directory(&self, owner: Owner) -> Result<Directory, Refusal> {
        let handle = self.handle.try_clone().map_err(|error| Refusal::internal("opening a root", &error))?;
        Ok(Directory { handle, path: self.layer.clone(), owner, is_mapped: true })
    }

    /// Returns the mounts of the root, as the engine has to name them. No process in a container can add or remove one.
    pub fn mounts(&self) -> Result<Vec<MountSpec>, Refusal> {
        let names = directories(&self.handle)
            .map_err(|error| Refusal::internal("listing the directories of a root", &error))?;
        if names.len() > MOST_DIRECTORIES {
            let most = format!("has more than {MOST_DIRECTORIES} directories at its top");
            return Err(Refusal::new(Reason::ImageUnusable, format!("image: {most}")));
        }
        Ok(names.iter().filter_map(|name| MountSpec::of_root(self.slot.path(), name)).collect())
    }

    /// Returns the mount of a directory within the root at its own path.
    pub fn within(&self, path: &str) -> Result<MountSpec, Refusal> {
        let mount = MountSpec::within_root(self.slot.path(), path);
        mount.map_err(|error| Refusal::new(Reason::ImageUnusable, format!("a volume of the image: {error}")))
    }

    /// Makes a directory that every run needs, or gives it to the user.
    pub fn make_own(&self, wanted: &str, user: HostUser) -> Result<OwnedFd, Refusal> {
        self.make("image", wanted, user).map_err(|refusal| match refusal.reason {
            Reason::InvalidArgument => Refusal::new(Reason::ImageUnusable, refusal.message),
            _ => refusal,
        })
    }

    /// Makes `wanted`, or gives it to the user. Follows no link, because the image decides where a link leads.
    pub fn make(&self, field: &'static str, wanted: &str, user: HostUser) -> Result<OwnedFd, Refusal> {
        let failed = |errno| match errno {
            Errno::LOOP | Errno::NOTDIR => Refusal::invalid(
                field,
                format!("{wanted}: the image has a file or a symbolic link on the way"),
            ),
            errno => Refusal::internal("making a directory of a root", &errno),
        };
        let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
        let mut at = rustix::fs::openat(&self.handle, ".", DIRECTORY, Mode::empty()).map_err(failed)?;
        for name in wanted.split('/').filter(|name| !name.is_empty()) {
            let is_new = match rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o755)) {
                Ok(()) => true,
                Err(Errno::EXIST) => false,
                Err(errno) => return Err(failed(errno)),
            };
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            at = rustix::fs::openat2(&at, name, DIRECTORY, Mode::empty(), resolve).map_err(failed)?;
            if is_new {
                rustix::fs::chownat(&at, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH).map_err(failed)?;
            }
        }
        rustix::fs::chownat(&at, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH).map_err(failed)?;
        Ok(at)
    }

    /// Makes the mount point of a policy for Chromium in each directory of its configuration that the image has.
    ///
    /// The runtime would make it otherwise, for another user. A link of the image on the way is not followed: such a policy is
    /// not mounted.
    pub fn make_policies(&self, user: HostUser) -> Result<(), Errno> {
        for policy in POLICIES {
            match self.make_policy(policy, user) {
                Ok(()) | Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR | Errno::ISDIR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    fn make_policy(&self, policy: &str, user: HostUser) -> Result<(), Errno> {
        let mut names = policy.rsplitn(4, '/');
        let (Some(file), Some(inner), Some(outer), Some(of_image)) =
            (names.next(), names.next(), names.next(), names.next())
        else {
            return Err(Errno::INVAL);
        };
        let owner = (Some(Uid::from_raw(user.uid)), Some(Gid::from_raw(user.gid)));
        let open = |at: &OwnedFd, name: &str| {
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            rustix::fs::openat2(at, name, DIRECTORY, Mode::empty(), resolve)
        };
        let mut at = open(&self.handle, of_image.trim_start_matches('/'))?;
        for name in [outer, inner] {
            match rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o755)) {
                Ok(()) => {
                    at = open(&at, name)?;
                    rustix::fs::chownat(&at, "", owner.0, owner.1, AtFlags::EMPTY_PATH)?;
                }
                Err(Errno::EXIST) => at = open(&at, name)?,
                Err(errno) => return Err(errno),
            }
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(&at, file, flags, Mode::from_raw_mode(0o644)) {
            Ok(made) => rustix::fs::fchown(&made, owner.0, owner.1),
            Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Links `/etc/mtab` to the table of mounts, as engines do in a layer that they own. `df` reads it.
    ///
    /// A layer that waits for its run has no link, because no project of quotas takes one in.
    pub fn link_mounts(&self) -> Result<(), Errno> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let etc = rustix::fs::openat2(&self.handle, "etc", DIRECTORY, Mode::empty(), resolve)?;
        match rustix::fs::symlinkat("/proc/mounts", &etc, "mtab") {
            Err(Errno::EXIST) => Ok(()),
            made => made,
        }
    }

    /// Gives the layer another name, under which it is found from now on. The mount stays.
    pub fn rename(&mut self, layer: PathBuf) -> Result<(), Errno> {
        rustix::fs::renameat_with(CWD, &self.layer, CWD, &layer, RenameFlags::NOREPLACE)?;
        self.layer = layer;
        Ok(())
    }

    /// Checks that the container with this root directory shows the layer, without set-id files and devices.
    pub fn arrived(&self, container: &OwnedFd) -> Result<(), Refusal> {
        let failed = |error: Errno| Refusal::internal("looking at the container's root", &error);
        for name in directories(&self.handle).map_err(failed)? {
            if MountSpec::of_root(self.slot.path(), &name).is_none() {
                continue;
            }
            let meant = rustix::fs::openat(&self.handle, &name, DIRECTORY, Mode::empty()).map_err(failed)?;
            let seen = rustix::fs::openat(container, &name, DIRECTORY, Mode::empty()).map_err(failed)?;
            let place = |directory: &OwnedFd| {
                rustix::fs::fstat(directory).map(|stat| (stat.st_dev, stat.st_ino)).map_err(failed)
            };
            let is_same = place(&seen)? == place(&meant)?;
            let flags = rustix::fs::fstatvfs(&seen).map_err(failed)?.f_flag;
            if !is_same || !flags.contains(StatVfsMountFlags::NOSUID | StatVfsMountFlags::NODEV) {
                return Err(Refusal::new(
                    Reason::EngineUnavailable,
                    format!(
                        "the engine does not show the run's root at /{name}: state_dir must be a shared mount at the same path for the engine; see the book, \"Compose\""
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Returns true if the image's files of users and groups are regular files or missing.
    ///
    /// The runtime opens them for each program that it starts in the container. It would wait forever on a FIFO.
    pub fn users_are_files(&self) -> bool {
        [PASSWD_PATH, GROUP_PATH].iter().all(|path| {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            let opened = rustix::fs::openat2(&self.handle, &path[1..], flags, Mode::empty(), resolve);
            match opened.and_then(|file| rustix::fs::fstat(&file)) {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode).is_file(),
                Err(errno) => errno == Errno::NOENT,
            }
        })
    }

    /// Unmounts the root, and returns the layer for the caller to remove. No process of the container may be left.
    pub fn unmount(self) -> (PathBuf, Result<(), MountError>) {
        let Self { slot, handle, layer } = self;
        drop(handle);
        (layer, block_in_place(|| slot.release()))
    }

    /// Leaves the root mounted, for the next daemon.
    pub fn leave(self) {
        self.slot.leave();
    }
}

/// Returns the directories of the root that is mounted below `slots`, by their paths in the container. Empty if there is none.
pub fn shown(slots: &Path) -> Vec<String> {
    let root = containers::root_slot(slots);
    let Ok(handle) = rustix::fs::open(&root, DIRECTORY, Mode::empty()) else { return Vec::new() };
    let names = directories(&handle).unwrap_or_default();
    let bound = names.iter().filter_map(|name| MountSpec::of_root(&root, name));
    bound.map(|mount| mount.target().to_owned()).collect()
}

/// Returns the names of the directories at the top of a root, without links.
fn directories(root: &OwnedFd) -> Result<Vec<String>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = rustix::fs::openat(root, ".", flags, Mode::empty())?;
    let mut names = Vec::new();
    for entry in Dir::read_from(&top)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        let stat = rustix::fs::statat(&top, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(stat.st_mode).is_dir() {
            names.push(name.to_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Makes the mount points in `/etc` regular files, so that the daemon's files are mounted in `/etc` itself.
///
/// The engine reads the files of users and groups for each program that it starts in the container, and gives it the groups that they name.
/// On a link of the image, the mount would be at the link's target, and a command could replace the link.
pub fn mount_points(etc: &OwnedFd) -> Result<(), Errno> {
    let hosts = host_files(None).map(|(path, _)| path);
    for name in [PASSWD_PATH, GROUP_PATH].iter().chain(&hosts).map(|path| path.trim_start_matches("/etc/")) {
        let found = rustix::fs::statat(etc, name, AtFlags::SYMLINK_NOFOLLOW);
        if !found.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file()) {
            replace(etc, name)?;
        }
    }
    Ok(())
}

/// Writes the files of hosts where a root may change them. They replace the image's files, as engines do.
pub fn write_host_files(etc: &OwnedFd, user: HostUser, resolver: Option<Ipv4Addr>) -> io::Result<()> {
    for (path, content) in host_files(resolver) {
        let mut file = File::from(replace(etc, path.trim_start_matches("/etc/"))?);
        file.write_all(content.as_bytes())?;
        rustix::fs::fchown(&file, Some(Uid::from_raw(user.uid)), Some(Gid::from_raw(user.gid)))?;
    }
    Ok(())
}

/// Makes an empty file, and removes the file or link that has its name.
fn replace(etc: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    match rustix::fs::unlinkat(etc, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(etc, name, flags, Mode::from_raw_mode(0o644))
}

/// Makes the two directories of a layer. The upper one gets the attributes of a container's root.
pub fn empty_layer(layer: &OwnedFd, owner: Owner) -> Result<(), Errno> {
    for name in ["upper", "work"] {
        rustix::fs::mkdirat(layer, name, Mode::RWXU)?;
    }
    let upper = rustix::fs::openat(
        layer,
        "upper",
        OFlags::RDONLY | DIRECTORY.difference(OFlags::PATH),
        Mode::empty(),
    )?;
    rustix::fs::fchown(&upper, Some(Uid::from_raw(owner.uid)), Some(Gid::from_raw(owner.gid)))?;
    rustix::fs::fchmod(&upper, Mode::from_raw_mode(0o755))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;

    #[test]
    fn only_directories_are_shown_and_links_are_not_followed() {
        let slots = tempfile::tempdir().unwrap();
        assert_eq!(shown(slots.path()), Vec::<String>::new());
        let root = containers::root_slot(slots.path());
        for name in ["usr", "proc", "workspace", "a b", ".cofferdam"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        std::fs::write(root.join("file"), "").unwrap();
        symlink("usr/bin", root.join("bin")).unwrap();
        symlink("/etc", root.join("etc")).unwrap();
        assert_eq!(shown(slots.path()), ["/usr"]);
    }

    #[test]
    fn a_root_that_cannot_be_opened_stays_mounted_for_the_next_daemon() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        std::fs::create_dir_all(at("layer/etc")).unwrap();
        std::fs::create_dir(at("slots")).unwrap();
        let layer = rustix::fs::open(at("layer"), DIRECTORY, Mode::empty()).unwrap();
        let path = containers::root_slot(&at("slots"));
        let slot = MountSlot::prepare(layer.as_fd(), &path, None, jail::MountMode::ReadWrite).unwrap();
        // The path leads nowhere for a moment.
        std::fs::rename(at("slots"), at("moved")).unwrap();
        assert_eq!(RootLayer::reattach(slot, at("layer")).map(drop), Err(Errno::NOENT));
        std::fs::rename(at("moved"), at("slots")).unwrap();
        let slot = containers::reattach_root(&at("slots")).unwrap().expect("it is still mounted");
        assert!(path.join("etc").is_dir());
        slot.release().unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_layer_that_is_renamed_replaces_no_other() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        for name in ["waits", "other"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        let waits = rustix::fs::open(at("waits"), DIRECTORY, Mode::empty()).unwrap();
        let slot = MountSlot::prepare(waits.as_fd(), &at("slot"), None, jail::MountMode::ReadWrite).unwrap();
        let mut root = RootLayer::of(slot, at("waits")).unwrap();
        assert_eq!(root.rename(at("other")), Err(Errno::EXIST));
        root.rename(at("run")).unwrap();
        assert!(at("run").is_dir() && !at("waits").exists());
        std::fs::create_dir(at("run").join("etc")).unwrap();
        for _ in 0..2 {
            root.link_mounts().unwrap();
        }
        assert_eq!(std::fs::read_link(at("slot/etc/mtab")).unwrap(), Path::new("/proc/mounts"));
        // Chromium has its directory, Chrome has none, and a link is not followed.
        std::fs::create_dir(at("run/etc/chromium")).unwrap();
        symlink("chromium", at("run/etc/chromium-browser")).unwrap();
        let user = HostUser { uid: 1002, gid: 1003 };
        for _ in 0..2 {
            root.make_policies(user).unwrap();
        }
        let made = std::fs::metadata(at("run/etc/chromium/policies/managed/cofferdam.json")).unwrap();
        assert_eq!((made.len(), made.uid(), made.gid()), (0, 1002, 1003));
        assert!(!at("run/etc/opt").exists());
        let (layer, released) = root.unmount();
        released.unwrap();
        assert_eq!(layer, at("run"));
    }
}
