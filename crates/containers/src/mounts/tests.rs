//! Real mounts, made and taken away again.

use super::*;
use crate::user_map::{HostUser, UserMap};
use rustix::mount::UnmountFlags;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

const NEEDS_ROOT: &str = "these tests mount: run them as root";

fn opened(path: &Path) -> OwnedFd {
    rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

struct Fixture {
    _dir: tempfile::TempDir,
    source: PathBuf,
    slots: PathBuf,
}

/// A source directory owned by 4242:4343 with one file in it, and a directory for slots.
fn fixture() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let (source, slots) = (dir.path().join("source"), dir.path().join("slots"));
    fs::create_dir(&source).unwrap();
    fs::create_dir(&slots).unwrap();
    fs::write(source.join("file"), "content").unwrap();
    for path in [&source, &source.join("file")] {
        std::os::unix::fs::chown(path, Some(4242), Some(4343)).expect(NEEDS_ROOT);
    }
    Fixture { _dir: dir, source, slots }
}

const MAP: IdMap = IdMap { disk_uid: 4242, disk_gid: 4343, seen_uid: 1001, seen_gid: 1001 };
const ROOT: HostUser = HostUser { uid: 0, gid: 0 };
const OWNER: HostUser = HostUser { uid: 4242, gid: 4343 };
const SEEN: HostUser = HostUser { uid: 1001, gid: 1001 };

#[test]
fn the_owner_on_disk_appears_as_the_run_s_user() {
    let fixture = fixture();
    let path = fixture.slots.join("w");
    let slot = MountSlot::prepare(opened(&fixture.source).as_fd(), &path, Some(MAP), MountMode::ReadWrite)
        .expect(NEEDS_ROOT);
    let seen = fs::metadata(slot.path().join("file")).unwrap();
    assert_eq!((seen.uid(), seen.gid()), (1001, 1001));
    let on_disk = fs::metadata(fixture.source.join("file")).unwrap();
    assert_eq!((on_disk.uid(), on_disk.gid()), (4242, 4343));
    assert_eq!(leftover_slots(&fixture.slots).unwrap(), [fs::canonicalize(&path).unwrap()]);
    slot.release().unwrap();
    assert!(!path.exists());
    assert_eq!(fs::read_to_string(fixture.source.join("file")).unwrap(), "content");
}

#[test]
fn a_slot_is_nosuid_nodev_and_read_only_when_asked() {
    let fixture = fixture();
    let path = fixture.slots.join("p");
    let slot = MountSlot::prepare(opened(&fixture.source).as_fd(), &path, Some(MAP), MountMode::ReadOnly)
        .expect(NEEDS_ROOT);
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let fixture = format!(" {} ", fs::canonicalize(&path).unwrap().display());
    let (_, rest) = table.lines().find_map(|line| line.split_once(&fixture)).unwrap();
    let options = rest.split(' ').next().unwrap();
    for option in ["ro", "nosuid", "nodev"] {
        assert!(options.split(',').any(|found| found == option), "{option} is not in {options}");
    }
    let error = fs::write(slot.path().join("new"), "").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ReadOnlyFilesystem);
}

#[test]
fn dropping_removes_mount_and_directory() {
    let fixture = fixture();
    let path = fixture.slots.join("w");
    drop(
        MountSlot::prepare(opened(&fixture.source).as_fd(), &path, None, MountMode::ReadWrite)
            .expect(NEEDS_ROOT),
    );
    assert!(!path.exists());
    assert_eq!(leftover_slots(&fixture.slots).unwrap(), Vec::<PathBuf>::new());
}

#[test]
fn a_slot_is_never_made_over_something() {
    let fixture = fixture();
    let path = fixture.slots.join("w");
    fs::create_dir(&path).unwrap();
    let error =
        MountSlot::prepare(opened(&fixture.source).as_fd(), &path, None, MountMode::ReadWrite).unwrap_err();
    assert_eq!(error.to_string(), "cannot make the slot's directory");
    assert!(path.exists(), "what was there is left alone");
}

#[test]
fn slots_of_a_killed_daemon_are_cleaned() {
    let fixture = fixture();
    for name in ["a", "b c"] {
        let path = fixture.slots.join(name);
        let slot =
            MountSlot::prepare(opened(&fixture.source).as_fd(), &path, Some(MAP), MountMode::ReadWrite)
                .expect(NEEDS_ROOT);
        std::mem::forget(slot);
    }
    fs::create_dir(fixture.slots.join("empty")).unwrap();
    fs::write(fixture.slots.join("file"), "").unwrap();
    assert_eq!(clean_slots(&fixture.slots).unwrap(), 2);
    let names: Vec<_> =
        fs::read_dir(&fixture.slots).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["file"]);
    assert_eq!(fs::read_to_string(fixture.source.join("file")).unwrap(), "content");
}

#[test]
fn probing_leaves_nothing_and_proc_cannot_be_mapped() {
    let fixture = fixture();
    assert!(idmap_supported(opened(&fixture.source).as_fd()).expect(NEEDS_ROOT));
    assert!(!idmap_supported(opened(Path::new("/proc")).as_fd()).unwrap());
    let error = MountSlot::prepare(
        opened(Path::new("/proc")).as_fd(),
        &fixture.slots.join("x"),
        Some(MAP),
        MountMode::ReadOnly,
    )
    .unwrap_err();
    assert!(matches!(error, MountError::Unsupported(_)), "{error:?}");
    assert_eq!(fs::read_dir(&fixture.slots).unwrap().count(), 0);
}

#[test]
fn files_of_unmapped_users_have_the_overflow_owner() {
    let fixture = fixture();
    let unmapped = fixture.source.join("strange");
    fs::write(&unmapped, "").unwrap();
    fs::set_permissions(&unmapped, fs::Permissions::from_mode(0o600)).unwrap();
    let path = fixture.slots.join("w");
    let slot = MountSlot::prepare(opened(&fixture.source).as_fd(), &path, Some(MAP), MountMode::ReadWrite)
        .expect(NEEDS_ROOT);
    assert_eq!(fs::metadata(slot.path().join("strange")).unwrap().uid(), 65534);
}

/// A daemon in a container has its own mount namespace; its state directory is mounted `rshared`.
#[test]
fn a_slot_made_in_another_mount_namespace_reaches_the_host_through_a_shared_directory() {
    let fixture = fixture();
    rustix::mount::mount_bind(&fixture.slots, &fixture.slots).expect(NEEDS_ROOT);
    rustix::mount::mount_change(&fixture.slots, rustix::mount::MountPropagationFlags::SHARED).unwrap();
    let (source, path) = (fixture.source.clone(), fixture.slots.join("w"));
    let (made, is_made) = std::sync::mpsc::channel();
    let (seen, is_seen) = std::sync::mpsc::channel();
    let daemon = std::thread::spawn({
        let path = path.clone();
        move || {
            #[allow(unsafe_code)] // No library offers it for one thread as a safe call.
            // SAFETY: takes a flag and no pointer; only this thread gets the new namespace.
            let result = unsafe { libc::unshare(libc::CLONE_NEWNS) };
            assert_eq!(result, 0, "{NEEDS_ROOT}");
            let slot =
                MountSlot::prepare(opened(&source).as_fd(), &path, Some(MAP), MountMode::ReadWrite).unwrap();
            made.send(()).unwrap();
            is_seen.recv().unwrap();
            slot.release().unwrap();
        }
    });
    is_made.recv().unwrap();
    let owner = fs::metadata(path.join("file")).map(|meta| meta.uid());
    seen.send(()).unwrap();
    daemon.join().unwrap();
    let gone = !path.exists();
    rustix::mount::unmount(&fixture.slots, UnmountFlags::DETACH).unwrap();
    assert_eq!(owner.unwrap(), 1001);
    assert!(gone);
}

/// The same, of what is mounted when the container runs already.
#[test]
fn mounts_in_a_slot_of_another_namespace_propagate_to_host_binds() {
    use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
    let fixture = fixture();
    mount_bind(&fixture.slots, &fixture.slots).expect(NEEDS_ROOT);
    mount_change(&fixture.slots, MountPropagationFlags::SHARED).unwrap();
    let bound = tempfile::tempdir().unwrap();
    let (source, path) = (fixture.source.clone(), fixture.slots.join("w"));
    let (told, tell) = (std::sync::mpsc::sync_channel(0), std::sync::mpsc::sync_channel::<()>(0));
    let daemon = std::thread::spawn({
        let (path, told, tell) = (path.clone(), told.0, tell.1);
        move || {
            #[allow(unsafe_code)] // No library offers it for one thread as a safe call.
            // SAFETY: takes a flag and no pointer; only this thread gets the new namespace.
            let result = unsafe { libc::unshare(libc::CLONE_NEWNS) };
            assert_eq!(result, 0, "{NEEDS_ROOT}");
            let mut slot = MountSlot::shared(&path).unwrap();
            told.send(()).unwrap();
            tell.recv().unwrap();
            let map = shared::OwnerMap::new(MAP).unwrap();
            slot.cover(opened(&source).as_fd(), Some(&map), MountMode::ReadOnly).unwrap();
            told.send(()).unwrap();
            tell.recv().unwrap();
            slot.release().unwrap();
        }
    });
    told.1.recv().unwrap();
    mount_bind(&path, bound.path()).unwrap();
    mount_change(bound.path(), MountPropagationFlags::DOWNSTREAM).unwrap();
    tell.0.send(()).unwrap();
    told.1.recv().unwrap();
    let owner = fs::metadata(bound.path().join("file")).map(|meta| meta.uid());
    let written = fs::write(bound.path().join("new"), "");
    tell.0.send(()).unwrap();
    daemon.join().unwrap();
    let left = fs::read_dir(bound.path()).unwrap().count();
    rustix::mount::unmount(bound.path(), UnmountFlags::DETACH).unwrap();
    rustix::mount::unmount(&fixture.slots, UnmountFlags::DETACH).unwrap();
    assert_eq!(owner.unwrap(), 1001);
    assert_eq!(written.unwrap_err().kind(), io::ErrorKind::ReadOnlyFilesystem);
    assert_eq!(left, 0);
}

#[test]
fn two_ids_are_swapped_and_all_others_stay() {
    assert_eq!(exchanged(5, 5, &(0..0)), "0 0 5\n5 5 1\n6 6 4294967289\n");
    assert_eq!(exchanged(0, 1001, &(0..0)), "0 1001 1\n1 1 1000\n1001 0 1\n1002 1002 4294966293\n");
    assert_eq!(exchanged(1001, 1000, &(0..0)), "0 0 1000\n1000 1001 1\n1001 1000 1\n1002 1002 4294966293\n");
    for (one, other) in [(0, 0), (0, 1001), (4242, 1001), (u32::MAX - 1, 1001)] {
        let counts = exchanged(one, other, &(0..0));
        let sum: u64 =
            counts.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
        assert_eq!(sum, u64::from(u32::MAX), "{one} {other}");
    }
    // The one that is seen is among the hidden, and so may the one on disk be.
    let hidden = 100_000..165_536;
    assert_eq!(
        exchanged(4242, 100_000, &hidden),
        "0 0 4242\n4242 100000 1\n4243 4243 95757\n100000 4242 1\n165536 165536 4294801759\n"
    );
    assert_eq!(
        exchanged(101_001, 100_000, &hidden),
        "0 0 100000\n101001 100000 1\n165536 165536 4294801759\n"
    );
}

#[test]
fn an_overlay_of_a_mapped_root_refuses_files_of_other_users() {
    let fixture = fixture();
    let users = UserMap::of_engine("/srv/100000.100000").unwrap();
    let map = IdMap { seen_uid: 100_000, seen_gid: 100_000, ..MAP };
    let layers = layers(&fixture);
    let source = opened(&fixture.source);
    let overlay = overlay::mount_overlay(
        source.as_fd(),
        opened(&layers).as_fd(),
        &fixture.slots,
        Some(map),
        Some(users),
    )
    .expect(NEEDS_ROOT);
    let at = PathBuf::from(format!("/proc/self/fd/{}", overlay.as_raw_fd()));
    let file = at.join("file");
    assert_eq!(fs::metadata(&file).unwrap().uid(), 100_000);
    fs::write(&file, "changed").unwrap();
    for other in [100_001, 165_535] {
        let refused = std::os::unix::fs::chown(&file, Some(other), None).unwrap_err();
        assert!(matches!(refused.raw_os_error(), Some(libc::EINVAL | libc::EOVERFLOW)), "{refused}");
    }
    let on_disk = fs::metadata(layers.join("upper/file")).unwrap();
    assert_eq!((on_disk.uid(), on_disk.gid()), (4242, 4343));
}

#[test]
fn a_root_whose_image_is_the_users_on_disk_is_not_mapped() {
    let fixture = fixture();
    let (image, layers) = (image_layers(&fixture), layers(&fixture));
    let mapped = HostUser { uid: 100_000, gid: 100_000 };
    for layer in &image {
        for path in
            ["usr", "usr/lib", "usr/lib/a"].map(|path| layer.join(path)).iter().filter(|path| path.exists())
        {
            std::os::unix::fs::chown(path, Some(100_000), Some(100_000)).unwrap();
        }
    }
    let layer = opened(&layers);
    let slot =
        root::mount_root(&fixture.slots, &image, mapped, layer.as_fd(), OWNER, mapped).expect(NEEDS_ROOT);
    let at = slot.path().to_owned();
    let owner = |path: &str| fs::metadata(at.join(path)).unwrap().uid();
    assert_eq!((owner(""), owner("usr/lib/a"), owner("usr/lib/peer")), (100_000, 100_000, 77));
    // Packages have users of their own, who stay who they are on disk.
    fs::write(at.join("usr/lib/a"), "changed").unwrap();
    fs::write(at.join("usr/new"), "new").unwrap();
    std::os::unix::fs::chown(at.join("usr/new"), Some(100_042), Some(100_042)).unwrap();
    let on_disk = |path: &str| fs::metadata(layers.join(path)).unwrap().uid();
    assert_eq!((on_disk("upper/usr/lib/a"), on_disk("upper/usr/new")), (4242, 100_042));
}

/// Layers for an overlay of the fixture's source.
fn layers(fixture: &Fixture) -> PathBuf {
    let layers = fixture.source.with_file_name("layers");
    for name in ["upper", "work"] {
        fs::create_dir_all(layers.join(name)).unwrap();
    }
    std::os::unix::fs::chown(layers.join("upper"), Some(4242), Some(4343)).unwrap();
    layers
}

/// On each kernel, and not only on those that refuse to copy the mount in place.
#[test]
fn a_detached_mount_is_copied_and_can_be_copied_again() {
    let fixture = fixture();
    let mount = clone_of(opened(&fixture.source).as_fd()).expect(NEEDS_ROOT);
    for name in ["first", "second"] {
        let copy = copies::copy_detached(mount.as_fd()).unwrap();
        attach_to(copy.as_fd(), opened(&fixture.slots).as_fd()).unwrap();
        assert_eq!(fs::read_to_string(fixture.slots.join("file")).unwrap(), "content", "{name}");
        rustix::mount::unmount(&fixture.slots, UnmountFlags::DETACH).unwrap();
        let kept = rustix::fs::openat(&mount, "file", OFlags::RDONLY, Mode::empty());
        assert!(kept.is_ok(), "{name}: the descriptor has the mount");
    }
    // The mount of a directory is attached, so that nothing is moved.
    copies::copy_detached(opened(&fixture.source).as_fd()).unwrap_err();
    assert!(fixture.source.join("file").exists());
}

#[test]
fn an_overlay_shows_the_run_s_user_and_keeps_the_owner_on_disk() {
    let fixture = fixture();
    let layers = layers(&fixture);
    fs::write(fixture.source.join("roots"), "x").unwrap();
    overlay::check_overlay_layers(opened(&layers).as_fd()).unwrap();
    let (source, upper) = (opened(&fixture.source), opened(&layers));
    let mount = overlay::mount_overlay(source.as_fd(), upper.as_fd(), &fixture.slots, Some(MAP), None)
        .expect(NEEDS_ROOT);
    assert_eq!(leftover_slots(&fixture.slots).unwrap(), Vec::<PathBuf>::new());
    let slot = MountSlot::prepare(mount.as_fd(), &fixture.slots.join("w"), None, MountMode::ReadWrite)
        .expect(NEEDS_ROOT);
    let at = slot.path();
    let owner = |path: &Path| {
        let seen = fs::symlink_metadata(path).unwrap();
        (seen.uid(), seen.gid())
    };
    assert_eq!([owner(at), owner(&at.join("file"))], [(1001, 1001); 2]);
    assert_eq!(owner(&at.join("roots")), (0, 0));

    fs::write(at.join("new"), "").unwrap();
    std::os::unix::fs::chown(at.join("new"), Some(1001), Some(1001)).unwrap();
    fs::write(at.join("file"), "changed").unwrap();
    fs::remove_file(at.join("roots")).unwrap();
    for changed in ["new", "file"] {
        assert_eq!(owner(&layers.join("upper").join(changed)), (4242, 4343), "{changed}");
    }
    assert_eq!(fs::read_to_string(fixture.source.join("file")).unwrap(), "content");
    assert!(fixture.source.join("roots").exists() && !fixture.source.join("new").exists());
    slot.release().unwrap();
    drop(mount);

    // The same layers again, as after a restart.
    let again = overlay::mount_overlay(source.as_fd(), upper.as_fd(), &fixture.slots, Some(MAP), None)
        .expect(NEEDS_ROOT);
    let slot = MountSlot::prepare(again.as_fd(), &fixture.slots.join("w"), None, MountMode::ReadOnly)
        .expect(NEEDS_ROOT);
    assert_eq!(fs::read_to_string(slot.path().join("file")).unwrap(), "changed");
    assert!(!slot.path().join("roots").exists());
}

#[test]
fn marks_of_overlays_that_were_planted_beneath_lead_nowhere() {
    use rustix::fs::XattrFlags;
    let fixture = fixture();
    let layers = layers(&fixture);
    let secret = fixture.source.with_file_name("secret");
    fs::write(&secret, "secret").unwrap();
    fs::create_dir_all(fixture.source.join("dir/inner")).unwrap();
    for (path, mark, value) in [
        ("file", "user.overlay.redirect", "/../secret"),
        ("file", "user.overlay.metacopy", ""),
        ("dir", "user.overlay.redirect", "/.."),
        ("dir", "user.overlay.opaque", "y"),
        ("dir/inner", "trusted.overlay.redirect", "/.."),
        ("dir/inner", "trusted.overlay.opaque", "y"),
    ] {
        let path = fixture.source.join(path);
        rustix::fs::setxattr(&path, mark, value.as_bytes(), XattrFlags::empty()).unwrap();
    }
    let (source, upper) = (opened(&fixture.source), opened(&layers));
    let mount = overlay::mount_overlay(source.as_fd(), upper.as_fd(), &fixture.slots, Some(MAP), None)
        .expect(NEEDS_ROOT);
    let slot = MountSlot::prepare(mount.as_fd(), &fixture.slots.join("w"), None, MountMode::ReadWrite)
        .expect(NEEDS_ROOT);
    let at = slot.path();
    // The one that claims to be only metadata may be refused; it is never something else.
    if let Ok(content) = fs::read_to_string(at.join("file")) {
        assert_eq!(content, "content");
    }
    let names =
        |path: &Path| fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    assert_eq!(names(&at.join("dir")), ["inner"]);
    assert!(names(&at.join("dir/inner")).is_empty());
}

/// Layers of an image, topmost first, whose files belong to root, to somebody and to the run's uid.
fn image_layers(fixture: &Fixture) -> Vec<PathBuf> {
    use rustix::fs::{CWD, FileType, mknodat};
    let layers = ["top", "bottom"].map(|name| fixture.source.with_file_name(name));
    let [top, bottom] = &layers;
    for directory in ["usr/lib", "opt/gone"] {
        fs::create_dir_all(bottom.join(directory)).unwrap();
    }
    fs::create_dir_all(top.join("usr")).unwrap();
    fs::create_dir_all(top.join("opt/gone")).unwrap();
    fs::write(bottom.join("opt/gone/old"), "old").unwrap();
    rustix::fs::setxattr(
        top.join("opt/gone"),
        "trusted.overlay.opaque",
        b"y",
        rustix::fs::XattrFlags::empty(),
    )
    .expect(NEEDS_ROOT);
    for (path, uid) in [("usr/lib/a", 0), ("usr/lib/peer", 77), ("usr/lib/agent", 1001)] {
        fs::write(bottom.join(path), "of the image").unwrap();
        std::os::unix::fs::chown(bottom.join(path), Some(uid), Some(uid)).unwrap();
    }
    fs::write(bottom.join("usr/su"), "").unwrap();
    fs::set_permissions(bottom.join("usr/su"), fs::Permissions::from_mode(0o4755)).unwrap();
    let mode = Mode::from_raw_mode(0o666);
    mknodat(CWD, bottom.join("usr/zero"), FileType::CharacterDevice, mode, rustix::fs::makedev(1, 5))
        .unwrap();
    mknodat(CWD, top.join("usr/hidden"), FileType::CharacterDevice, mode, 0).unwrap();
    fs::write(bottom.join("usr/hidden"), "hidden").unwrap();
    layers.into()
}

#[test]
fn a_root_shows_roots_files_as_the_users_without_set_id_bits_and_devices() {
    let fixture = fixture();
    let (image, layers) = (image_layers(&fixture), layers(&fixture));
    let layer = opened(&layers);
    let mounted = root::mount_root(&fixture.slots, &image, ROOT, layer.as_fd(), OWNER, SEEN);
    let slot = mounted.expect(NEEDS_ROOT);
    let at = slot.path().to_owned();
    let owner = |path: &str| {
        let found = fs::metadata(at.join(path)).unwrap();
        (found.uid(), found.gid())
    };
    assert_eq!(owner("usr/lib"), (1001, 1001));
    assert_eq!(
        (owner("usr/lib/a"), owner("usr/lib/agent"), owner("usr/lib/peer")),
        ((1001, 1001), (0, 0), (77, 77))
    );
    assert!(!at.join("usr/hidden").exists(), "whiteouts of the image hold");
    assert_eq!(fs::read_dir(at.join("opt/gone")).unwrap().count(), 0, "and what covers a directory");
    let flags = rustix::fs::statvfs(&at).unwrap().f_flag;
    assert!(flags.contains(rustix::fs::StatVfsMountFlags::NOSUID | rustix::fs::StatVfsMountFlags::NODEV));
    assert_eq!(fs::read(at.join("usr/zero")).unwrap_err().kind(), io::ErrorKind::PermissionDenied);

    // What the user writes is the owner's on disk, and the image stays as it is.
    fs::write(at.join("usr/lib/a"), "changed").unwrap();
    fs::write(at.join("usr/new"), "new").unwrap();
    std::os::unix::fs::chown(at.join("usr/new"), Some(1001), Some(1001)).unwrap();
    for path in ["upper/usr/lib/a", "upper/usr/new"] {
        let on_disk = fs::metadata(layers.join(path)).unwrap();
        assert_eq!((on_disk.uid(), on_disk.gid()), (4242, 4343), "{path}");
    }
    assert_eq!(fs::read_to_string(image[1].join("usr/lib/a")).unwrap(), "of the image");
    assert_eq!(fs::metadata(image[1].join("usr/lib/a")).unwrap().uid(), 0);
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let own = table.lines().find(|line| line.contains(&*at.to_string_lossy())).unwrap();
    assert!(!own.contains("bottom") && !own.contains("lowerdir=/tmp"), "{own}");
    assert_eq!(
        leftover_slots(&fixture.slots).unwrap(),
        [fs::canonicalize(&at).unwrap()],
        "its layers are not attached"
    );
    slot.release().unwrap();
    assert!(!at.exists());
}

#[test]
fn a_root_needs_visible_layers() {
    let fixture = fixture();
    let layers = layers(&fixture);
    let layer = opened(&layers);
    let none = |image: &[PathBuf]| {
        let refused = root::mount_root(&fixture.slots, image, ROOT, layer.as_fd(), OWNER, SEEN);
        refused.unwrap_err().to_string()
    };
    assert!(none(&[]).contains("storage driver"));
    assert!(none(&[fixture.source.join("none")]).contains("does not see"));
    assert!(none(&[fixture.source.join("file")]).contains("does not see"));
    let many = vec![fixture.source.clone(); 300];
    assert!(none(&many).contains("more layers"));
    assert_eq!(fs::read_dir(&fixture.slots).unwrap().count(), 0);
}

/// Also beneath a shared mount, as the root is on hosts with systemd: there a slot has no more mounts than elsewhere.
#[test]
fn mounts_in_a_shared_slot_propagate_to_earlier_binds() {
    use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
    let fixture = fixture();
    mount_bind(&fixture.slots, &fixture.slots).expect(NEEDS_ROOT);
    mount_change(&fixture.slots, MountPropagationFlags::PRIVATE).unwrap();
    mount_change(&fixture.slots, MountPropagationFlags::SHARED).unwrap();
    let path = fixture.slots.join("w");
    let mut slot = MountSlot::shared(&path).expect(NEEDS_ROOT);
    let error = fs::write(path.join("new"), "").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ReadOnlyFilesystem);
    // As a container binds it.
    let bound = fixture.slots.join("bound");
    fs::create_dir(&bound).unwrap();
    mount_bind(&path, &bound).unwrap();
    mount_change(&bound, MountPropagationFlags::DOWNSTREAM).unwrap();
    assert_eq!(fs::read_dir(&bound).unwrap().count(), 0);

    fs::create_dir(fixture.source.join("logs")).unwrap();
    let map = shared::OwnerMap::new(MAP).unwrap();
    slot.cover(opened(&fixture.source).as_fd(), Some(&map), MountMode::ReadOnly).unwrap();
    let log = tempfile::tempdir().unwrap();
    fs::write(log.path().join("log"), "line").unwrap();
    slot.cover_within("logs", opened(log.path()).as_fd()).unwrap();
    let seen = fs::metadata(bound.join("file")).unwrap();
    assert_eq!((seen.uid(), seen.gid()), (1001, 1001));
    assert_eq!(fs::read_to_string(bound.join("logs/log")).unwrap(), "line");
    let flags = rustix::fs::statvfs(&bound).unwrap().f_flag;
    for flag in [
        rustix::fs::StatVfsMountFlags::RDONLY,
        rustix::fs::StatVfsMountFlags::NOSUID,
        rustix::fs::StatVfsMountFlags::NODEV,
    ] {
        assert!(flags.contains(flag), "{flag:?}");
    }
    assert!(slot.cover_within("none", opened(log.path()).as_fd()).is_err());

    // A later life of the program finds the two mounts, and nothing else will do.
    slot.leave();
    assert!(MountSlot::reattach(&path).unwrap().is_none());
    let again = MountSlot::reattach_covered(&path).unwrap().unwrap();
    again.release().unwrap();
    assert!(!path.exists());
    assert_eq!(fs::read_dir(&bound).unwrap().count(), 0, "it is gone there, too");
    assert_eq!(clean_slots(&fixture.slots).unwrap(), 1);
    rustix::mount::unmount(&fixture.slots, UnmountFlags::DETACH).unwrap();
}
