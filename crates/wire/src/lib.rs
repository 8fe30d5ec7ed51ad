#![doc = include_str!("../README.md")]

#[cfg(feature = "grpc")]
pub mod ids;
#[cfg(feature = "grpc")]
pub mod json;
mod plain;

pub use prost::UnknownEnumValue;
pub use prost_types::{Duration, Timestamp};

/// A duration as the API has it. One that is too long for it becomes the longest that it has.
#[must_use]
pub fn duration(duration: std::time::Duration) -> Duration {
    Duration {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        nanos: duration.subsec_nanos().cast_signed(),
    }
}

/// The public API, `cofferdam.v1`.
#[allow(missing_docs, clippy::all, clippy::pedantic, unreachable_pub, unused_qualifications)] // generated
pub mod v1 {
    include!("generated/cofferdam.v1.rs");
}

impl From<v1::operation::Kind> for v1::call_request::Request {
    fn from(kind: v1::operation::Kind) -> Self {
        Self::Operation(v1::Operation { kind: Some(kind) })
    }
}

impl From<v1::DialectCall> for v1::call_request::Request {
    fn from(call: v1::DialectCall) -> Self {
        Self::Dialect(call)
    }
}

impl From<v1::result::Kind> for v1::Result {
    fn from(kind: v1::result::Kind) -> Self {
        Self { kind: Some(kind) }
    }
}

impl v1::CallResponse {
    /// The result, by the operation that returned it.
    #[must_use]
    pub fn kind(&self) -> Option<&v1::result::Kind> {
        self.result.as_ref()?.kind.as_ref()
    }

    /// The same, without the rest of the answer.
    #[must_use]
    pub fn into_kind(self) -> Option<v1::result::Kind> {
        self.result?.kind
    }
}

impl v1::result::Kind {
    /// How a command ended, where the result is that of one: of `exec` or `shell`.
    #[must_use]
    pub fn command(&self) -> Option<&v1::ExecResult> {
        match self {
            Self::Exec(result) | Self::Shell(result) => Some(result),
            _ => None,
        }
    }
}

/// Gives enums the names of their values in texts for models, people and logs.
macro_rules! words {
    ($($choice:ty),*) => {$(
        impl $choice {
            /// Returns the name in lower case, with hyphens. `None` for the value that means none.
            #[must_use]
            pub fn word(self) -> Option<String> {
                let name = self.as_str_name();
                (self != Self::Unspecified).then(|| name.to_ascii_lowercase().replace('_', "-"))
            }
        }
    )*};
}

words!(v1::exec_result::EndedBy, v1::exec_result::Limit, v1::kill_evidence::Method);

/// The private protocol of the two lanes, `cofferdam.worker.v1`.
pub mod worker {
    #[allow(missing_docs, clippy::all, clippy::pedantic, unreachable_pub, unused_qualifications)] // generated
    pub mod v1 {
        include!("generated/cofferdam.worker.v1.rs");
    }
}

/// The encoded `FileDescriptorSet` of all proto files, for server reflection and JSON.
pub const DESCRIPTORS: &[u8] = include_bytes!("generated/descriptors.bin");

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prost::Message as _;
    use prost_types::FileDescriptorSet;
    use prost_types::method_options::IdempotencyLevel;

    /// Clients repeat a request by itself if its method has a level, and any other by its request id.
    #[test]
    fn methods_that_may_be_repeated_take_neither_a_stream_nor_a_request_id() {
        let files = FileDescriptorSet::decode(super::DESCRIPTORS).unwrap().file;
        let messages = files.iter().flat_map(|file| {
            let has_id = |message: &&prost_types::DescriptorProto| {
                message.field.iter().any(|field| field.name() == "request_id")
            };
            let name =
                |message: &prost_types::DescriptorProto| format!(".{}.{}", file.package(), message.name());
            file.message_type.iter().filter(has_id).map(name)
        });
        let by_id: BTreeSet<String> = messages.collect();
        assert!(by_id.contains(".cofferdam.v1.CallRequest"), "{by_id:?}");
        let methods = files.iter().flat_map(|file| &file.service).flat_map(|service| &service.method);
        let (marked, others): (Vec<_>, Vec<_>) = methods.partition(|method| {
            let level = method.options.as_ref().map(prost_types::MethodOptions::idempotency_level);
            level.is_some_and(|level| level != IdempotencyLevel::IdempotencyUnknown)
        });
        for method in &marked {
            let level = method.options.as_ref().map(prost_types::MethodOptions::idempotency_level);
            // A request that only looks has an id to look for.
            let is_key =
                level != Some(IdempotencyLevel::NoSideEffects) && by_id.contains(method.input_type());
            assert!(!method.client_streaming() && !is_key, "{}", method.name());
        }
        for looks in ["Get", "List", "Watch", "Query"] {
            assert!(others.iter().all(|method| !method.name().starts_with(looks)), "{looks}");
        }
        assert!(!marked.is_empty() && !others.is_empty());
    }
}
