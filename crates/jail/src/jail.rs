//! The mounts of one run with their rules: the only way from a path to a file.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::access::Access;
use crate::dir::Dir;
use crate::error::{AccessError, OpenError, OpenErrorKind, RemoveError};
use crate::follow::follow;
use crate::guard::PathGuard;
use crate::meta::{FileKind, Metadata, RegularFile};
use crate::mount::Mount;
use crate::name::EntryName;
use crate::path::SandboxPath;
use crate::private::Private;
use crate::protect::Protection;
use crate::refusal::PathRefusal;
use crate::rel::RelPath;
use crate::remove::Removal;
use crate::root::Root;
use crate::write::{Parents, Target};
use text::excerpt;

/// The mounts of one run. A mount without a handle does not exist for the run.
#[derive(Debug)]
pub struct Jail {
    roots: Vec<Root>,
    protection: Protection,
    guard: Option<Arc<dyn PathGuard>>,
    private: Option<Arc<Private>>,
}

impl Jail {
    /// Makes a jail of these mounts. If a mount has two handles, the first counts.
    pub fn new(roots: impl IntoIterator<Item = Root>, protection: Protection) -> Self {
        Self { roots: roots.into_iter().collect(), protection, guard: None, private: None }
    }

    /// Adds a profile's rules for paths.
    #[must_use]
    pub fn with_guard(self, guard: Arc<dyn PathGuard>) -> Self {
        Self { guard: Some(guard), ..self }
    }

    /// Adds the container's files outside these mounts, with the container's root at `root`. For the container's own
    /// lane.
    pub fn with_container(mut self, root: &Path) -> io::Result<Self> {
        self.roots.push(Root::container(root, &self.roots)?);
        Ok(self)
    }

    /// Returns the path in the container that `path` resolves to, by the links in those of its directories that exist.
    ///
    /// The last name is not followed. For callers that write there, because writes never follow a link.
    pub fn settled(&self, path: &SandboxPath) -> Result<SandboxPath, AccessError> {
        let root = self.root(path.mount())?;
        let check =
            |rel: &RelPath| self.permitted(&SandboxPath::new(root.mount(), rel.clone()), Access::Write);
        check(path.rel())?;
        let Some((mut at, name)) = path.rel().split_last() else { return Ok(path.clone()) };
        let mut missing = vec![name];
        let mut rel = loop {
            match follow(root, &at, check, |rel| root.dir(rel).map(|_| rel.clone())) {
                Err(AccessError::Open(OpenError { kind: OpenErrorKind::NotFound, .. })) => {
                    let Some((above, name)) = at.split_last() else { return Ok(path.clone()) };
                    missing.push(name);
                    at = above;
                }
                found => break found?,
            }
        };
        let fault = || OpenError::new(path.excerpt(), OpenErrorKind::Inexpressible);
        for name in missing.iter().rev() {
            rel = rel.join(name).ok_or_else(fault)?;
        }
        check(&rel)?;
        Ok(SandboxPath::new(root.mount(), rel))
    }

    /// Adds the run's private directory, which has notes of files that are being written.
    #[must_use]
    pub fn with_private(self, private: Private) -> Self {
        Self { private: Some(Arc::new(private)), ..self }
    }

    /// Returns the run's private directory. A lane that only reads has none.
    pub fn private(&self) -> Option<&Private> {
        self.private.as_deref()
    }

    /// Returns the handle of a mount, for callers that need the descriptor itself.
    pub fn root(&self, mount: Mount) -> Result<&Root, PathRefusal> {
        self.roots.iter().find(|root| root.mount() == mount).ok_or(PathRefusal::NotMounted { mount })
    }

    /// Checks that the rules permit `access` to `path`, and opens nothing.
    ///
    /// For walkers that reach the path through a [`Dir`], and for paths among a command's arguments.
    pub fn check(&self, path: &SandboxPath, access: Access) -> Result<(), PathRefusal> {
        self.root(path.mount())?;
        self.permitted(path, access)
    }

    /// Checks a path against a profile's rules alone, for paths that are not opened here, such as those in a commit.
    pub fn check_rules(&self, path: &SandboxPath, access: Access) -> Result<(), PathRefusal> {
        self.guard.as_ref().map_or(Ok(()), |guard| guard.check(path, access))
    }

    /// Returns true if the profile has rules for paths.
    pub fn has_rules(&self) -> bool {
        self.guard.is_some()
    }

    /// Checks like [`Self::check`], but without the rules of a profile. For the clean-up after earlier calls.
    pub(crate) fn check_fixed(&self, path: &SandboxPath, access: Access) -> Result<(), PathRefusal> {
        self.root(path.mount())?;
        self.protection.check(path, access)
    }

    fn permitted(&self, path: &SandboxPath, access: Access) -> Result<(), PathRefusal> {
        self.protection.check(path, access)?;
        self.check_rules(path, access)
    }

    /// Returns a handle for reading at `path`, if that is permitted.
    pub fn readable<'j>(&'j self, path: &'j SandboxPath) -> Result<Readable<'j>, PathRefusal> {
        self.place(path, Access::Read)
    }

    /// Returns a handle for running a program from `path` or in it, if that is permitted.
    pub fn executable<'j>(&'j self, path: &'j SandboxPath) -> Result<Readable<'j>, PathRefusal> {
        self.place(path, Access::Execute)
    }

    /// Returns a handle for writing at `path`, if that is permitted.
    pub fn writable<'j>(&'j self, path: &'j SandboxPath) -> Result<Writable<'j>, PathRefusal> {
        let root = self.root(path.mount())?;
        self.permitted(path, Access::Write)?;
        Ok(Writable { root, rel: path.rel(), private: self.private.as_ref() })
    }

    fn place<'j>(&'j self, path: &'j SandboxPath, access: Access) -> Result<Readable<'j>, PathRefusal> {
        let root = self.root(path.mount())?;
        self.permitted(path, access)?;
        Ok(Readable { root, rel: path.rel(), jail: self, access })
    }
}

/// A path that may be read or run. Symlinks are followed inside the mount, and every name in the path is checked by the
/// same rules.
#[derive(Debug, Clone, Copy)]
pub struct Readable<'j> {
    root: &'j Root,
    rel: &'j RelPath,
    jail: &'j Jail,
    access: Access,
}

impl Readable<'_> {
    /// Opens a regular file. Any other kind is refused without waiting for it.
    pub fn open_file(&self) -> Result<RegularFile, AccessError> {
        self.follow(|rel| self.root.file(rel))
    }

    /// Opens a regular file like [`Readable::open_file`], for a caller that may not wait.
    ///
    /// This succeeds only if there is no link in the path and the kernel has the whole path cached. `None` does not
    /// mean that the file is missing.
    pub fn open_known_file(&self) -> Option<RegularFile> {
        self.root.known_file(self.rel)
    }

    pub fn open_dir(&self) -> Result<Dir, AccessError> {
        self.follow(|rel| self.root.dir(rel))
    }

    /// Opens a directory to walk it, and returns the path without links to it.
    ///
    /// A walker joins the names in the directory to that path for [`Jail::check`]. So a link to a directory does not
    /// bypass the rules for its content.
    pub fn open_dir_resolved(&self) -> Result<(SandboxPath, Dir), AccessError> {
        self.follow(|rel| Ok((SandboxPath::new(self.root.mount(), rel.clone()), self.root.dir(rel)?)))
    }

    /// Returns the metadata of the file at the end of all links.
    pub fn metadata(&self) -> Result<Metadata, AccessError> {
        self.follow(|rel| match self.root.look(rel)?.1 {
            meta if meta.kind == FileKind::Symlink => Err(OpenErrorKind::Symlink),
            meta => Ok(meta),
        })
    }

    fn follow<T>(&self, open: impl Fn(&RelPath) -> Result<T, OpenErrorKind>) -> Result<T, AccessError> {
        let check = |rel: &RelPath| {
            self.jail.permitted(&SandboxPath::new(self.root.mount(), rel.clone()), self.access)
        };
        follow(self.root, self.rel, check, open)
    }
}

/// A path that may be written. No symlink is followed in any component.
#[derive(Debug, Clone, Copy)]
pub struct Writable<'j> {
    root: &'j Root,
    rel: &'j RelPath,
    private: Option<&'j Arc<Private>>,
}

impl Writable<'_> {
    /// Opens the directory in which the file is or will be, and reads the file's metadata.
    pub fn target(&self, parents: Parents) -> Result<Target, OpenError> {
        Target::open(self.root, self.rel, parents, self.private.cloned())
    }

    /// Returns the identities (device, inode) of the directories in the path, as far as they exist, the mount's own
    /// first.
    ///
    /// The last one is the very directory that `target` has open.
    pub fn lineage(&self, target: Option<&Target>) -> Result<Vec<(u64, u64)>, OpenError> {
        let fault = |kind: OpenErrorKind| OpenError::new(excerpt(&self.root.describe(self.rel)), kind);
        let mut above = vec![RelPath::root()];
        if let Some((parent, _)) = self.rel.split_last() {
            for component in parent.components() {
                let name = EntryName::new(component.as_bytes());
                let next = name.and_then(|name| above.last().and_then(|at| at.join(&name)));
                above.push(next.ok_or_else(|| fault(OpenErrorKind::Inexpressible))?);
            }
        }
        if target.is_some() {
            above.pop();
        }
        let mut lineage = Vec::new();
        for rel in &above {
            match self.root.dir(rel) {
                Ok(dir) => lineage.push(dir.identity().map_err(fault)?),
                Err(OpenErrorKind::NotFound) => break,
                Err(kind) => return Err(fault(kind)),
            }
        }
        if let Some(target) = target {
            lineage.push(target.dir().identity().map_err(fault)?);
        }
        Ok(lineage)
    }

    /// Returns true if this path still leads to the directory that `target` has open, and to the file that `target` found
    /// there.
    pub fn is_still(&self, target: &Target) -> bool {
        let now = self.rel.split_last().and_then(|(parent, _)| self.root.dir(&parent).ok());
        let identity = |dir: &Dir| dir.identity().ok();
        now.is_some_and(|now| identity(&now).is_some() && identity(&now) == identity(target.dir()))
            && target.is_unchanged()
    }

    pub(crate) const fn parts(&self) -> (&Root, &RelPath) {
        (self.root, self.rel)
    }

    /// Reads the file's metadata, to remove it.
    pub fn removal(&self) -> Result<Removal, RemoveError> {
        Removal::open(self.root, self.rel)
    }
}
