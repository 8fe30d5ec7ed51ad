//! `write`: the whole content of one file, or an archive to unpack.

use jail::{Mount, SandboxPath};
use serde_json::{Value, json};
use wire::v1::{UploadedContent, WriteRequest, WriteResult};

use super::check::{any_path, content, permissions, sha256};
use super::{Answer, Class, Describe, Effect, Encoding, Lane, Request, Sketch, Transfer, stands_for};
use crate::{CommandLimits, Malformed, decode_base64, encode_base64};

pub(super) const CLASS: Class = Class { name: "write", lane: Lane::Host, effect: Effect::Writes };

/// Create or overwrite one file, or unpack an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The file, or the directory in which an archive is unpacked.
    pub path: SandboxPath,
    /// The file's whole new content, decoded. Empty if the content was uploaded.
    pub content: Vec<u8>,
    /// Uploaded content, in place of `content`.
    pub uploaded: Option<Uploaded>,
    /// Permission bits; `None`: those of the file that is replaced, else 0644.
    pub mode: Option<u32>,
    /// SHA-256 that the present content must have, lower-case hex, 64 digits.
    pub if_match_sha256: Option<String>,
    /// Refuse if the file exists already.
    pub create_only: bool,
}

/// Content that the daemon keeps in the run's private directory until the call uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uploaded {
    pub id: UploadId,
    /// Bytes.
    pub size: u64,
    /// Lower-case hex.
    pub sha256: String,
    /// True for a tar archive to unpack, false for the content of a file.
    pub archive: bool,
}

/// Prefix of the file name of content that the container lane will use.
const STAGED: &str = ".cofferdam-upload-";

/// Name of an upload and of its file: a UUID in lower-case hex with hyphens.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UploadId(String);

impl UploadId {
    pub fn parse(field: &str, text: &str) -> Result<Self, Malformed> {
        let is_hyphen = |at: usize| matches!(at, 8 | 13 | 18 | 23);
        let fits = |(at, byte): (usize, u8)| match byte {
            b'-' => is_hyphen(at),
            b'0'..=b'9' | b'a'..=b'f' => !is_hyphen(at),
            _ => false,
        };
        if text.len() == 36 && text.bytes().enumerate().all(fits) {
            Ok(Self(text.to_owned()))
        } else {
            Err(Malformed::new(field, "is not a UUID in lower-case hexadecimal digits with hyphens"))
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the path at which the container lane finds the content.
    pub fn staged(&self) -> Option<SandboxPath> {
        SandboxPath::parse(&format!("@state/{STAGED}{}", self.0)).ok()
    }

    /// Returns the upload whose content has this name in `@state`.
    pub fn of_staged(name: &str) -> Option<Self> {
        Self::parse("name", name.strip_prefix(STAGED)?).ok()
    }
}

impl Uploaded {
    fn parse(message: UploadedContent) -> Result<Self, Malformed> {
        let UploadedContent { upload_id, size_bytes, sha256: hash, archive } = message;
        Ok(Self {
            id: UploadId::parse("write.uploaded.upload_id", &upload_id)?,
            size: size_bytes,
            sha256: sha256("write.uploaded.sha256", hash)?
                .ok_or_else(|| Malformed::new("write.uploaded.sha256", "is missing"))?,
            archive,
        })
    }

    fn message(&self) -> UploadedContent {
        UploadedContent {
            upload_id: self.id.as_str().to_owned(),
            size_bytes: self.size,
            sha256: self.sha256.clone(),
            archive: self.archive,
        }
    }
}

impl Write {
    /// Creates or overwrites a file without conditions.
    pub fn new(path: SandboxPath, content: impl Into<Vec<u8>>) -> Self {
        let content = content.into();
        Self { path, content, uploaded: None, mode: None, if_match_sha256: None, create_only: false }
    }

    /// Returns the number of bytes of the content or of the archive.
    pub fn size(&self) -> u64 {
        self.uploaded.as_ref().map_or(self.content.len() as u64, |uploaded| uploaded.size)
    }
}

impl Request for Write {
    type Message = WriteRequest;

    fn parse(message: WriteRequest, _: CommandLimits) -> Result<Self, Malformed> {
        let path = any_path("write.path", &message.path)?;
        let bytes = match Encoding::parse("write.encoding", message.encoding)? {
            Encoding::Utf8 => message.content.into_bytes(),
            Encoding::Base64 => decode_base64(&message.content)
                .ok_or_else(|| Malformed::new("write.content", "is not RFC 4648 base64 with padding"))?,
        };
        content("write.content", &bytes)?;
        let uploaded = message.uploaded.map(Uploaded::parse).transpose()?;
        if uploaded.is_some() && !bytes.is_empty() {
            return Err(Malformed::new("write", "has a content or an upload, not both"));
        }
        let conditional =
            message.create_only || !message.if_match_sha256.is_empty() || message.mode.is_some();
        if conditional && uploaded.as_ref().is_some_and(|uploaded| uploaded.archive) {
            return Err(Malformed::new("write", "of an archive can have neither a mode nor a condition"));
        }
        Ok(Self {
            path,
            content: bytes,
            uploaded,
            mode: permissions("write.mode", message.mode)?,
            if_match_sha256: sha256("write.if_match_sha256", message.if_match_sha256)?,
            create_only: message.create_only,
        })
    }

    fn message(&self) -> WriteRequest {
        let text = std::str::from_utf8(&self.content).map(str::to_owned);
        let content = text.unwrap_or_else(|_| encode_base64(&self.content));
        WriteRequest { content, ..self.outline() }
    }

    fn outline(&self) -> WriteRequest {
        let is_text = std::str::from_utf8(&self.content).is_ok();
        WriteRequest {
            path: self.path.to_string(),
            content: String::new(),
            if_match_sha256: self.if_match_sha256.clone().unwrap_or_default(),
            create_only: self.create_only,
            encoding: if is_text { Encoding::Utf8 } else { Encoding::Base64 }.into(),
            uploaded: self.uploaded.as_ref().map(Uploaded::message),
            mode: self.mode,
        }
    }

    fn sketch(message: &WriteRequest) -> Sketch {
        (CLASS.name, json!({ "path": message.path }))
    }
}

impl Describe for Write {
    fn class(&self) -> Class {
        CLASS
    }

    fn paths(&self) -> Vec<&SandboxPath> {
        vec![&self.path]
    }

    fn written_bytes(&self) -> usize {
        usize::try_from(self.size()).unwrap_or(usize::MAX)
    }

    fn transfer(&self) -> Option<Transfer> {
        let kind = |uploaded: &Uploaded| if uploaded.archive { Transfer::Archive } else { Transfer::File };
        self.uploaded.as_ref().map(kind)
    }

    fn staging(&self) -> Option<Write> {
        let uploaded = self.uploaded.clone().filter(|_| self.path.mount() == Mount::Container)?;
        let path = uploaded.id.staged()?;
        let uploaded = Some(Uploaded { archive: false, ..uploaded });
        Some(Self { uploaded, mode: Some(0o600), ..Self::new(path, Vec::new()) })
    }

    /// The preview of a write is the difference that it would make.
    fn preview_kind(&self) -> &'static str {
        super::edit::CLASS.name
    }

    fn hide_contents(&self, message: &mut Value) {
        message["content"] = match &self.uploaded {
            Some(uploaded) => json!({ "bytes": uploaded.size, "sha256": uploaded.sha256 }),
            None => stands_for(&self.content),
        };
    }
}

impl Answer for WriteResult {
    fn facts(&self) -> Value {
        let mut facts = json!({
            "path": self.path, "bytes_written": self.bytes_written, "created": self.created,
            "sha256_before": self.sha256_before, "sha256_after": self.sha256_after,
        });
        if self.entries > 0 {
            facts["entries"] = self.entries.into();
        }
        facts
    }
}
