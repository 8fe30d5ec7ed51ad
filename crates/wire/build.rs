//! Compiles the proto files without a `protoc` binary, and keeps the descriptor set for reflection.

#![allow(clippy::disallowed_methods)] // a build script writes what it makes

use std::path::{Path, PathBuf};

use prost::Message;

const FILES: &[&str] = &[
    "cofferdam/v1/operation.proto",
    "cofferdam/v1/mcp.proto",
    "cofferdam/v1/run.proto",
    "cofferdam/v1/tool.proto",
    "cofferdam/v1/approval.proto",
    "cofferdam/v1/audit.proto",
    "cofferdam/v1/bundle.proto",
    "cofferdam/v1/alert.proto",
    "cofferdam/v1/query.proto",
    "cofferdam/v1/permission.proto",
    "cofferdam/v1/explain.proto",
    "cofferdam/v1/checkpoint.proto",
    "cofferdam/v1/policy.proto",
    "cofferdam/v1/limit.proto",
    "cofferdam/v1/terminal.proto",
    "cofferdam/v1/trash.proto",
    "cofferdam/v1/transcript.proto",
    "cofferdam/worker/v1/worker.proto",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    println!("cargo::rerun-if-changed={}", proto.display());

    let grpc = std::env::var_os("CARGO_FEATURE_GRPC").is_some();
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let descriptors = protox::compile(FILES, [&proto])?;
    let bytes = descriptors.encode_to_vec();
    std::fs::write(out.join("descriptors.bin"), &bytes)?;

    let mut config = prost_build::Config::new();
    config.enable_type_names();
    // In their order, so that equal messages have equal bytes: a repeated request is told by them.
    config.btree_map([".cofferdam"]);
    // Raw bytes of files and frames are shared, not copied.
    config.bytes([".cofferdam.worker.v1.Output"]);
    if grpc {
        config.compile_well_known_types();
        config.extern_path(".google.protobuf", "::pbjson_types");
    }
    tonic_prost_build::configure()
        .build_client(grpc)
        .build_server(grpc)
        .compile_fds_with_config(descriptors, config)?;
    if grpc {
        pbjson_build::Builder::new()
            .register_descriptors(&bytes)?
            .btree_map([".cofferdam"])
            .build(&[".cofferdam.v1"])?;
    }
    Ok(())
}
