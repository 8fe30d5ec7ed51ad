//! Requests to read a file and to list a directory.

use super::Malformed;
use super::check::{path_or_root, required_path, within};
use crate::{Encoding, Operation, ReadPart};

/// Becomes [`crate::Read`].
#[derive(Debug, Clone, Default)]
pub struct Read {
    /// Required.
    pub path: String,
    /// 1-based, inclusive. Not together with bytes.
    pub start_line: Option<u64>,
    /// 1-based, inclusive. Not together with bytes.
    pub end_line: Option<u64>,
    /// 0-based. Not together with lines.
    pub offset: Option<u64>,
    /// Bytes. Not together with lines.
    pub limit: Option<u64>,
    /// Of the returned content.
    pub encoding: Encoding,
}

impl Read {
    /// Validates.
    pub fn into_operation(self) -> Result<Operation, Malformed> {
        let path = required_path("read.path", &self.path)?;
        Ok(Operation::Read(crate::Read { path, part: self.part()?, encoding: self.encoding }))
    }

    fn part(&self) -> Result<ReadPart, Malformed> {
        let lines = self.start_line.is_some() || self.end_line.is_some();
        let bytes = self.offset.is_some() || self.limit.is_some();
        match (lines, bytes) {
            (true, true) => Err(Malformed::new("read", "takes lines or bytes, not both")),
            (true, false) => {
                let first = self.start_line.unwrap_or(1);
                if first == 0 {
                    return Err(Malformed::new("read.start_line", "counts from 1"));
                }
                if self.end_line.is_some_and(|last| last < first) {
                    return Err(Malformed::new("read.end_line", "must not be before the first line"));
                }
                Ok(ReadPart::Lines { first, last: self.end_line })
            }
            (false, true) => Ok(ReadPart::Bytes { offset: self.offset.unwrap_or(0), limit: self.limit }),
            (false, false) => Ok(ReadPart::Whole),
        }
    }
}

/// Becomes [`crate::List`].
#[derive(Debug, Clone, Default)]
pub struct List {
    /// Default `@project`.
    pub path: String,
    /// 1 to 16, default 1.
    pub depth: Option<u32>,
    /// Include names that begin with a dot.
    pub include_hidden: bool,
    /// Include symbolic links.
    pub include_symlinks: bool,
    /// 1 to 10,000, default 200.
    pub max_entries: Option<u32>,
}

impl List {
    /// Validates.
    pub fn into_operation(self) -> Result<Operation, Malformed> {
        Ok(Operation::List(crate::List {
            path: path_or_root("list.path", &self.path)?,
            depth: within("list.depth", self.depth, 1, 1, 16)?,
            include_hidden: self.include_hidden,
            include_symlinks: self.include_symlinks,
            max_entries: within("list.max_entries", self.max_entries, 200, 1, 10_000)?,
        }))
    }
}
