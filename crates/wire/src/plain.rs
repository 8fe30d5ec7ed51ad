//! The plain JSON of results, as models and logs are shown it: names as in the proto files, numbers as numbers, all fields.
//!
//! The messages derive it (`crates/wire/generate` says which). Choices, and texts that hold JSON, have a function here. Proto3 JSON
//! of a result is part of the message around it, and goes by the descriptors.

#![allow(clippy::trivially_copy_pass_by_ref)] // the signatures that serde asks for

use serde::ser::{Error as _, SerializeStruct as _};
use serde::{Serialize, Serializer};

use crate::v1::{
    ContentEncoding, McpContent, entry, exec_result, kill_evidence, mcp_content, patched_file, session_result,
};

pub(crate) fn encoding<S: Serializer>(encoding: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match ContentEncoding::try_from(*encoding) {
        Ok(ContentEncoding::Base64) => "base64",
        _ => "utf-8",
    })
}

pub(crate) fn entry_type<S: Serializer>(kind: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    entry::Type::try_from(*kind).unwrap_or_default().serialize(serializer)
}

pub(crate) fn change<S: Serializer>(change: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    patched_file::Change::try_from(*change).unwrap_or_default().serialize(serializer)
}

pub(crate) fn session_state<S: Serializer>(state: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    session_result::State::try_from(*state).unwrap_or_default().serialize(serializer)
}

pub(crate) fn is_zero(number: &u64) -> bool {
    *number == 0
}

pub(crate) fn ended_by<S: Serializer>(by: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    exec_result::EndedBy::try_from(*by).unwrap_or_default().word().serialize(serializer)
}

pub(crate) fn limits<S: Serializer>(limits: &[i32], serializer: S) -> Result<S::Ok, S::Error> {
    let limits = limits.iter().filter_map(|limit| exec_result::Limit::try_from(*limit).ok()?.word());
    serializer.collect_seq(limits)
}

pub(crate) fn method<S: Serializer>(method: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    kill_evidence::Method::try_from(*method).unwrap_or_default().word().serialize(serializer)
}

pub(crate) fn json<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serde_json::from_str::<serde_json::Value>(text).map_err(S::Error::custom)?.serialize(serializer)
}

/// After the Model Context Protocol: `type`, and the fields that such an item has.
impl Serialize for McpContent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use mcp_content::Type;
        let (name, fields): (_, &[(&'static str, &str)]) = match self.r#type() {
            Type::Text | Type::Unspecified => ("text", &[("text", &self.data)]),
            Type::Image => ("image", &[("mime_type", &self.mime_type), ("data", &self.data)]),
            Type::Audio => ("audio", &[("mime_type", &self.mime_type), ("data", &self.data)]),
            Type::Resource => {
                ("resource", &[("uri", &self.uri), ("mime_type", &self.mime_type), ("data", &self.data)])
            }
            Type::ResourceLink => {
                ("resource_link", &[("uri", &self.uri), ("name", &self.name), ("mime_type", &self.mime_type)])
            }
        };
        let mut item = serializer.serialize_struct("McpContent", fields.len() + 2)?;
        item.serialize_field("type", name)?;
        for (field, text) in fields {
            item.serialize_field(field, text)?;
        }
        if self.r#type() == Type::Resource {
            item.serialize_field("is_base64", &self.is_base64)?;
        }
        item.end()
    }
}
