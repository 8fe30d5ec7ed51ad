//! Handles files that git changes on their way into the repository: by a program (`filter`) or from another encoding
//! (`working-tree-encoding`).
//!
//! Neither runs here: a filter is a command from a configuration file. libgit2 takes such a file unconverted. So its comparison is
//! wrong, and so is the object that it would store. A file counts as unchanged if the index says so by size and time, or if its
//! content proves it. The proof is the bytes of its object, or the hash in its Git LFS pointer. All others are shown as not
//! compared, and are not added.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use git2::{
    AttrCheckFlags, AttrValue, Delta, Diff, DiffDelta, FileMode, Index, IndexEntry, IndexTime, ObjectType,
    Oid, Repository,
};
use sha2::{Digest as _, Sha256};

use super::compare;
use super::error::GitError;
use super::formats::new_path;
use super::index::{self, as_path};
use super::repository::WORKSPACE;

/// Largest pointer of Git LFS, bytes; its specification has this bound.
const LARGEST_POINTER: u64 = 1024;
const EXECUTABLE: u32 = 0o100_755;
const FILE: u32 = 0o100_644;

/// A conversion of a file on its way into the repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Conversion {
    Filter(String),
    Encoding(String),
}

impl Conversion {
    /// Returns the conversion that the attributes of `path` ask for. `None` also for a conversion that changes nothing.
    pub(super) fn of(repository: &Repository, path: &[u8]) -> Result<Option<Self>, GitError> {
        if let Some(name) = value(repository, path, "filter")?.filter(|name| !name.is_empty()) {
            return Ok(Some(Self::Filter(name)));
        }
        Ok(encoding(repository, path)?.map(Self::Encoding))
    }

    fn is_lfs(&self) -> bool {
        matches!(self, Self::Filter(name) if name == "lfs")
    }
}

impl std::fmt::Display for Conversion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (attribute, value) = match self {
            Self::Filter(name) => ("filter", name),
            Self::Encoding(name) => ("working-tree-encoding", name),
        };
        write!(f, "{attribute}={}", super::error::shown(value))
    }
}

/// Returns true if these bytes are the pointer of a Git LFS file.
pub(super) fn is_pointer(content: &[u8]) -> bool {
    Pointer::parse(content).is_some()
}

/// Returns the encoding of a file in the work tree, if it differs from that of its object.
pub(super) fn encoding(repository: &Repository, path: &[u8]) -> Result<Option<String>, GitError> {
    let is_other =
        |name: &String| !name.is_empty() && !["utf-8", "utf8"].contains(&name.to_ascii_lowercase().as_str());
    Ok(value(repository, path, "working-tree-encoding")?.filter(is_other))
}

/// Returns the value of an attribute, if it has one.
fn value(repository: &Repository, path: &[u8], name: &str) -> Result<Option<String>, GitError> {
    let flags = AttrCheckFlags::FILE_THEN_INDEX;
    Ok(match AttrValue::from_bytes(repository.get_attr_bytes(as_path(path), name, flags)?) {
        AttrValue::String(value) => Some(value.to_owned()),
        AttrValue::Bytes(value) => Some(String::from_utf8_lossy(value).into_owned()),
        AttrValue::True | AttrValue::False | AttrValue::Unspecified => None,
    })
}

/// Converted files, which a comparison with the work tree cannot judge.
#[derive(Default)]
pub(super) struct Converted {
    /// Files that may have changed, and the conversion because of which they were not compared.
    pub(super) unseen: BTreeMap<Vec<u8>, String>,
    /// Files that have not changed, with their entries.
    same: BTreeMap<Vec<u8>, IndexEntry>,
}

impl Converted {
    /// Sorts out the converted files among the changes of the work tree that `diff` has.
    pub(super) fn among(repository: &Repository, index: &Index, diff: &Diff<'_>) -> Result<Self, GitError> {
        let mut converted = Self::default();
        for delta in diff.deltas().filter(|delta| is_file(delta) && !is_mode(delta)) {
            let path = new_path(&delta);
            let Some(conversion) = Conversion::of(repository, path)? else { continue };
            match index::merged(index, path) {
                Some(entry) if is_same(repository, &entry, &conversion)? => {
                    converted.same.insert(path.to_vec(), entry);
                }
                _ => drop(converted.unseen.insert(path.to_vec(), conversion.to_string())),
            }
        }
        Ok(converted)
    }

    /// Returns true if the comparison is right about this path.
    pub(super) fn is_known(&self, delta: &DiffDelta<'_>) -> bool {
        let path = new_path(delta);
        is_mode(delta) || !is_file(delta) || !(self.unseen.contains_key(path) || self.same.contains_key(path))
    }

    /// Returns the changes of mode among the unchanged files.
    pub(super) fn modes<'r>(&self, repository: &'r Repository) -> Result<Diff<'r>, GitError> {
        let (mut old, mut new) = (Index::new()?, Index::new()?);
        for entry in self.same.values() {
            if let Some(changed) = with_mode(repository, entry) {
                old.add(entry)?;
                new.add(&changed)?;
            }
        }
        Ok(repository.diff_index_to_index(&old, &new, Some(&mut compare::contents()))?)
    }
}

/// Returns true for a change of a file's content in the work tree.
fn is_file(delta: &DiffDelta<'_>) -> bool {
    matches!(delta.status(), Delta::Modified | Delta::Added)
        && matches!(delta.new_file().mode(), FileMode::Blob | FileMode::BlobExecutable)
}

/// Returns true for a change of a mode alone.
fn is_mode(delta: &DiffDelta<'_>) -> bool {
    !delta.old_file().id().is_zero() && delta.old_file().id() == delta.new_file().id()
}

/// Returns the entry with the mode that its file has now; `None` if that is the same.
pub(super) fn with_mode(repository: &Repository, entry: &IndexEntry) -> Option<IndexEntry> {
    let metadata = fs::symlink_metadata(file_path(&entry.path)).ok()?;
    let mode = if metadata.mode() & 0o100 == 0 { FILE } else { EXECUTABLE };
    let trusted = repository.config().and_then(|config| config.get_bool("core.filemode")).unwrap_or(true);
    (trusted && mode != entry.mode).then(|| IndexEntry { mode, path: entry.path.clone(), ..*entry })
}

/// Returns true if the file is the one that its entry describes.
pub(super) fn is_same(
    repository: &Repository,
    entry: &IndexEntry,
    conversion: &Conversion,
) -> Result<bool, GitError> {
    let file = file_path(&entry.path);
    let Ok(metadata) = fs::symlink_metadata(&file) else { return Ok(false) };
    if has_its_time(entry, &metadata) {
        return Ok(true);
    }
    let odb = repository.odb()?;
    let Ok((size, _)) = odb.read_header(entry.id) else { return Ok(false) };
    let size = size as u64;
    if size == metadata.len() && (size == 0 || !matches!(conversion, Conversion::Encoding(_))) {
        return Ok(Oid::hash_file(ObjectType::Blob, &file)? == entry.id);
    }
    if !conversion.is_lfs() || size > LARGEST_POINTER {
        return Ok(false);
    }
    let Some(pointer) = Pointer::parse(odb.read(entry.id)?.data()) else { return Ok(false) };
    Ok(pointer.size == metadata.len() && sha256(&file).is_ok_and(|found| found == pointer.sha256))
}

/// Returns true if the file may be added unconverted: it is empty, or a pointer of Git LFS.
pub(super) fn is_stored_form(path: &[u8], conversion: &Conversion) -> bool {
    let file = file_path(path);
    let size = fs::symlink_metadata(&file).map_or(u64::MAX, |metadata| metadata.len());
    let is_plain =
        |conversion: &Conversion| conversion.is_lfs() || matches!(conversion, Conversion::Encoding(_));
    match size {
        0 => is_plain(conversion),
        1..=LARGEST_POINTER if conversion.is_lfs() => {
            read(&file).is_ok_and(|text| Pointer::parse(&text).is_some())
        }
        _ => false,
    }
}

/// Returns true if size and time show that the file has not changed.
///
/// libgit2 records a size of 0 for each file that may have changed in the same moment as the index.
fn has_its_time(entry: &IndexEntry, metadata: &Metadata) -> bool {
    #[expect(clippy::cast_possible_truncation, reason = "the index has the lower half")]
    let (size, seconds) = (metadata.len() as u32, metadata.mtime() as i32);
    let nanoseconds = entry.mtime.nanoseconds();
    let exact = i64::from(nanoseconds) == metadata.mtime_nsec();
    entry.mtime.seconds() == seconds
        && match entry.file_size {
            0 => exact && nanoseconds != 0,
            noted => noted == size && (exact || nanoseconds == 0),
        }
}

/// Records size and time of the file in its entry.
#[expect(clippy::cast_possible_truncation, reason = "the index has the lower half")]
pub(super) fn note(entry: &mut IndexEntry, metadata: &Metadata) {
    let time = |seconds: i64, nanoseconds: i64| {
        IndexTime::new(seconds as i32, u32::try_from(nanoseconds).unwrap_or_default())
    };
    entry.ctime = time(metadata.ctime(), metadata.ctime_nsec());
    entry.mtime = time(metadata.mtime(), metadata.mtime_nsec());
    (entry.ino, entry.file_size) = (metadata.ino() as u32, metadata.len() as u32);
}

/// A Git LFS file as the repository has it.
#[derive(Debug, PartialEq, Eq)]
struct Pointer {
    sha256: [u8; 32],
    size: u64,
}

impl Pointer {
    /// Parses a pointer by its specification: lines of a key and a value, the version first.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
        let mut lines = text.split('\n').map(|line| line.split_once(' '));
        let is_version = |url: &str| {
            url == "https://git-lfs.github.com/spec/v1" || url == "https://hawser.github.com/spec/v1"
        };
        lines.next()?.filter(|(key, url)| *key == "version" && is_version(url))?;
        let (mut sha256, mut size) = (None, None);
        for line in lines {
            match line? {
                ("oid", oid) => sha256 = oid.strip_prefix("sha256:"),
                ("size", bytes) => size = bytes.parse().ok(),
                _ => {}
            }
        }
        Some(Self { sha256: hash(sha256?)?, size: size? })
    }
}

/// Parses a hash in hexadecimal digits.
fn hash(digits: &str) -> Option<[u8; 32]> {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let digits =
        Some(digits.as_bytes()).filter(|digits| digits.len() == 64 && digits.iter().all(is_digit))?;
    let value = |digit: u8| if digit.is_ascii_digit() { digit - b'0' } else { digit - b'a' + 10 };
    let bytes: Vec<u8> = digits.chunks(2).map(|pair| value(pair[0]) << 4 | value(pair[1])).collect();
    bytes.try_into().ok()
}

fn file_path(path: &[u8]) -> PathBuf {
    Path::new(WORKSPACE).join(as_path(path))
}

fn read(file: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(file)?.take(LARGEST_POINTER + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn sha256(file: &Path) -> io::Result<[u8; 32]> {
    let (mut file, mut digest) = (File::open(file)?, Sha256::new());
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            read => digest.update(&buffer[..read]),
        }
    }
    Ok(digest.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::Pointer;

    const HASH: &str = "4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393";

    #[test]
    fn a_pointer_follows_its_specification() {
        let version = "version https://git-lfs.github.com/spec/v1\n";
        let good = format!("{version}oid sha256:{HASH}\nsize 12345\n");
        let pointer = Pointer::parse(good.as_bytes()).unwrap();
        assert_eq!((pointer.sha256[..2].to_vec(), pointer.size), (vec![0x4d, 0x7a], 12345));
        let extended = format!("{version}ext-0-foo sha256:{HASH}\noid sha256:{HASH}\nsize 1\n");
        assert!(Pointer::parse(extended.as_bytes()).is_some());
        for bad in [
            String::new(),
            good.trim_end().to_owned(),
            good.replace("v1", "v9"),
            good.replace("sha256:", "md5:"),
            good.replace("size 12345\n", ""),
            good.replace("4d7a", "4D7A"),
            format!("{good}\n"),
            format!("oid sha256:{HASH}\nsize 1\n{version}"),
        ] {
            assert_eq!(Pointer::parse(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
