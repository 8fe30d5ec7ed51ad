//! `read`: one regular file, or a part of it.

use jail::SandboxPath;
use serde_json::{Value, json};
use wire::v1::{ContentEncoding, ReadRequest, ReadResult};

use super::check::{known, required_path};
use super::{Answer, Class, Describe, Effect, Encoding, Lane, Request, Sketch};
use crate::Malformed;

pub(super) const CLASS: Class = Class { name: "read", lane: Lane::Container, effect: Effect::Reads };

/// Read one regular file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// The file.
    pub path: SandboxPath,
    /// Which part.
    pub part: ReadPart,
    /// Encoding of the returned content.
    pub encoding: Encoding,
}

/// Which part of a file to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReadPart {
    /// All of it.
    #[default]
    Whole,
    /// Lines, 1-based and inclusive; `last: None` is the end of the file.
    Lines {
        /// First line, at least 1.
        first: u64,
        /// Last line, not before `first`.
        last: Option<u64>,
    },
    /// Bytes.
    Bytes {
        /// First byte, 0-based.
        offset: u64,
        /// How many; `None` is to the end of the file.
        limit: Option<u64>,
    },
}

impl Request for Read {
    type Message = ReadRequest;

    fn parse(message: ReadRequest) -> Result<Self, Malformed> {
        Ok(Self {
            path: required_path("read.path", &message.path)?,
            part: part(&message)?,
            encoding: Encoding::parse("read.encoding", message.encoding)?,
        })
    }

    fn message(&self) -> ReadRequest {
        let (mut lines, mut bytes) = ((None, None), (None, None));
        match self.part {
            ReadPart::Whole => {}
            ReadPart::Lines { first, last } => lines = (Some(first), last),
            ReadPart::Bytes { offset, limit } => bytes = (Some(offset), limit),
        }
        ReadRequest {
            path: self.path.to_string(),
            start_line: lines.0,
            end_line: lines.1,
            offset: bytes.0,
            limit: bytes.1,
            encoding: self.encoding.into(),
        }
    }

    fn sketch(message: &ReadRequest) -> Sketch {
        (CLASS.name, json!({ "path": message.path }))
    }
}

fn part(message: &ReadRequest) -> Result<ReadPart, Malformed> {
    let &ReadRequest { start_line, end_line, offset, limit, .. } = message;
    let lines = start_line.is_some() || end_line.is_some();
    let bytes = offset.is_some() || limit.is_some();
    match (lines, bytes) {
        (true, true) => Err(Malformed::new("read", "takes lines or bytes, not both")),
        (true, false) => {
            let first = start_line.unwrap_or(1);
            if first == 0 {
                return Err(Malformed::new("read.start_line", "counts from 1"));
            }
            if end_line.is_some_and(|last| last < first) {
                return Err(Malformed::new("read.end_line", "must not be before the first line"));
            }
            Ok(ReadPart::Lines { first, last: end_line })
        }
        (false, true) => Ok(ReadPart::Bytes { offset: offset.unwrap_or(0), limit }),
        (false, false) => Ok(ReadPart::Whole),
    }
}

impl Describe for Read {
    fn class(&self) -> Class {
        CLASS
    }

    fn paths(&self) -> Vec<&SandboxPath> {
        vec![&self.path]
    }
}

impl Answer for ReadResult {
    fn check(&mut self) -> Result<(), Malformed> {
        known(self.encoding() != ContentEncoding::Unspecified, "read.encoding")
    }

    fn facts(&self) -> Value {
        json!({
            "path": self.path, "size_bytes": self.size_bytes, "sha256": self.sha256,
            "returned_bytes": self.content.len(), "truncated": self.truncated,
        })
    }
}

impl Encoding {
    pub(super) fn parse(field: &str, encoding: i32) -> Result<Self, Malformed> {
        match ContentEncoding::try_from(encoding) {
            Ok(ContentEncoding::Unspecified | ContentEncoding::Utf8) => Ok(Self::Utf8),
            Ok(ContentEncoding::Base64) => Ok(Self::Base64),
            Err(_) => Err(Malformed::new(field, "is unknown")),
        }
    }
}

impl From<Encoding> for i32 {
    fn from(encoding: Encoding) -> Self {
        match encoding {
            Encoding::Utf8 => ContentEncoding::Utf8,
            Encoding::Base64 => ContentEncoding::Base64,
        }
        .into()
    }
}
