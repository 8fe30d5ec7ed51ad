//! The root of an image under a layer of the run's own: what a run with a writable root has in place of the engine's.
//!
//! ```text
//! layers of the image ─► idmapped, read-only ─┐
//!                                             ├─► overlay, nosuid, nodev ─► bound directory by directory
//! upper and work      ─► idmapped ────────────┘
//! ```
//!
//! The engine's own writable layer would do none of this: nothing bounds it, set-id files work in it, and all of it belongs
//! to root, whom a run hardly ever is. Here root's files appear as the run's user's, by the map of each layer, so that nothing
//! is copied or changed for it. Files of the run's uid in the image appear as root's in turn.
//!
//! Marks are `trusted.overlay.*`, as the engine has them in an image's layers; nobody in a container can set one. What an
//! image brought along does no more than in the engine's own mount: `redirect_dir=nofollow` and `metacopy=off`
//! keep a mark from leading a name to another place. `volatile`: the layer goes with its run, so that no `fsync` in it has to
//! reach the disk.

use std::ffi::CString;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MountFlags;

use super::overlay::{OverlayError, UPPER, WORK, open, under_quota};
use super::{Access, IdMap, MountError, MountSlot, Others, failed, mountinfo, user_namespace};
use crate::user_map::HostUser;

/// The slot in which a root is mounted.
const SLOT: &str = "root";
/// What the kernel takes of options, less what it needs itself.
const LONGEST_OPTIONS: usize = 4_000;

/// Mounts the root of an image in a slot below `slots`, for `user` to write to.
///
/// `image` has the directories of the image's layers, topmost first, as the engine names them. On disk their root is `image_root`.
/// `layer` is a directory of the daemon's with empty directories `upper` and `work`, whose files belong to `owner` on disk.
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
    // Where the owner is the run's user there is nothing to map, and no need for a file system that can.
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
            roots.as_ref().map(AsFd::as_fd),
            Access::ReadOnly,
        )?);
    }
    let owners = map(owner)?;
    let upper =
        MountSlot::attach(layer, &slots.join("layer"), owners.as_ref().map(AsFd::as_fd), Access::ReadWrite)?;
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
    // The overlay has clones of its own.
    for slot in lower.into_iter().chain([upper]) {
        slot.release()?;
    }
    Ok(root)
}

/// The root that an earlier life of this program has mounted below `slots`.
pub fn former_root(slots: &Path) -> Result<Option<MountSlot>, MountError> {
    MountSlot::former(&slots.join(SLOT))
}

/// Where the root of a run is mounted.
pub fn root_slot(slots: &Path) -> PathBuf {
    slots.join(SLOT)
}

/// Where the layers of a container's image are, topmost first, as the kernel has them of the root of its process `pid`. Empty: its
/// root is no overlay, or the engine gave names that only it can follow.
///
/// Left out is a layer of the engine's that goes with the container: mount points, and the file by which programs know that they are
/// in a container.
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

/// `lowerdir=A:B` or, since the kernel can, `lowerdir+=A,lowerdir+=B`.
fn layers_in(options: &str) -> Vec<PathBuf> {
    let given = options
        .split(',')
        .filter_map(|option| option.strip_prefix("lowerdir=").or_else(|| option.strip_prefix("lowerdir+=")));
    let layers: Vec<PathBuf> = given.flat_map(|layers| layers.split(':')).map(PathBuf::from).collect();
    // What is escaped is a name that no engine gives.
    let is_plain = |layer: &PathBuf| layer.is_absolute() && !layer.to_string_lossy().contains('\\');
    if layers.iter().all(is_plain) { layers } else { Vec::new() }
}

/// A directory of the engine's.
fn engines(directory: &Path) -> Result<OwnedFd, OverlayError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(directory, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::NOENT | Errno::ACCESS | Errno::NOTDIR => OverlayError::Layers(
            "the daemon does not see the engine's layers of images: both must have the same view of the engine's data",
        ),
        errno => failed("open a layer of the image")(errno).into(),
    })
}

/// By handle: a path could hold what the kernel takes for the end of an option, and would be shown to the run.
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
