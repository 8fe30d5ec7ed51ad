//! The index file, read by ourselves: what libgit2 makes of 50,000 entries takes longer than looking at the files.
//!
//! For looking only; what writes the index goes through libgit2. Everything in the file is hostile: counts are bounded by
//! its size, names must be paths that could be in a work tree, and the order must be that of their bytes. Like git, it
//! does not verify the checksum at the end.

mod cached_tree;
mod entry;

use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::beneath::Beneath;
use super::error::GitError;

pub(super) use cached_tree::CachedTree;
pub(super) use entry::{Entry, Time};

/// Bytes of the largest index that is read.
const LARGEST: u64 = 192 * 1024 * 1024;
const HEADER: usize = 12;
/// The checksum at the end.
const TRAILER: usize = 20;

/// Entries in the order of their names, those of one name by their stage.
#[derive(Default)]
pub(super) struct Index {
    entries: Vec<Entry>,
    /// Names of all entries, one behind the other.
    names: Vec<u8>,
    /// What the index knows of the trees that it came from; of the whole work tree.
    pub(super) tree: Option<CachedTree>,
    /// When the file was written.
    pub(super) written: Time,
}

impl Index {
    /// Reads the index of the workspace; one that is not there is empty.
    pub(super) fn read(workspace: &Beneath) -> Result<Self, GitError> {
        let Some(file) = workspace.regular(Path::new(".git/index"))? else { return Ok(Self::default()) };
        let metadata = file.metadata().map_err(|error| GitError::Library(error.to_string()))?;
        if metadata.len() > LARGEST {
            return Err(GitError::Memory);
        }
        let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or_default());
        file.take(LARGEST).read_to_end(&mut bytes).map_err(|error| GitError::Library(error.to_string()))?;
        let mut index = Self::parse(&bytes).map_err(GitError::DamagedIndex)?;
        index.written = Time::new(metadata.mtime(), metadata.mtime_nsec());
        Ok(index)
    }

    fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        let end = bytes.len().checked_sub(TRAILER).filter(|end| *end >= HEADER).ok_or("it is too short")?;
        if &bytes[..4] != b"DIRC" {
            return Err("it is no index");
        }
        let version = entry::number(bytes, 4).ok_or("it is too short")?;
        if !(2..=4).contains(&version) {
            return Err("its version is not supported");
        }
        let count = entry::number(bytes, 8).ok_or("it is too short")? as usize;
        if count > bytes.len() / entry::SMALLEST {
            return Err("it has fewer entries than it says");
        }
        let mut index = Self { entries: Vec::with_capacity(count), ..Self::default() };
        index.names.reserve(end);
        let mut rest = &bytes[HEADER..end];
        for _ in 0..count {
            let read = entry::read(rest, version, &index.entries, &mut index.names)?;
            index.check(&read.entry)?;
            index.entries.push(read.entry);
            rest = rest.get(read.length..).ok_or("its last entry is cut")?;
        }
        index.extensions(rest)?;
        Ok(index)
    }

    /// The name must be possible, and come after the last one.
    fn check(&self, entry: &Entry) -> Result<(), &'static str> {
        let name = self.name(entry);
        if !name.split(|byte| *byte == b'/').all(is_component) {
            return Err("it names a path that cannot be in a work tree");
        }
        let Some(last) = self.entries.last() else { return Ok(()) };
        let in_order = match self.name(last).cmp(name) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Equal => last.stage > 0 && last.stage < entry.stage,
            std::cmp::Ordering::Greater => false,
        };
        if in_order { Ok(()) } else { Err("its entries are not in order") }
    }

    fn extensions(&mut self, mut rest: &[u8]) -> Result<(), &'static str> {
        while !rest.is_empty() {
            let size = entry::number(rest, 4).ok_or("an extension is cut")? as usize;
            let end = size.checked_add(8).ok_or("an extension is cut")?;
            let content = rest.get(8..end).ok_or("an extension is cut")?;
            match &rest[..4] {
                b"TREE" => self.tree = CachedTree::parse(content),
                // Those in capitals only help.
                [b'A'..=b'Z', ..] => {}
                _ => return Err("it is split or sparse, which is not supported"),
            }
            rest = &rest[end..];
        }
        Ok(())
    }

    /// All entries.
    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entry's path, relative to the work tree.
    pub(super) fn name(&self, entry: &Entry) -> &[u8] {
        self.names.get(entry.name.start as usize..entry.name.end as usize).unwrap_or_default()
    }

    /// What a directory has of the entries in `range`, all of which are beneath it. Its path has `skip` bytes, the
    /// slash at the end included.
    pub(super) fn children(&self, range: Range<usize>, skip: usize) -> impl Iterator<Item = Child<'_>> {
        let mut at = range.start;
        std::iter::from_fn(move || {
            let rest = self.entries.get(at..range.end).filter(|rest| !rest.is_empty())?;
            let full = self.name(&rest[0]);
            let name = full.get(skip..)?;
            let slash = name.iter().position(|byte| *byte == b'/');
            let length = match slash {
                Some(slash) => {
                    let directory = &full[..=skip + slash];
                    rest.partition_point(|entry| self.name(entry).starts_with(directory))
                }
                // At most three, the sides of a conflict.
                None => rest.iter().take_while(|entry| self.name(entry) == full).count(),
            };
            let entries = at..at + length;
            at += length;
            Some(match slash {
                Some(slash) => Child::Directory { name: &name[..slash], entries },
                None => Child::File { name, entries },
            })
        })
    }
}

/// What the index has in a directory.
pub(super) enum Child<'i> {
    /// One entry, or the sides of a conflict.
    File { name: &'i [u8], entries: Range<usize> },
    /// What is beneath it.
    Directory { name: &'i [u8], entries: Range<usize> },
}

/// Neither empty nor one of those that lead elsewhere or into git's own files.
fn is_component(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.eq_ignore_ascii_case(b".git") && !name.contains(&0)
}

#[cfg(test)]
mod tests;
