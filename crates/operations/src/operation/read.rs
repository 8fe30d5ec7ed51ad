//! `read`: one regular file, or a part of it.

use jail::SandboxPath;
use serde_json::{Value, json};
use wire::v1::{self, ContentEncoding, ReadRequest, ReadResult};

use super::check::{any_path, known};
use super::{Answer, Class, Delivery, Describe, Effect, Encoding, Lane, Request, Sketch};
use crate::{CommandLimits, Malformed};

pub(super) const CLASS: Class = Class { name: "read", lane: Lane::Container, effect: Effect::Reads };

/// Read one regular file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// The file.
    pub path: SandboxPath,
    /// The part to read.
    pub part: ReadPart,
    /// Encoding of the returned content.
    pub encoding: Encoding,
    /// Set for a client that downloads the content, starting at the offset of `part`.
    pub transfer: Option<Transfer>,
}

/// Kind of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transfer {
    File,
    /// A directory, as a tar archive.
    Archive,
}

/// Part of a file to read.
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
        /// Number of bytes; `None` is to the end of the file.
        limit: Option<u64>,
    },
}

impl Read {
    /// Reads a whole file as text.
    pub fn new(path: SandboxPath) -> Self {
        Self { path, part: ReadPart::Whole, encoding: Encoding::Utf8, transfer: None }
    }
}

impl Request for Read {
    type Message = ReadRequest;

    fn parse(message: ReadRequest, _: CommandLimits) -> Result<Self, Malformed> {
        let (part, transfer) = (part(&message)?, transfer(message.transfer)?);
        let whole = matches!(part, ReadPart::Whole | ReadPart::Bytes { offset: 0, limit: None });
        let from = matches!(part, ReadPart::Bytes { limit: None, .. });
        if transfer == Some(Transfer::Archive) && !whole
            || transfer == Some(Transfer::File) && !whole && !from
        {
            return Err(Malformed::new(
                "read.transfer",
                "needs a whole directory, or a file from an offset on",
            ));
        }
        Ok(Self {
            path: any_path("read.path", &message.path)?,
            part,
            encoding: Encoding::parse("read.encoding", message.encoding)?,
            transfer,
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
            transfer: match self.transfer {
                None => v1::Transfer::Unspecified,
                Some(Transfer::File) => v1::Transfer::File,
                Some(Transfer::Archive) => v1::Transfer::Archive,
            }
            .into(),
        }
    }

    fn sketch(message: &ReadRequest) -> Sketch {
        (CLASS.name, json!({ "path": message.path }))
    }
}

fn transfer(transfer: i32) -> Result<Option<Transfer>, Malformed> {
    match v1::Transfer::try_from(transfer) {
        Ok(v1::Transfer::Unspecified | v1::Transfer::None) => Ok(None),
        Ok(v1::Transfer::File) => Ok(Some(Transfer::File)),
        Ok(v1::Transfer::Archive) => Ok(Some(Transfer::Archive)),
        Err(_) => Err(Malformed::new("read.transfer", "is unknown")),
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

    fn delivery(&self) -> Delivery {
        if self.transfer.is_some() { Delivery::Stream } else { Delivery::Look }
    }

    fn transfer(&self) -> Option<Transfer> {
        self.transfer
    }
}

impl Answer for ReadResult {
    fn check(&mut self) -> Result<(), Malformed> {
        known(self.encoding() != ContentEncoding::Unspecified, "read.encoding")
    }

    fn facts(&self) -> Value {
        let mut facts = json!({
            "path": self.path, "size_bytes": self.size_bytes, "sha256": self.sha256,
            "returned_bytes": self.content.len(), "truncated": self.truncated,
        });
        for (name, number) in
            [("sent_bytes", self.sent_bytes), ("entries", self.entries), ("left_out", self.left_out)]
        {
            if number > 0 {
                facts[name] = number.into();
            }
        }
        facts
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
