//! Copy-on-write over a directory: an overlay whose upper layer receives the agent's changes.
//!
//! ```text
//! directory beneath ─► idmapped, read-only ─┐
//!                                           ├─► overlay, nosuid, nodev ─► both lanes
//! upper and work    ─► idmapped ────────────┘
//! ```
//!
//! An overlay cannot be idmapped itself, but its layers can. Through it the owner appears as the run's user, and files that this user
//! creates belong to the owner on disk. Both lanes see this one tree.
//!
//! Options and reasons. `userxattr`: overlay marks are `user.overlay.*`, which the unprivileged process that later reads the layer can see;
//! it could not see marks in `trusted.*`. An agent cannot set such marks through the overlay, which takes them for its own or hides them.
//! It may have planted them beneath through a bind mount of an earlier run. There they have no effect: `redirect_dir=nofollow` and
//! `metacopy=off` (which `userxattr` implies) keep a mark from redirecting a name, and an opaque mark has no layer below it to hide.
//! `index=off` and `nfs_export=off`: no file handles are decoded from a layer's content. The price is that a directory from beneath cannot
//! be renamed (`EXDEV`, after which `mv` and similar programs copy). Also, a hard link to a file from beneath breaks when it is written.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use jail::MountMode;
use rustix::fs::{Mode, OFlags, XattrFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string,
    fsmount, fsopen,
};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use super::{IdMap, MountError, MountSlot, Others, failed, user_namespace};
use crate::user_map::UserMap;

/// Names within the directory of layers.
pub(super) const UPPER: &str = "upper";
pub(super) const WORK: &str = "work";
/// Linux's magic number of overlay file systems.
const OVERLAYFS_MAGIC: u64 = 0x794c_7630;
/// Attribute that does not belong to the overlay itself.
const PROBE: &str = "user.cofferdam.probe";

/// Reason why there is no overlay.
#[derive(Debug, thiserror::Error)]
pub enum OverlayError {
    /// The file system of the layers is unsuitable.
    #[error("{0}")]
    Layers(&'static str),
    /// The kernel refused the mount.
    #[error("the kernel refuses an overlay of this directory: {0}")]
    Kernel(String),
    #[error(transparent)]
    Mount(#[from] MountError),
}

/// Checks that `layers`, a directory of the daemon, is on a file system that can hold an overlay's changes.
pub fn check_overlay_layers(layers: BorrowedFd<'_>) -> Result<(), OverlayError> {
    let kind = rustix::fs::fstatfs(layers).map_err(failed("look at the file system of the layers"))?;
    if u64::try_from(kind.f_type).is_ok_and(|kind| kind == OVERLAYFS_MAGIC) {
        return Err(OverlayError::Layers(
            "state_dir is itself on an overlay (a container's own file system?), which cannot hold the \
             changes of another overlay: put it on a volume or a disk",
        ));
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory =
        rustix::fs::openat(layers, ".", flags, Mode::empty()).map_err(failed("open the layers"))?;
    match rustix::fs::fsetxattr(&directory, PROBE, b"y", XattrFlags::empty()) {
        Ok(()) => {
            rustix::fs::fremovexattr(&directory, PROBE).map_err(failed("try extended attributes"))?;
            Ok(())
        }
        Err(Errno::OPNOTSUPP) => Err(OverlayError::Layers(
            "the file system of state_dir has no extended attributes of users, which the changes of an overlay need: \
             put it on ext4, xfs or btrfs",
        )),
        Err(errno) => Err(failed("try extended attributes")(errno).into()),
    }
}

/// Mounts an overlay of `beneath` without attaching it. It lasts as long as the handle and its clones.
///
/// `layers` is a directory of the daemon with empty directories `upper` and `work`, or with those of an earlier mount. `slots` is a
/// directory in which mounts may be attached meanwhile. With `map` the layers are idmapped; this fails with [`MountError::Unsupported`] if
/// they cannot be. With `users`, the map of a container, all other ids of that container besides the one that `map` shows stay unmapped.
pub fn mount_overlay(
    beneath: BorrowedFd<'_>,
    layers: BorrowedFd<'_>,
    slots: &Path,
    map: Option<IdMap>,
    users: Option<UserMap>,
) -> Result<OwnedFd, OverlayError> {
    let others = users.map_or(Others::Themselves, Others::OutsideOf);
    let map = map.map(|map| user_namespace(map, others)).transpose()?;
    let map = map.as_deref().map(AsFd::as_fd);
    // Attached, because older kernels accept no layer from a detached mount.
    let lower = MountSlot::attach(beneath, &slots.join("beneath"), map, MountMode::ReadOnly)?;
    let upper = MountSlot::attach(layers, &slots.join("layers"), map, MountMode::ReadWrite)?;
    let (below, changes) = (open(lower.path())?, open(upper.path())?);
    let mounted = under_quota(|| make(below.as_fd(), changes.as_fd()));
    drop((below, changes));
    // The overlay holds its own clones.
    lower.release()?;
    upper.release()?;
    mounted
}

/// Opens a directory of an attached mount.
pub(super) fn open(path: &Path) -> Result<OwnedFd, MountError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(failed("open a layer"))
}

/// Mounts an overlay from a thread without `CAP_SYS_RESOURCE`.
///
/// The kernel writes the layers with the privileges of the thread that mounted the overlay. With that capability no quota would apply.
pub(super) fn under_quota<T: Send>(
    mount: impl FnOnce() -> Result<T, OverlayError> + Send,
) -> Result<T, OverlayError> {
    let mounted = std::thread::scope(|scope| {
        let thread = scope.spawn(|| -> Result<T, OverlayError> {
            let mut sets = capabilities(None).map_err(failed("see the privileges of a thread"))?;
            sets.effective.remove(CapabilitySet::SYS_RESOURCE);
            set_capabilities(None, sets).map_err(failed("give up a privilege"))?;
            mount()
        });
        thread.join()
    });
    mounted.unwrap_or_else(|_| Err(OverlayError::Kernel("the mounting thread failed".to_owned())))
}

fn make(beneath: BorrowedFd<'_>, layers: BorrowedFd<'_>) -> Result<OwnedFd, OverlayError> {
    // By handle, because a path could contain characters that the kernel takes for the end of an option.
    let at = |handle: BorrowedFd<'_>, name: &str| format!("/proc/self/fd/{}{name}", handle.as_raw_fd());
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).map_err(|errno| match errno {
        Errno::NODEV => OverlayError::Kernel("it has no overlay file system".to_owned()),
        Errno::PERM => OverlayError::Kernel("the daemon has to be root for that".to_owned()),
        errno => failed("prepare an overlay")(errno).into(),
    })?;
    let configure = || -> Result<OwnedFd, Errno> {
        fsconfig_set_string(context.as_fd(), "source", "cofferdam")?;
        fsconfig_set_string(context.as_fd(), "lowerdir", at(beneath, ""))?;
        fsconfig_set_string(context.as_fd(), "upperdir", at(layers, &format!("/{UPPER}")))?;
        fsconfig_set_string(context.as_fd(), "workdir", at(layers, &format!("/{WORK}")))?;
        fsconfig_set_flag(context.as_fd(), "userxattr")?;
        for (option, value) in [
            ("redirect_dir", "nofollow"),
            ("metacopy", "off"),
            ("index", "off"),
            ("nfs_export", "off"),
            ("xino", "off"),
        ] {
            fsconfig_set_string(context.as_fd(), option, value)?;
        }
        fsconfig_create(context.as_fd())?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
    };
    configure().map_err(|errno| OverlayError::Kernel(explained(context.as_fd(), errno)))
}

/// Returns the text of an error, with the messages that many kernels write to the context's log.
fn explained(context: BorrowedFd<'_>, errno: Errno) -> String {
    let mut words = io::Error::from(errno).to_string();
    let mut line = [0; 512];
    while let Ok(length @ 1..) = rustix::io::read(context, &mut line) {
        words.push_str("; ");
        words.push_str(String::from_utf8_lossy(&line[..length]).trim());
    }
    words
}
