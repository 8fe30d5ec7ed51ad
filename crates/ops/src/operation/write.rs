//! `write`: one file's whole content.

use jail::SandboxPath;
use serde_json::{Value, json};
use wire::v1::{WriteRequest, WriteResult};

use super::check::{content, required_path, sha256};
use super::{Answer, Class, Describe, Effect, Encoding, Lane, Request, Sketch, stands_for};
use crate::{Malformed, decode_base64, encode_base64};

pub(super) const CLASS: Class = Class { name: "write", lane: Lane::Host, effect: Effect::Writes };

/// Create or overwrite one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The file.
    pub path: SandboxPath,
    /// Its whole new content, decoded.
    pub content: Vec<u8>,
    /// SHA-256 that the present content must have, lower-case hex, 64 digits.
    pub if_match_sha256: Option<String>,
    /// Refuse when there is a file already.
    pub create_only: bool,
}

impl Request for Write {
    type Message = WriteRequest;

    fn parse(message: WriteRequest) -> Result<Self, Malformed> {
        let path = required_path("write.path", &message.path)?;
        let bytes = match Encoding::parse("write.encoding", message.encoding)? {
            Encoding::Utf8 => message.content.into_bytes(),
            Encoding::Base64 => decode_base64(&message.content)
                .ok_or_else(|| Malformed::new("write.content", "is not RFC 4648 base64 with padding"))?,
        };
        content("write.content", &bytes)?;
        Ok(Self {
            path,
            content: bytes,
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
        self.content.len()
    }

    fn hide_contents(&self, message: &mut Value) {
        message["content"] = stands_for(&self.content);
    }
}

impl Answer for WriteResult {
    fn facts(&self) -> Value {
        json!({
            "path": self.path, "bytes_written": self.bytes_written, "created": self.created,
            "sha256_before": self.sha256_before, "sha256_after": self.sha256_after,
        })
    }
}
