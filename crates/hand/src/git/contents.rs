//! Contents as git would store them: what the work tree has, after line endings and `$Id$` are as in the repository.
//!
//! libgit2 does that only while it stores an object. So new objects go to memory, here and nowhere else: looking at a
//! repository writes nothing into it.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use git2::{
    AttrCheckFlags, AttrValue, Blob, Index as LibraryIndex, IndexEntry, IndexTime, Mempack, ObjectType, Odb,
    Oid, Repository,
};

use super::difference::{GITLINK, Version};
use super::error::GitError;
use super::index::{Entry, Index};
use super::line_endings::has_crlf;
use super::repository::WORKSPACE;

/// Larger files are shown as binary, bytes.
pub(super) const LARGEST: u64 = 64 * 1024 * 1024;
/// Objects in memory come before those of the repository.
const FIRST: i32 = 1000;

/// A content.
pub(super) struct Content<'r> {
    /// Zero for nothing.
    pub(super) id: Oid,
    /// Bytes.
    pub(super) size: u64,
    /// `None` where it is too large to be looked at.
    pub(super) blob: Option<Blob<'r>>,
}

impl Content<'_> {
    pub(super) fn bytes(&self) -> &[u8] {
        self.blob.as_ref().map_or(&[], Blob::content)
    }
}

/// Gives contents out.
pub(super) struct Contents<'r> {
    pub(super) repository: &'r Repository,
    memory: Mempack<'r>,
    /// What libgit2 takes for the index: attributes, and entries whose line endings matter.
    few: std::cell::RefCell<LibraryIndex>,
}

impl<'r> Contents<'r> {
    /// From now on the repository is good for looking only.
    pub(super) fn new(repository: &'r Repository, odb: &'r Odb<'r>, index: &Index) -> Result<Self, GitError> {
        let memory = odb.add_new_mempack_backend(FIRST)?;
        let mut few = LibraryIndex::new()?;
        for entry in index.entries() {
            let name = index.name(entry);
            if entry.stage == 0 && name.rsplit(|byte| *byte == b'/').next() == Some(b".gitattributes") {
                few.add(&library_entry(name, entry))?;
            }
        }
        repository.set_index(&mut few)?;
        Ok(Self { repository, memory, few: few.into() })
    }

    /// As if the index had no attributes at `path`.
    pub(super) fn without_attributes(&self, path: &str) -> Result<(), GitError> {
        Ok(self.few.borrow_mut().remove_path(Path::new(path))?)
    }

    /// The id of what the work tree has at `path`, of which the index has `entry`. `None` for a file that is too large.
    pub(super) fn id_in_work_tree(&self, path: &[u8], entry: &Entry) -> Result<Option<Oid>, GitError> {
        if size_in_work_tree(path) > LARGEST {
            return Ok(None);
        }
        if self.is_automatic(path) && self.keeps_crlf(entry) {
            self.few.borrow_mut().add(&library_entry(path, entry))?;
        }
        let id = self.store(path)?;
        self.forget()?;
        Ok(Some(id))
    }

    /// Whether line endings are stored by what was stored before.
    fn is_automatic(&self, path: &[u8]) -> bool {
        let path = Path::new(OsStr::from_bytes(path));
        let attribute = self.repository.get_attr_bytes(path, "text", AttrCheckFlags::FILE_THEN_INDEX);
        match attribute.map(AttrValue::from_bytes) {
            Ok(AttrValue::Bytes(value)) => value == b"auto",
            Ok(AttrValue::String(value)) => value == "auto",
            Ok(AttrValue::True | AttrValue::False) => false,
            _ => self.repository.config().is_ok_and(|config| {
                config.get_entry("core.autocrlf").is_ok_and(|entry| entry.value_bytes() != b"false")
            }),
        }
    }

    fn keeps_crlf(&self, entry: &Entry) -> bool {
        let is_small = |(size, _)| size as u64 <= LARGEST;
        self.repository.odb().is_ok_and(|odb| odb.read_header(entry.id).is_ok_and(is_small))
            && self.repository.find_blob(entry.id).is_ok_and(|blob| has_crlf(blob.content()))
    }

    /// The content of one side of a change at `path`.
    pub(super) fn of(&self, path: &[u8], version: Version) -> Result<Content<'r>, GitError> {
        match version.id {
            _ if version.is_none() => {
                Ok(Content { id: Oid::ZERO_SHA1, size: 0, blob: Some(self.made(b"")?) })
            }
            // git shows the commit of a submodule as a file of one line.
            Some(id) if version.mode == GITLINK => {
                let blob = self.made(format!("Subproject commit {id}\n").as_bytes())?;
                Ok(Content { id, size: 0, blob: Some(blob) })
            }
            Some(id) => {
                let (size, _) = self.repository.odb()?.read_header(id)?;
                let size = size as u64;
                let blob = if size > LARGEST { None } else { Some(self.repository.find_blob(id)?) };
                Ok(Content { id, size, blob })
            }
            None => self.in_work_tree(path),
        }
    }

    fn made(&self, bytes: &[u8]) -> Result<Blob<'r>, GitError> {
        let blob = self.repository.find_blob(self.repository.blob(bytes)?)?;
        self.forget()?;
        Ok(blob)
    }

    fn in_work_tree(&self, path: &[u8]) -> Result<Content<'r>, GitError> {
        let size = size_in_work_tree(path);
        if size > LARGEST {
            let id = Oid::hash_file(ObjectType::Blob, full(path))?;
            return Ok(Content { id, size, blob: None });
        }
        let blob = self.repository.find_blob(self.store(path)?)?;
        self.forget()?;
        Ok(Content { id: blob.id(), size: blob.size() as u64, blob: Some(blob) })
    }

    /// In memory.
    fn store(&self, path: &[u8]) -> Result<Oid, GitError> {
        let full = full(path);
        // libgit2 would follow it.
        if let Ok(target) = fs::read_link(&full) {
            return Ok(self.repository.blob(target.as_os_str().as_bytes())?);
        }
        match self.repository.blob_path(&full) {
            Ok(id) => Ok(id),
            // A configuration that refuses to mix line endings is about adding, not about looking.
            Err(error) if error.class() == git2::ErrorClass::Filter => {
                let mut bytes = Vec::new();
                let read = File::open(full).and_then(|file| file.take(LARGEST).read_to_end(&mut bytes));
                read.map_err(|error| GitError::Library(error.to_string()))?;
                Ok(self.repository.blob(&bytes)?)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// So that memory holds one content at a time.
    fn forget(&self) -> Result<(), GitError> {
        Ok(self.memory.reset()?)
    }
}

fn full(path: &[u8]) -> std::path::PathBuf {
    Path::new(WORKSPACE).join(OsStr::from_bytes(path))
}

fn size_in_work_tree(path: &[u8]) -> u64 {
    fs::symlink_metadata(full(path)).map_or(0, |metadata| metadata.len())
}

fn library_entry(path: &[u8], entry: &Entry) -> IndexEntry {
    IndexEntry {
        ctime: IndexTime::new(0, 0),
        mtime: IndexTime::new(0, 0),
        dev: 0,
        ino: 0,
        mode: entry.mode,
        uid: 0,
        gid: 0,
        file_size: 0,
        id: entry.id,
        flags: 0,
        flags_extended: 0,
        path: path.to_vec(),
    }
}
