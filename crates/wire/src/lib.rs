#![doc = include_str!("../README.md")]

#[cfg(feature = "grpc")]
pub mod json;

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

/// The private protocol of the two lanes, `cofferdam.worker.v1`.
pub mod worker {
    #[allow(missing_docs, clippy::all, clippy::pedantic, unreachable_pub, unused_qualifications)] // generated
    pub mod v1 {
        include!("generated/cofferdam.worker.v1.rs");
    }
}

/// The encoded `FileDescriptorSet` of all proto files, for server reflection and JSON.
pub const DESCRIPTORS: &[u8] = include_bytes!("generated/descriptors.bin");
