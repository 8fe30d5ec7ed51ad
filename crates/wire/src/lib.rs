//! Generated code of the public API and of the private worker protocol, and nothing else.
//!
//! The proto files are the documentation: `proto/cofferdam/v1` and `proto/cofferdam/worker/v1`.

/// The public API, `cofferdam.v1`.
#[allow(missing_docs, clippy::all, clippy::pedantic, unreachable_pub, unused_qualifications)] // generated
pub mod v1 {
    include!(concat!(env!("OUT_DIR"), "/cofferdam.v1.rs"));
    #[cfg(feature = "grpc")]
    include!(concat!(env!("OUT_DIR"), "/cofferdam.v1.serde.rs"));
}

/// The private protocol of the two lanes, `cofferdam.worker.v1`.
pub mod worker {
    #[allow(missing_docs, clippy::all, clippy::pedantic, unreachable_pub, unused_qualifications)] // generated
    pub mod v1 {
        include!(concat!(env!("OUT_DIR"), "/cofferdam.worker.v1.rs"));
    }
}

/// The encoded `FileDescriptorSet` of all proto files, for server reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
