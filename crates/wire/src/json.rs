//! Proto3 JSON of the API's messages, by their descriptors: no code is generated for it.
//!
//! As the protobuf specification's JSON mapping has it: lowerCamelCase names, 64-bit integers and bytes as strings,
//! enum values by name, fields without a value left out. Unknown fields are errors when JSON is read.

use std::sync::LazyLock;

use prost::{Message, Name};
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, SerializeOptions};
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The descriptors of all messages, without comments.
const MESSAGES: &[u8] = include_bytes!("generated/messages.bin");

pub(crate) static POOL: LazyLock<Result<DescriptorPool, String>> =
    LazyLock::new(|| DescriptorPool::decode(MESSAGES).map_err(|error| error.to_string()));

fn descriptor<M: Name>() -> Result<MessageDescriptor, String> {
    let pool = POOL.as_ref().map_err(Clone::clone)?;
    let name = M::full_name();
    pool.get_message_by_name(&name).ok_or_else(|| format!("{name} is not in the descriptors"))
}

fn serialize<M: Message + Name, S: Serializer>(message: &M, serializer: S) -> Result<S::Ok, S::Error> {
    let mut dynamic = DynamicMessage::new(descriptor::<M>().map_err(S::Error::custom)?);
    dynamic.transcode_from(message).map_err(S::Error::custom)?;
    dynamic.serialize_with_options(serializer, &SerializeOptions::new())
}

fn deserialize<'de, M: Message + Name + Default, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<M, D::Error> {
    let descriptor = descriptor::<M>().map_err(D::Error::custom)?;
    DynamicMessage::deserialize(descriptor, deserializer)?.transcode_to().map_err(D::Error::custom)
}

macro_rules! json_mapping {
    ($($message:ty),* $(,)?) => {$(
        impl Serialize for $message {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serialize(self, serializer)
            }
        }

        impl<'de> Deserialize<'de> for $message {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserialize(deserializer)
            }
        }
    )*};
}

include!("generated/cofferdam.v1.json.rs");

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::{from_str, from_value, json, to_value};

    use crate::Timestamp;
    use crate::v1::{CallResponse, TrashEntry, call_response::Status, entry::Type};

    #[test]
    fn messages_are_written_and_read_by_the_json_mapping() {
        let entry = TrashEntry {
            r#type: Type::File.into(),
            size_bytes: 5_000_000_000,
            deleted_at: Some(Timestamp { seconds: 1_000, nanos: 5_000_000 }),
            ..TrashEntry::default()
        };
        let json = to_value(&entry).unwrap();
        let expected =
            json!({ "type": "FILE", "sizeBytes": "5000000000", "deletedAt": "1970-01-01T00:16:40.005Z" });
        assert_eq!(json, expected);
        assert_eq!(from_value::<TrashEntry>(json).unwrap(), entry);

        let call = CallResponse { status: Status::Failed.into(), ..CallResponse::default() };
        assert_eq!(to_value(&call).unwrap(), json!({ "status": "FAILED" }));
    }

    #[test]
    fn a_field_that_a_message_does_not_have_is_named() {
        let error = from_value::<TrashEntry>(json!({ "sizeInBytes": 5 })).unwrap_err().to_string();
        assert!(error.contains("sizeInBytes"), "{error}");
        let error = from_str::<TrashEntry>("{\n 5}").unwrap_err();
        assert_eq!(error.line(), 2);
    }
}
