//! Reads the members of a hostile archive, one by one.
//!
//! The format has two ways to extend a member's header, and readers differ in how they weigh them. This module reads both by hand, within
//! bounds, and refuses an archive in which they contradict the header. It also refuses names and links that leave the top, devices, FIFOs,
//! and files with holes. The size on disk of a file with holes does not show how much it unpacks to.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash as _, Hasher as _, RandomState};
use std::io::{self, BufReader, Read};

use operations::{Reason, ToolFailure};
use tar::{Archive, Entry, EntryType, PaxExtensions};

use super::{ArchiveBudget, stays_within};

/// Most bytes of an extended header. No path and times of a file take more.
const MAX_EXTENSION: u64 = 64 * 1024;
const BLOCK: usize = 256 * 1024;

/// File, directory or link of an archive. Its name has no `..` and is not absolute.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// Name without a slash at its end; empty for the top itself.
    pub(crate) name: String,
    pub(crate) kind: MemberKind,
    /// Permission bits without set-user-ID, set-group-ID and the like.
    pub(crate) mode: u32,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MemberKind {
    /// A regular file of this many bytes.
    File(u64),
    Directory,
    /// A symbolic link whose target stays beneath the top.
    Link(String),
    /// Another name (hard link) of an earlier file of this many bytes.
    Same {
        original: String,
        bytes: u64,
    },
}

impl MemberKind {
    /// Returns the number of bytes that the member takes when it is unpacked.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::File(bytes) | Self::Same { bytes, .. } => *bytes,
            Self::Directory | Self::Link(_) => 0,
        }
    }
}

/// Sizes of the files seen so far. Names are stored as keyed hashes, because a name may be as long as the archive.
#[derive(Default)]
struct Sizes {
    keys: RandomState,
    bytes: HashMap<u128, u64>,
}

impl Sizes {
    /// Returns the hash of a name without its `.` and empty parts, because unpacking drops them, too.
    fn key(&self, name: &str) -> u128 {
        let parts = || name.split('/').filter(|part| !matches!(*part, "" | "."));
        let half = |salt: u8| {
            let mut hasher = self.keys.build_hasher();
            salt.hash(&mut hasher);
            parts().for_each(|part| part.hash(&mut hasher));
            hasher.finish()
        };
        u128::from(half(0)) << 64 | u128::from(half(1))
    }

    /// Returns the size of the file to which a second name leads, or `None` if no such file came before.
    fn of(&self, name: &str) -> Option<u64> {
        self.bytes.get(&self.key(name)).copied()
    }

    /// Records the size of a member.
    fn add(&mut self, member: &Member) {
        let key = self.key(&member.name);
        match &member.kind {
            MemberKind::File(bytes) | MemberKind::Same { bytes, .. } => self.bytes.insert(key, *bytes),
            MemberKind::Directory | MemberKind::Link(_) => self.bytes.remove(&key),
        };
    }
}

/// Values that extended headers give for the next member.
#[derive(Debug, Default)]
struct Extension {
    name: Option<String>,
    target: Option<String>,
    size: Option<u64>,
}

/// Passes each member and its content to `each`, skips the content that is left unread, and returns the totals.
pub(crate) fn members(
    archive: impl Read,
    most: u64,
    mut each: impl FnMut(Member, &mut dyn Read) -> Result<(), ToolFailure>,
) -> Result<ArchiveBudget, ToolFailure> {
    let mut budget = ArchiveBudget::new(most);
    let mut source = Source { inner: BufReader::with_capacity(BLOCK, archive), is_over: false };
    let mut archive = Archive::new(&mut source);
    let mut extension = Extension::default();
    let mut sizes = Sizes::default();
    for entry in archive.entries().map_err(|error| broken(&error))?.raw(true) {
        let mut entry = entry.map_err(|error| broken(&error))?;
        let kind = entry.header().entry_type();
        match kind {
            EntryType::GNULongName => extension.name = Some(text(bounded(&mut entry)?)?),
            EntryType::GNULongLink => extension.target = Some(text(bounded(&mut entry)?)?),
            EntryType::XHeader => extended(&bounded(&mut entry)?, &mut extension)?,
            // It applies to all members: a comment, or times.
            EntryType::XGlobalHeader => {
                let mut all = Extension::default();
                extended(&bounded(&mut entry)?, &mut all)?;
                if all.name.is_some() || all.target.is_some() || all.size.is_some() {
                    return Err(refused("a global header that names files"));
                }
            }
            kind => {
                let extension = std::mem::take(&mut extension);
                let member = member(&entry, kind, extension, &sizes)?;
                budget.take(member.kind.bytes())?;
                sizes.add(&member);
                each(member, &mut entry)?;
            }
        }
    }
    // For instance, a stream that broke off between two members.
    if source.is_over {
        return Err(refused("no end: after its last member it has no block of zeros"));
    }
    Ok(budget)
}

/// The bytes of an archive.
///
/// The `tar` reader takes the end of the bytes for the end of the archive, with or without the block that marks it.
struct Source<R> {
    inner: R,
    is_over: bool,
}

impl<R: Read> Read for Source<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.is_over |= read == 0 && !buffer.is_empty();
        Ok(read)
    }
}

fn member(
    entry: &Entry<'_, impl Read>,
    kind: EntryType,
    extension: Extension,
    sizes: &Sizes,
) -> Result<Member, ToolFailure> {
    let header = entry.header();
    let name = match extension.name {
        Some(name) => name,
        None => text(header.path_bytes().into_owned())?,
    };
    let name = name.trim_end_matches('/');
    let name = match name {
        "." => "",
        name => name.strip_prefix("./").unwrap_or(name),
    };
    if name.starts_with('/') || name.contains('\0') || name.split('/').any(|part| part == "..") {
        return Err(outside(&format!("the name {}", jail::excerpt(name))));
    }
    if extension.size.is_some_and(|size| size != entry.size()) {
        return Err(refused(&format!("two sizes of {}", jail::excerpt(name))));
    }
    let target = || match &extension.target {
        Some(target) => Ok(target.clone()),
        None => text(header.link_name_bytes().unwrap_or_default().into_owned()),
    };
    let kind = match kind {
        EntryType::Regular | EntryType::Continuous => MemberKind::File(entry.size()),
        EntryType::Directory => MemberKind::Directory,
        EntryType::Symlink => {
            let target = target()?;
            let depth = name.split('/').count().saturating_sub(1);
            if name.is_empty() || !stays_within(depth, &target) {
                return Err(outside(&format!(
                    "the link {} to {}",
                    jail::excerpt(name),
                    jail::excerpt(&target)
                )));
            }
            MemberKind::Link(target)
        }
        EntryType::Link => {
            let target = target()?;
            let target = target.strip_prefix("./").unwrap_or(&target);
            if name.is_empty() {
                return Err(refused("a file without a name"));
            }
            if target.split('/').any(|part| part == "..") || !stays_within(0, target) {
                return Err(outside(&format!(
                    "the link {} to {}",
                    jail::excerpt(name),
                    jail::excerpt(target)
                )));
            }
            let bytes = sizes.of(target).ok_or_else(|| {
                refused(&format!(
                    "a hard link, {}, to a file that is not earlier in the archive",
                    jail::excerpt(name)
                ))
            })?;
            MemberKind::Same { original: target.to_owned(), bytes }
        }
        EntryType::Fifo | EntryType::Char | EntryType::Block => {
            let message = format!("{}: devices and FIFOs are not unpacked", jail::excerpt(name));
            return Err(ToolFailure::new(Reason::SandboxViolation, message));
        }
        EntryType::GNUSparse => return Err(sparse(name)),
        _ => return Err(refused(&format!("an entry of an unknown kind, {}", jail::excerpt(name)))),
    };
    if matches!(kind, MemberKind::File(_)) && name.is_empty() {
        return Err(refused("a file without a name"));
    }
    let mode = header.mode().map_err(|error| broken(&error))? & 0o777;
    Ok(Member { name: name.to_owned(), kind, mode })
}

fn extended(bytes: &[u8], extension: &mut Extension) -> Result<(), ToolFailure> {
    for field in PaxExtensions::new(bytes) {
        let field = field.map_err(|error| broken(&error))?;
        let key = field.key().map_err(|_| refused("an extended header that is not text"))?;
        match key {
            "path" => extension.name = Some(text(field.value_bytes().to_vec())?),
            "linkpath" => extension.target = Some(text(field.value_bytes().to_vec())?),
            "size" => {
                let size = field.value().ok().and_then(|size| size.parse().ok());
                extension.size = Some(size.ok_or_else(|| refused("a size that is not a number"))?);
            }
            key if key.starts_with("GNU.sparse.") => return Err(sparse("a file")),
            _ => {}
        }
    }
    Ok(())
}

fn bounded(entry: &mut Entry<'_, impl Read>) -> Result<Vec<u8>, ToolFailure> {
    if entry.size() > MAX_EXTENSION {
        return Err(refused("an extended header that is too long"));
    }
    let mut bytes = Vec::new();
    entry.read_to_end(&mut bytes).map_err(|error| broken(&error))?;
    if bytes.len() as u64 != entry.size() {
        return Err(broken(&io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(bytes)
}

/// GNU's long names end with a NUL.
fn text(mut bytes: Vec<u8>) -> Result<String, ToolFailure> {
    if bytes.last() == Some(&0) {
        bytes.pop();
    }
    String::from_utf8(bytes).map_err(|_| refused("a name that is not UTF-8"))
}

fn sparse(name: &str) -> ToolFailure {
    refused(&format!("{} with holes; make the archive without --sparse", jail::excerpt(name)))
}

fn refused(what: &str) -> ToolFailure {
    ToolFailure::new(Reason::InvalidArgument, format!("the archive has {what}"))
}

fn outside(what: &str) -> ToolFailure {
    ToolFailure::new(
        Reason::SandboxViolation,
        format!("{what} leads out of the directory in which the archive is unpacked"),
    )
}

pub(super) fn broken(error: &io::Error) -> ToolFailure {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::Other | io::ErrorKind::InvalidData => {
            ToolFailure::new(Reason::InvalidArgument, format!("this is not a complete tar archive: {error}"))
        }
        _ => ToolFailure::new(Reason::Internal, format!("the archive cannot be read: {error}")),
    }
}
