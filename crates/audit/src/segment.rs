//! Segments: files that are named by the first sequence number that they contain.
//!
//! A segment that is no longer written may be compressed (`packed.rs`). While both forms exist, the plain one takes precedence.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::lines::ReadAt;
use crate::packed::Unpacked;

const SUFFIX: &str = ".jsonl";
const PACKED_SUFFIX: &str = ".gz";
const DIGITS: usize = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SegmentName(pub(crate) u64);

impl SegmentName {
    /// Parses the file name of a segment. Other files may be in the directory, and are ignored.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let digits = name.strip_suffix(SUFFIX)?;
        let valid = digits.len() == DIGITS && digits.bytes().all(|b| b.is_ascii_digit());
        valid.then(|| digits.parse().ok().map(Self)).flatten()
    }

    pub(crate) fn path(self, dir: &Path) -> PathBuf {
        dir.join(self.to_string())
    }

    pub(crate) fn packed_path(self, dir: &Path) -> PathBuf {
        dir.join(format!("{self}{PACKED_SUFFIX}"))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Segment {
    pub(crate) name: SegmentName,
    /// True if the segment is compressed.
    pub(crate) packed: bool,
}

impl Segment {
    pub(crate) fn plain(name: SegmentName) -> Self {
        Self { name, packed: false }
    }

    pub(crate) fn path(self, dir: &Path) -> PathBuf {
        if self.packed { self.name.packed_path(dir) } else { self.name.path(dir) }
    }

    /// Opens the segment in its present form, which may have changed since it was listed.
    pub(crate) fn open(self, dir: &Path) -> io::Result<Source> {
        open(dir, self.name)?.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.name, if self.packed { PACKED_SUFFIX } else { "" })
    }
}

impl fmt::Display for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:0DIGITS$}{SUFFIX}", self.0)
    }
}

/// Returns the segments of a directory in the order of the log.
pub(crate) fn list(dir: &Path) -> io::Result<Vec<Segment>> {
    let entries = fs::read_dir(dir)?.collect::<io::Result<Vec<_>>>()?;
    Ok(among(entries.iter().filter_map(|entry| entry.file_name().into_string().ok())))
}

/// Returns the segments among the names of files, in the order of the log.
pub(crate) fn among(names: impl IntoIterator<Item = String>) -> Vec<Segment> {
    let segment = |text: String| {
        let name = text.strip_suffix(PACKED_SUFFIX);
        let packed = name.is_some();
        SegmentName::parse(name.unwrap_or(&text)).map(|name| Segment { name, packed })
    };
    let mut segments: Vec<Segment> = names.into_iter().filter_map(segment).collect();
    segments.sort_unstable();
    segments.dedup_by_key(|segment| segment.name); // keeps the plain one, which is the first of two
    segments
}

/// Opens a file for reading. `None` if it is not there.
pub(crate) fn existing(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens a segment in its present form. It may be compressed between two attempts to open a file.
pub(crate) fn open(dir: &Path, name: SegmentName) -> io::Result<Option<Source>> {
    if let Some(file) = existing(&name.path(dir))? {
        return Ok(Some(Source::Plain(file)));
    }
    match existing(&name.packed_path(dir))? {
        Some(file) => Ok(Some(Source::Packed(Box::new(Unpacked::new(file)?)))),
        None => Ok(None),
    }
}

/// Reader of a segment's content, plain or compressed.
#[derive(Debug)]
pub(crate) enum Source {
    Plain(File),
    Packed(Box<Unpacked>),
}

impl ReadAt for Source {
    fn read_at(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            Self::Plain(file) => ReadAt::read_at(file, buffer, offset),
            Self::Packed(unpacked) => unpacked.read_at(buffer, offset),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_exact() {
        let name = SegmentName(42);
        assert_eq!(name.to_string(), "00000000000000000042.jsonl");
        assert_eq!(SegmentName::parse(&name.to_string()), Some(name));
        for other in ["42.jsonl", "0000000000000000004x.jsonl", "00000000000000000042.json", "lock", ""] {
            assert_eq!(SegmentName::parse(other), None, "{other}");
        }
        assert_eq!(SegmentName::parse("99999999999999999999.jsonl"), None);
    }
}
