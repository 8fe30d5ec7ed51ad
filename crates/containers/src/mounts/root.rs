//! The root of an image under a layer that belongs to the run. It replaces the engine's root for runs with a writable root.
//!
//! ```text
//! layers of the image ─► idmapped, read-only ─┐
//!                                             ├─► overlay, nosuid, nodev ─► bound directory by directory
//! upper and work      ─► idmapped ────────────┘
//! ```
//!
//! The engine's writable layer would not be suitable: it has no size limit, set-id files work in it, and all of it belongs to root, as
//! which a run hardly ever runs. Here root's files appear as the run's user's through the map of each layer, so that no file is copied or
//! changed for it. Files of the run's uid in the image appear as root's in turn.
//!
//! Overlay marks are `trusted.overlay.*`, as in the engine's layers of an image; no process in a container can set one. Marks that an image
//! contains have the same effect as in the engine's own mount: `redirect_dir=nofollow` and `metacopy=off` keep a mark from redirecting a
//! name. `volatile`: the layer is removed with its run, so no `fsync` in it has to reach the disk.

use std::ffi::CString;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use jail::MountMode;
use leftovers::mountinfo;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MountFlags;

use super::overlay::{OverlayError, UPPER, WORK, open, under_quota};
use super::{IdMap, MountError, MountSlot, Others, failed, user_namespace};
use crate::user_map::HostUser;

/// Name of the slot on which a root is mounted.
const SLOT: &str = "root";
/// Longest option string that the kernel accepts, less the part that it needs itself.
const LONGEST_OPTIONS: usize = 4_000;

/// Mounts the root of an image on a slot below `slots`, writable for `user`.
///
/// `image` contains the directories of the image's layers, topmost first, as the engine names them. On disk their files belong to
/// `image_root`. `layer` is a directory of the daemon with empty directories `upper` and `work`, whose files belong to `owner` on disk.
pub fn mount_root(
    slots: &Path,
    image: &[PathBuf],
    image_root: HostUser,
    layer: BorrowedFd<'_>,
    owner: HostUser,
    user: HostUser,
) -> Result<MountSlot, OverlayError> {
    if image.is_empty() {
        return Err(OverlayError::Layers(
            "the engine does not show where the layers of its images are: its storage driver must be an overlay",
        ));
    }
    // If the owner is the run's user, no map is needed, and no file system that supports one.
    let map = |disk: HostUser| {
        let map = IdMap { disk_uid: disk.uid, disk_gid: disk.gid, seen_uid: user.uid, seen_gid: user.gid };
        (disk != user).then(|| user_namespace(map, Others::Themselves)).transpose()
    };
    let roots = map(image_root)?;
    let mut lower = Vec::new();
    for (number, directory) in image.iter().enumerate() {
        let source = engines(directory)?;
        let slot = slots.join(format!("image-{number}"));
        lower.push(MountSlot::attach(
            source.as_fd(),
            &slot,
            roots.as_deref().map(AsFd::as_fd),
            MountMode::ReadOnly,
        )?);
    }
    let owners = map(owner)?;
    let upper = MountSlot::attach(
        layer,
        &slots.join("layer"),
        owners.as_deref().map(AsFd::as_fd),
        MountMode::ReadWrite,
    )?;
    let handles: Vec<OwnedFd> =
        lower.iter().map(|slot| open(slot.path())).collect::<Result<_, MountError>>()?;
    let changes = open(upper.path())?;
    let options = options(&handles, changes.as_fd())?;
    let mut root = MountSlot::empty(&slots.join(SLOT))?;
    let place = root.path.clone();
    under_quota(move || {
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount("cofferdam", &place, "overlay", flags, options.as_c_str()).map_err(|errno| {
            match errno {
                Errno::NODEV => OverlayError::Kernel("it has no overlay file system".to_owned()),
                errno => OverlayError::Kernel(io::Error::from(errno).to_string()),
            }
        })
    })?;
    root.mounts = 1;
    drop((handles, changes));
    // The overlay holds its own clones.
    for slot in lower.into_iter().chain([upper]) {
        slot.release()?;
    }
    Ok(root)
}

/// Returns the root that an earlier instance of this daemon mounted below `slots`.
pub fn reattach_root(slots: &Path) -> Result<Option<MountSlot>, MountError> {
    MountSlot::reattach(&slots.join(SLOT))
}

/// Returns the path on which the root of a run is mounted.
pub fn root_slot(slots: &Path) -> PathBuf {
    slots.join(SLOT)
}

/// Returns the layers of a container's image, topmost first, as the kernel has them for the root of its process `pid`.
///
/// Empty if the root is no overlay, or if the engine gave relative or escaped names. The layer that the engine removes with the container
/// is left out. It has the mount points, and the file by which programs recognise that they are in a container.
pub fn root_layers(pid: u32) -> io::Result<Vec<PathBuf>> {
    let table = fs::read(format!("/proc/{pid}/mountinfo"))?;
    let root = mountinfo::entries(&table).find(|entry| entry.mount_point == Path::new("/"));
    let root = root.filter(|entry| entry.file_system == "overlay");
    let mut layers = root.map_or_else(Vec::new, |entry| layers_in(&entry.super_options));
    if layers.first().is_some_and(|top| fs::symlink_metadata(top.join(".dockerenv")).is_ok()) {
        layers.remove(0);
    }
    Ok(layers)
}

/// Parses `lowerdir=A:B`, or the `lowerdir+=A,lowerdir+=B` of newer kernels.
fn layers_in(options: &str) -> Vec<PathBuf> {
    let given = options
        .split(',')
        .filter_map(|option| option.strip_prefix("lowerdir=").or_else(|| option.strip_prefix("lowerdir+=")));
    let layers: Vec<PathBuf> = given.flat_map(|layers| layers.split(':')).map(PathBuf::from).collect();
    // Engines give no names that need escapes.
    let is_plain = |layer: &PathBuf| layer.is_absolute() && !layer.to_string_lossy().contains('\\');
    if layers.iter().all(is_plain) { layers } else { Vec::new() }
}

/// Opens a directory of the engine.
fn engines(directory: &Path) -> Result<OwnedFd, OverlayError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(directory, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::NOENT | Errno::ACCESS | Errno::NOTDIR => OverlayError::Layers(
            "the daemon does not see the engine's layers of images: both must have the same view of the engine's data",
        ),
        errno => failed("open a layer of the image")(errno).into(),
    })
}

/// Returns the mount options, with all directories given by handle.
///
/// A path could contain characters that the kernel takes for the end of an option, and the run could read it.
fn options(image: &[OwnedFd], layer: BorrowedFd<'_>) -> Result<CString, OverlayError> {
    let mut text = "lowerdir=".to_owned();
    for (number, handle) in image.iter().enumerate() {
        let between = if number == 0 { "" } else { ":" };
        // Writing to a String cannot fail.
        let _ = write!(text, "{between}/proc/self/fd/{}", handle.as_raw_fd());
    }
    let layer = layer.as_raw_fd();
    let _ = write!(text, ",upperdir=/proc/self/fd/{layer}/{UPPER},workdir=/proc/self/fd/{layer}/{WORK}");
    text.push_str(",redirect_dir=nofollow,metacopy=off,index=off,nfs_export=off,xino=off,volatile");
    if text.len() > LONGEST_OPTIONS {
        return Err(OverlayError::Layers("the image has more layers than an overlay takes"));
    }
    CString::new(text).map_err(|_| OverlayError::Layers("the image's layers have no usable names"))
}

#[cfg(test)]
mod tests {
    use super::layers_in;

    #[test]
    fn layers_are_read_as_kernels_show_them() {
        let of =
            |options| layers_in(options).iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
        assert_eq!(of("rw,lowerdir=/a/1:/a/2,upperdir=/u,workdir=/w"), ["/a/1", "/a/2"]);
        assert_eq!(of("rw,lowerdir+=/a/1,lowerdir+=/a/2,upperdir=/u"), ["/a/1", "/a/2"]);
        for unknown in
            ["rw,upperdir=/u", "lowerdir=l/A:l/B", "lowerdir=/a:b", "lowerdir=/a\\134", "lowerdir=/a::/b"]
        {
            assert_eq!(of(unknown), [""; 0], "{unknown}");
        }
    }
}
