//! Opens the directory that a client names by its path, for mounting.
//!
//! Trust boundary: the daemon runs with privileges and the client does not. A path is accepted only after the kernel has resolved it
//! beneath one of the operator's `workspace_roots` (`openat2`, `RESOLVE_BENEATH`). From then on the handle is used, not the path. No file
//! inside a workspace is ever opened here.

#![expect(clippy::disallowed_methods, reason = "the parent of directories that the daemon makes")]

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use executor::Directory;
use host_launch::Owner;
use identity::{NOBODY, Principal};
use operations::Reason;
use refusal::Refusal;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

use crate::deny_list::HarnessOnBind;

/// Purpose for which a directory is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A run's workspace, or the source of a clone. The directory must belong to the principal.
    Own,
    /// A directory that is shown read-only. Every user must be able to reach and read it.
    Show,
}

/// The operator's `workspace_roots`.
#[derive(Debug, Clone)]
pub struct Roots {
    allowed: Vec<PathBuf>,
    /// Setting for the use of these directories under profiles without a deny list.
    pub on_bind: HarnessOnBind,
    daemon_uid: u32,
}

impl Roots {
    pub fn new(allowed: Vec<PathBuf>, on_bind: HarnessOnBind) -> Self {
        Self { allowed, on_bind, daemon_uid: rustix::process::geteuid().as_raw() }
    }

    /// Opens `path` for `principal`. A refusal names the field `field`.
    pub fn open(
        &self,
        field: &'static str,
        path: &Path,
        purpose: Purpose,
        principal: &Principal,
    ) -> Result<Directory, Refusal> {
        let (root, handle) = self.beneath(field, path)?;
        let stat = rustix::fs::fstat(&handle)
            .map_err(|error| Refusal::internal("looking at a workspace", &error))?;
        if !FileType::from_raw_mode(stat.st_mode).is_dir() {
            return Err(Refusal::invalid(field, "is not a directory"));
        }
        let owner = Owner { uid: stat.st_uid, gid: stat.st_gid };
        let is_own = principal.uid == owner.uid && principal.uid != NOBODY;
        let trusted = principal.uid == 0 || principal.uid == self.daemon_uid || is_own;
        if trusted {
            return Ok(Directory { handle, path: path.to_owned(), owner, is_mapped: false });
        }
        let shown =
            purpose == Purpose::Show && stat.st_mode & 0o005 == 0o005 && is_open_to_all(&handle, root);
        if !shown {
            return Err(Refusal::new(
                Reason::PermissionDenied,
                format!("{field}: the directory belongs to another user than {}", principal.name),
            ));
        }
        let owner = Owner { uid: principal.uid, gid: principal.gid };
        Ok(Directory { handle, path: path.to_owned(), owner, is_mapped: false })
    }
}

impl Roots {
    /// Opens an earlier run's workspace again, for the daemon itself. Returns `None` if the directory no longer exists.
    pub fn reopen(&self, path: &Path) -> Option<OwnedFd> {
        let (root, rest) =
            self.allowed.iter().find_map(|root| Some((root, path.strip_prefix(root).ok()?)))?;
        let handle = open_beneath(root, rest).ok()?;
        let stat = rustix::fs::fstat(&handle).ok()?;
        FileType::from_raw_mode(stat.st_mode).is_dir().then_some(handle)
    }
}

impl Roots {
    /// Opens the directory that a run was made on, for principals that may use that run.
    pub fn open_again(&self, field: &'static str, path: &Path) -> Result<OwnedFd, Refusal> {
        self.beneath(field, path).map(|(_, handle)| handle)
    }

    fn beneath(&self, field: &'static str, path: &Path) -> Result<(&Path, OwnedFd), Refusal> {
        let beneath = self.allowed.iter().find_map(|root| Some((root, path.strip_prefix(root).ok()?)));
        let Some((root, rest)) = beneath else { return Err(outside(field)) };
        let handle = open_beneath(root, rest).map_err(|error| match error {
            Errno::NOENT => Refusal::new(Reason::NotFound, format!("{field}: there is no such directory")),
            Errno::NOTDIR => Refusal::invalid(field, "is not a directory"),
            Errno::XDEV | Errno::LOOP => outside(field),
            error => Refusal::invalid(field, format!("cannot be opened: {error}")),
        })?;
        Ok((root, handle))
    }
}

/// Returns true if every user may pass from `root` down to `directory`. The daemon itself passed with its privileges.
fn is_open_to_all(directory: &OwnedFd, root: &Path) -> bool {
    let above = || -> Result<bool, Errno> {
        let id = |stat: &Stat| (stat.st_dev, stat.st_ino);
        let top = id(&rustix::fs::stat(root)?);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut below = id(&rustix::fs::fstat(directory)?);
        let mut at = rustix::fs::openat(directory, ".", flags, Mode::empty())?;
        while below != top {
            at = rustix::fs::openat(&at, "..", flags, Mode::empty())?;
            let stat = rustix::fs::fstat(&at)?;
            // The directory was moved out of the root, or is closed to other users.
            if id(&stat) == below || (stat.st_mode & 0o001 == 0 && id(&stat) != top) {
                return Ok(false);
            }
            below = id(&stat);
        }
        Ok(true)
    };
    above().unwrap_or(false)
}

fn outside(field: &'static str) -> Refusal {
    Refusal::new(
        Reason::SandboxViolation,
        format!("{field}: is not below one of the daemon's workspace_roots; the operator sets them in its configuration"),
    )
    .with("field", field)
}

fn open_beneath(root: &Path, rest: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(root, flags, Mode::empty())?;
    if rest.as_os_str().is_empty() {
        return Ok(root);
    }
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    // EAGAIN means that a file was renamed during the lookup (openat2(2)). A few tries are enough on an honest host.
    let mut tries = 0;
    loop {
        match rustix::fs::openat2(&root, rest, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN) if tries < 16 => tries += 1,
            result => return result,
        }
    }
}

/// Makes a directory for `owner` with mode 0700. Its parent must be one of the daemon's directories.
pub fn make(path: &Path, owner: Owner) -> io::Result<Directory> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    };
    std::fs::create_dir_all(parent)?;
    rustix::fs::mkdir(path, Mode::RWXU)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let parent = rustix::fs::open(parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let handle = rustix::fs::openat(&parent, name, flags, Mode::empty())?;
    let current = rustix::fs::fstat(&handle)?;
    if (current.st_uid, current.st_gid) != (owner.uid, owner.gid) {
        rustix::fs::chownat(
            handle.as_fd(),
            "",
            Some(Uid::from_raw(owner.uid)),
            Some(Gid::from_raw(owner.gid)),
            rustix::fs::AtFlags::EMPTY_PATH,
        )?;
    }
    Ok(Directory { handle, path: path.to_owned(), owner, is_mapped: false })
}

/// Opens a directory that the daemon made. It may have another owner by now, but it is never a link.
pub fn open_own(path: &Path) -> io::Result<Directory> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = rustix::fs::open(path, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&handle)?;
    let owner = Owner { uid: stat.st_uid, gid: stat.st_gid };
    Ok(Directory { handle, path: path.to_owned(), owner, is_mapped: false })
}

/// Returns the owner of files that the daemon makes for `principal`.
///
/// That is the principal, or the default user if the principal is root or no user of this host. So an agent's files never belong to root by
/// default.
pub fn owner_for(principal: &Principal) -> Owner {
    let daemon = rustix::process::geteuid();
    if !daemon.is_root() {
        return Owner { uid: daemon.as_raw(), gid: rustix::process::getegid().as_raw() };
    }
    match principal.uid {
        0 | NOBODY => default_owner(),
        uid => Owner { uid, gid: principal.gid },
    }
}

/// Returns the owner of what the daemon makes for root, and for principals that are no users of this host.
pub fn default_owner() -> Owner {
    let nobody = containers::RunUser::DEFAULT;
    Owner { uid: nobody.uid(), gid: nobody.gid() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};
    use std::path::PathBuf;

    use identity::Principal;
    use operations::Reason;

    use crate::deny_list::HarnessOnBind;

    use super::{Owner, Purpose, Roots, make, owner_for};

    fn principal(uid: u32) -> Principal {
        Principal {
            name: format!("uid:{uid}"),
            uid,
            gid: uid,
            roles: identity::Roles::all(),
            ..Principal::anonymous()
        }
    }

    fn root(path: &std::path::Path) -> Roots {
        Roots::new(vec![path.to_owned()], HarnessOnBind::Deny)
    }

    #[test]
    fn only_directories_beneath_a_root_are_opened() {
        let tree = tempfile::tempdir().unwrap();
        let inside = tree.path().join("roots");
        std::fs::create_dir_all(inside.join("a/b")).unwrap();
        std::fs::create_dir(tree.path().join("secret")).unwrap();
        std::fs::write(inside.join("file"), "").unwrap();
        symlink("../secret", inside.join("out")).unwrap();
        symlink("/", inside.join("slash")).unwrap();
        symlink("a/b", inside.join("in")).unwrap();
        let roots = root(&inside);
        let me = principal(rustix::process::geteuid().as_raw());
        let open = |path: PathBuf| {
            roots.open("workspace", &path, Purpose::Own, &me).map_err(|refusal| refusal.reason)
        };

        assert!(open(inside.join("a/b")).is_ok());
        assert!(open(inside.clone()).is_ok());
        assert!(open(inside.join("in")).is_ok());
        for outside in ["out", "out/x", "slash", "slash/etc", "../secret", "a/../../secret"] {
            let refused = open(inside.join(outside)).unwrap_err();
            assert!(
                matches!(refused, Reason::SandboxViolation | Reason::InvalidArgument),
                "{outside}: {refused}"
            );
        }
        assert_eq!(open(tree.path().join("secret")).unwrap_err(), Reason::SandboxViolation);
        assert_eq!(open(inside.join("none")).unwrap_err(), Reason::NotFound);
        assert_eq!(open(inside.join("file")).unwrap_err(), Reason::InvalidArgument);
        assert_eq!(open("relative".into()).unwrap_err(), Reason::SandboxViolation);
    }

    #[test]
    fn another_users_directory_is_not_a_workspace() {
        let tree = tempfile::tempdir().unwrap();
        let roots =
            Roots { daemon_uid: u32::MAX, ..Roots::new(vec![tree.path().to_owned()], HarnessOnBind::Deny) };
        let other_user = principal(54_321);
        let refused = roots.open("workspace", tree.path(), Purpose::Own, &other_user).unwrap_err();
        assert_eq!(refused.reason, Reason::PermissionDenied);
        assert!(roots.open("workspace", tree.path(), Purpose::Own, &principal(0)).is_ok());
    }

    #[test]
    fn package_is_readable_by_all_and_not_read_as_its_owner() {
        use std::os::unix::fs::PermissionsExt as _;
        let tree = tempfile::tempdir().unwrap();
        let (home, public) = (tree.path().join("home"), tree.path().join("home/public"));
        std::fs::create_dir_all(public.join("deep")).unwrap();
        let mode = |path: &std::path::Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(&public, 0o755);
        mode(&public.join("deep"), 0o755);
        let roots =
            Roots { daemon_uid: u32::MAX, ..Roots::new(vec![tree.path().to_owned()], HarnessOnBind::Deny) };
        let other_user = principal(54_321);
        let open = |purpose| roots.open("pkg_path", &public.join("deep"), purpose, &other_user);

        mode(&home, 0o700);
        assert_eq!(open(Purpose::Show).unwrap_err().reason, Reason::PermissionDenied);
        mode(&home, 0o711);
        assert_eq!(open(Purpose::Show).unwrap().owner, Owner { uid: 54_321, gid: 54_321 });
        assert_eq!(open(Purpose::Own).unwrap_err().reason, Reason::PermissionDenied);
        mode(&public.join("deep"), 0o750);
        assert_eq!(open(Purpose::Show).unwrap_err().reason, Reason::PermissionDenied);
    }

    #[test]
    fn created_directories_do_not_belong_to_root() {
        let tree = tempfile::tempdir().unwrap();
        let owner = owner_for(&principal(0));
        if rustix::process::geteuid().is_root() {
            assert_eq!(owner, Owner { uid: 1001, gid: 1001 });
            assert_eq!(owner_for(&principal(77)), Owner { uid: 77, gid: 77 });
        }
        let made = make(&tree.path().join("x/y"), owner).unwrap();
        let metadata = std::fs::metadata(&made.path).unwrap();
        assert_eq!((metadata.uid(), metadata.gid(), metadata.mode() & 0o7777), (owner.uid, owner.gid, 0o700));
        assert!(make(&tree.path().join("x/y"), owner).is_err(), "an existing directory is not taken over");
    }
}
