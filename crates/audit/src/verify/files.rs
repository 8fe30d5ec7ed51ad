//! The files of a log that is verified: a directory, or a place of the caller.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

use crate::packed::Unpacked;
use crate::segment::{self, Segment, Source};
use crate::storage::LONGEST_FILE;

/// The files of a log, for a verification. Names are those of [`crate::files_to_copy`].
pub trait LogFiles {
    /// Returns the names of the files beside the segments and of the segments, or of the files in the directory `beneath`.
    fn names(&self, beneath: Option<&str>) -> io::Result<Vec<String>>;

    /// Opens a file for reading, with a position of its own. `None` if it is not there.
    fn open(&self, name: &str) -> io::Result<Option<File>>;

    /// Returns the length of a file in bytes.
    fn length(&self, name: &str) -> io::Result<u64>;
}

/// A log in a directory.
pub(super) struct Directory<'a>(pub(super) &'a Path);

impl LogFiles for Directory<'_> {
    fn names(&self, beneath: Option<&str>) -> io::Result<Vec<String>> {
        let entries = match beneath {
            None => fs::read_dir(self.0)?,
            Some(beneath) => match fs::read_dir(self.0.join(beneath)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                entries => entries?,
            },
        };
        let mut names = Vec::new();
        for entry in entries {
            // No file of a log has another name.
            names.extend(entry?.file_name().into_string().ok());
        }
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<Option<File>> {
        segment::existing(&self.0.join(name))
    }

    fn length(&self, name: &str) -> io::Result<u64> {
        Ok(self.0.join(name).metadata()?.len())
    }
}

/// Reads a small file. The part after [`LONGEST_FILE`] is cut off.
pub(super) fn load(files: &dyn LogFiles, name: &str) -> io::Result<Option<Vec<u8>>> {
    let Some(file) = files.open(name)? else { return Ok(None) };
    let mut bytes = Vec::new();
    file.take(LONGEST_FILE).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Returns the segments in the order of the log.
pub(super) fn segments(files: &dyn LogFiles) -> io::Result<Vec<Segment>> {
    Ok(segment::among(files.names(None)?))
}

/// Opens a segment in its present form, which may have changed since it was listed.
pub(super) fn open(files: &dyn LogFiles, segment: Segment) -> io::Result<Source> {
    if let Some(file) = files.open(&Segment::plain(segment.name).to_string())? {
        return Ok(Source::Plain(file));
    }
    let packed = Segment { packed: true, ..segment };
    let file = files.open(&packed.to_string())?.ok_or(io::ErrorKind::NotFound)?;
    Ok(Source::Packed(Box::new(Unpacked::new(file)?)))
}

/// Returns true if a segment is compressed and cannot be unpacked completely.
pub(super) fn is_spoilt(files: &dyn LogFiles, segment: Segment) -> io::Result<bool> {
    if !segment.packed {
        return Ok(false);
    }
    let file = files.open(&segment.to_string())?.ok_or(io::ErrorKind::NotFound)?;
    Ok(crate::packed::length(file)?.is_none())
}
