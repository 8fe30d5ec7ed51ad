//! Follows symlinks for reading, one by one.
//!
//! The kernel could follow them beneath the root by itself. But then the resolved path would be unknown, and a link to
//! `.git/config` would pass as `notes.txt`. So links are read here, every name in the path is checked, and the kernel
//! finally opens a path without links. If a link changes meanwhile, that open fails and the walk starts again;
//! confinement never depends on the text that is read here.

use std::borrow::Cow;

use rustix::fs::readlinkat;
use rustix::io::Errno;

use crate::error::{AccessError, OpenError, OpenErrorKind};
use crate::meta::FileKind;
use crate::name::EntryName;
use crate::refusal::PathRefusal;
use crate::rel::{MAX_PATH_BYTES, RelPath};
use crate::root::Root;
use text::excerpt;

/// Most links in one walk, as in the kernel.
const MAX_LINKS: u32 = 40;
/// Most walks, if directories keep changing.
const MAX_WALKS: u32 = 16;

/// Opens `rel` and follows links as long as `check` permits every name in the path. `open` must not follow any.
pub(crate) fn follow<T>(
    root: &Root,
    rel: &RelPath,
    check: impl Fn(&RelPath) -> Result<(), PathRefusal>,
    open: impl Fn(&RelPath) -> Result<T, OpenErrorKind>,
) -> Result<T, AccessError> {
    check(rel)?;
    let fault = |kind| OpenError::new(excerpt(&root.describe(rel)), kind);
    let mut target = Cow::Borrowed(rel);
    for _ in 0..MAX_WALKS {
        match open(&target) {
            Ok(opened) => return Ok(opened),
            Err(OpenErrorKind::Symlink) => match expand(root, rel, &check) {
                Ok(expanded) => target = Cow::Owned(expanded),
                Err(Stop::Raced) => {}
                Err(Stop::Refused(refusal)) => return Err(refusal.into()),
                Err(Stop::Failed(kind)) => return Err(fault(kind).into()),
            },
            Err(kind) => return Err(fault(kind).into()),
        }
    }
    Err(fault(OpenErrorKind::TooManyRetries).into())
}

enum Stop {
    Refused(PathRefusal),
    Failed(OpenErrorKind),
    /// A component is now a link that was a directory before, or the other way round.
    Raced,
}

impl From<OpenErrorKind> for Stop {
    fn from(kind: OpenErrorKind) -> Self {
        match kind {
            OpenErrorKind::Symlink => Self::Raced,
            kind => Self::Failed(kind),
        }
    }
}

/// Returns the path without links to which `rel` resolves at this moment.
fn expand(
    root: &Root,
    rel: &RelPath,
    check: &impl Fn(&RelPath) -> Result<(), PathRefusal>,
) -> Result<RelPath, Stop> {
    let mut done = RelPath::root();
    // The next component is at the end.
    let mut todo: Vec<Vec<u8>> =
        rel.components().rev().map(|component| component.as_bytes().to_vec()).collect();
    let mut links = 0;
    while let Some(component) = todo.pop() {
        if component == b".." {
            // `done` has no links, so `..` means its parent. The parent of a whole root is the root itself.
            done = match done.parent() {
                None if !root.is_whole() => return Err(OpenErrorKind::Escapes.into()),
                parent => parent.unwrap_or_default(),
            };
            continue;
        }
        let next = EntryName::new(&component)
            .and_then(|name| done.join(&name))
            .ok_or(OpenErrorKind::Inexpressible)?;
        check(&next).map_err(Stop::Refused)?;
        let (handle, meta) = root.look(&next)?;
        if meta.kind != FileKind::Symlink {
            done = next;
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(OpenErrorKind::LinkLoop.into());
        }
        let text = match readlinkat(&handle, "", Vec::new()) {
            Ok(text) => text.into_bytes(),
            Err(Errno::NOENT | Errno::INVAL) => return Err(Stop::Raced),
            Err(errno) => return Err(Stop::Failed(errno.into())),
        };
        if text.first() == Some(&b'/') {
            if !root.is_whole() {
                return Err(OpenErrorKind::Escapes.into());
            }
            done = RelPath::root();
        }
        todo.extend(
            text.rsplit(|&byte| byte == b'/').filter(|part| !matches!(*part, b"" | b".")).map(<[u8]>::to_vec),
        );
        if todo.len() > MAX_PATH_BYTES {
            return Err(OpenErrorKind::NameTooLong.into());
        }
    }
    Ok(done)
}
