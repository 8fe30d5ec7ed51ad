//! `write`: one file's whole content.

use jail::SandboxPath;
use serde_json::Value;
use wire::v1::WriteRequest;

use super::check::{content, required_path, sha256};
use super::{Describe, Encoding, Lane, Request, Sketch, Texts, stands_for};
use crate::{Malformed, decode_base64, encode_base64};

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
        let (content, encoding) = match std::str::from_utf8(&self.content) {
            Ok(text) => (text.to_owned(), Encoding::Utf8),
            Err(_) => (encode_base64(&self.content), Encoding::Base64),
        };
        WriteRequest {
            path: self.path.to_string(),
            content,
            if_match_sha256: self.if_match_sha256.clone().unwrap_or_default(),
            create_only: self.create_only,
            encoding: encoding.into(),
        }
    }

    fn sketch(message: &WriteRequest) -> Sketch<'_> {
        Sketch("write", vec![("path", Texts::One(&message.path))])
    }
}

impl Describe for Write {
    fn kind(&self) -> &'static str {
        "write"
    }

    fn lane(&self) -> Lane {
        Lane::Host
    }

    fn has_effect(&self) -> bool {
        true
    }

    fn paths(&self) -> Vec<&SandboxPath> {
        vec![&self.path]
    }

    fn hide_contents(&self, message: &mut Value) {
        message["content"] = stands_for(&self.content);
    }
}
