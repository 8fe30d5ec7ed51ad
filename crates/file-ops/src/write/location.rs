//! The target of a write: its present state, and the way in which the new content gets there.

use std::io::{self, Read};

use jail::{
    Change, Filling, Found, Jail, Metadata, OpenError, OpenErrorKind, Parents, RegularFile, SandboxPath,
    Target, Then, Writable, WriteMode,
};
use operations::{Binder, Bounds, Digest, FileState, Reason, ToolFailure};

use super::when::{Go, Undone};

const BLOCK: usize = 128 * 1024;

/// State before the write.
#[derive(Debug)]
pub(super) struct Before {
    pub(super) size: u64,
    pub(super) sha256: String,
    /// The content; `None` if it is longer than the caller wanted to keep.
    pub(super) content: Option<Vec<u8>>,
}

/// Target that has been examined. Examining it creates no directories.
#[derive(Debug)]
pub(super) struct Location<'j> {
    path: &'j SandboxPath,
    writable: Writable<'j>,
    /// `None` if not even the directory exists.
    target: Option<Target>,
    pub(super) before: Option<Before>,
}

impl<'j> Location<'j> {
    /// Examines the target, and keeps the present content if it has at most `keep` bytes. Refuses a file that would take too long to hash.
    pub(super) fn look(
        jail: &'j Jail,
        path: &'j SandboxPath,
        bounds: &Bounds,
        keep: u64,
    ) -> Result<Self, ToolFailure> {
        let writable = jail.writable(path)?;
        let mut target = match writable.target(Parents::MustExist) {
            Ok(target) => Some(target),
            Err(OpenError { kind: OpenErrorKind::NotFound, .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let old = match &mut target {
            Some(target) => target.read()?,
            None => None,
        };
        if let Some(old) = old.as_ref().filter(|old| old.meta.size > bounds.largest_replaced()) {
            return Err(too_large(path, old.meta.size));
        }
        let before = old.map(|old| before(path, old, keep)).transpose()?;
        Ok(Self { path, writable, target, before })
    }

    /// Demands that the present content has this hash.
    pub(super) fn demand(&self, if_match_sha256: Option<&str>) -> Result<(), ToolFailure> {
        let Some(expected) = if_match_sha256 else { return Ok(()) };
        let path = self.path.excerpt();
        match &self.before {
            Some(before) if before.sha256.eq_ignore_ascii_case(expected) => Ok(()),
            Some(before) => Err(ToolFailure::new(
                Reason::PreconditionFailed,
                format!(
                    "{path} does not have the expected SHA-256; read it again, its SHA-256 is now {}",
                    before.sha256
                ),
            )
            .with("expected_sha256", expected)
            .with("sha256", &before.sha256)),
            None => Err(ToolFailure::new(
                Reason::PreconditionFailed,
                format!(
                    "{path} does not exist, so it has no SHA-256; leave the expected SHA-256 out to create \
                     the file"
                ),
            )
            .with("expected_sha256", expected)),
        }
    }

    /// Returns the hash of the present content, empty if there is no file.
    pub(super) fn sha256_before(&self) -> String {
        self.before.as_ref().map_or_else(String::new, |before| before.sha256.clone())
    }

    /// Returns the metadata of the present file.
    pub(super) fn metadata(&self) -> Option<Metadata> {
        match self.target.as_ref()?.found() {
            Found::File(meta) => Some(meta),
            Found::Absent | Found::Special(_) => None,
        }
    }

    /// Binds a consent to the state of this file: content, owner, permissions, and the directories that lead there.
    pub(super) fn bind(&self, binder: &mut Binder) -> Result<(), ToolFailure> {
        let state = match &self.before {
            Some(before) => FileState::Sha256(before.sha256.clone()),
            None => FileState::Absent,
        };
        binder.file(self.path, state);
        if let Some(meta) = self.metadata() {
            bind_owner(&meta, binder);
        }
        bind_lineage(&self.writable, self.target.as_ref(), binder)
    }

    /// Opens the present file again.
    pub(super) fn reopen(&mut self) -> Result<Option<RegularFile>, ToolFailure> {
        match &mut self.target {
            Some(target) => Ok(target.read()?),
            None => Ok(None),
        }
    }

    /// Returns the write as one of several changes that are made together.
    pub(super) fn into_change(self, then: Then) -> Change<'j> {
        Change::new(self.writable, self.target, then)
    }

    /// Works like [`Self::into_change`], but the change fails unless the file that it displaced is the bound one, to the last byte.
    pub(super) fn into_held_change(self, then: Then) -> Change<'j> {
        let before = self.before.as_ref().map(|before| before.sha256.clone()).zip(self.metadata());
        let change = self.into_change(then);
        match before {
            Some((sha256, meta)) => change.held(is_still(sha256, meta)),
            None => change,
        }
    }

    /// Writes the content of `filling` as a whole file with these permission bits, and creates missing directories.
    ///
    /// If `go` is given, the effect waits for it. If the state has changed meanwhile, the result is `Stale` and nothing is written.
    pub(super) fn put(
        self,
        filling: Filling<'_>,
        permissions: Option<u32>,
        mode: WriteMode,
        go: Option<Go<'_>>,
    ) -> Result<(), Undone> {
        let writable = self.writable;
        match (self.target, go) {
            (Some(target), None) => target.write_from(filling, permissions, mode)?,
            (Some(target), Some(go)) => target.write_when(filling, permissions, mode, |target| {
                go()?;
                if writable.is_still(target) { Ok(()) } else { Err(Undone::Stale) }
            })?,
            (None, None) => {
                let target = writable.target(Parents::Create).map_err(ToolFailure::from)?;
                if target.found() != Found::Absent {
                    return Err(Undone::Stale);
                }
                target.write_from(filling, permissions, mode)?
            }
            // Creating the directories would be an effect, so nothing can be prepared.
            (None, Some(go)) => {
                go()?;
                return Err(Undone::Stale);
            }
        };
        Ok(())
    }
}

/// Binds permissions, owner and group.
pub(super) fn bind_owner(meta: &Metadata, binder: &mut Binder) {
    for number in [meta.mode, meta.uid, meta.gid] {
        binder.number(number.into());
    }
}

/// Binds the directories that lead to a path, by their identities.
pub(super) fn bind_lineage(
    writable: &Writable<'_>,
    target: Option<&Target>,
    binder: &mut Binder,
) -> Result<(), ToolFailure> {
    let lineage = writable.lineage(target)?;
    binder.number(lineage.len() as u64);
    for (device, inode) in lineage {
        binder.number(device);
        binder.number(inode);
    }
    Ok(())
}

/// Checks that a file still has this content, owner and permissions.
pub(super) fn is_still(sha256: String, meta: Metadata) -> impl Fn(RegularFile) -> io::Result<bool> {
    move |file| {
        let RegularFile { mut file, meta: now } = file;
        let owned = |meta: &Metadata| (meta.mode, meta.uid, meta.gid);
        let mut digest = Digest::default();
        io::copy(&mut Read::take(&mut file, meta.size + 1), &mut digest)?;
        Ok(owned(&now) == owned(&meta) && digest.hex() == sha256)
    }
}

fn too_large(path: &SandboxPath, size: u64) -> ToolFailure {
    let message = format!("{}: has {size} bytes, more than can be replaced; remove it first", path.excerpt());
    ToolFailure::new(Reason::WriteLimit, message).with("size_bytes", size.to_string())
}

fn before(path: &SandboxPath, old: RegularFile, keep: u64) -> Result<Before, ToolFailure> {
    let (mut digest, mut size, mut content) = (Digest::default(), 0, Some(Vec::new()));
    // Bytes that are appended meanwhile belong to a later state.
    let mut file = old.file.take(old.meta.size);
    let mut block = vec![0; usize::try_from(old.meta.size).unwrap_or(BLOCK).min(BLOCK)];
    loop {
        let read = match file.read(&mut block) {
            Ok(0) => return Ok(Before { size, sha256: digest.hex(), content }),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                let message = format!("{}: cannot be read: {error}", path.excerpt());
                return Err(ToolFailure::new(Reason::Internal, message));
            }
        };
        digest.update(&block[..read]);
        size += read as u64;
        content = content.filter(|_| size <= keep).map(|mut content| {
            content.extend_from_slice(&block[..read]);
            content
        });
    }
}

/// Limit of the profile for the size of a file, with its name.
pub(super) type Most = (&'static str, u64);

/// Returns the limit for the result of editing or patching an existing file.
pub(super) fn most_edited(bounds: &Bounds) -> Most {
    ("max_edit_bytes", bounds.max_edit_bytes)
}

/// Returns the limit for content that the call brings.
pub(super) fn most_written(bounds: &Bounds) -> Most {
    ("max_write_bytes", bounds.max_write_bytes)
}

/// Refuses a content that is longer than the profile allows.
pub(super) fn within(path: &SandboxPath, size: u64, (key, most): Most) -> Result<(), ToolFailure> {
    if size <= most {
        return Ok(());
    }
    Err(ToolFailure::new(
        Reason::WriteLimit,
        format!("{} would have {size} bytes, more than the {most} that may be written; split it into smaller files", path.excerpt()),
    )
    .with("size_bytes", size.to_string())
    .with(key, most.to_string()))
}
