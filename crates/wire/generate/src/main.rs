//! Generates `crates/wire/src/generated` from `proto/`, or checks that it is up to date.
//!
//! ```sh
//! crates/wire/generate.sh                                               # after a change of a proto file
//! cargo run --manifest-path crates/wire/generate/Cargo.toml -- --check  # exit code 1 and a message on a difference
//! ```
//!
//! The generated code is committed, so that a build of cofferd compiles neither a protobuf compiler nor a code
//! generator. `tests/run.sh` compares digests of sources and results, and runs the check with `--long`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use heck::{ToSnakeCase as _, ToUpperCamelCase as _};
use prost::Message;
use prost_types::{DescriptorProto, FileDescriptorSet, MessageOptions};

/// Behind this feature of `cofferdam-wire` are the gRPC clients and servers: the two lanes need the messages only.
const SERVICES: &str = "#[cfg(feature = \"grpc\")]";

/// The one result that `plain.rs` itself serialises.
const SERIALIZED: &str = "McpContent";

/// What is not said as it is stored.
const PLAIN_FIELDS: [(&str, &str); 17] = [
    // Only transfers have these.
    ("ReadResult.sent_bytes", "skip_serializing_if = \"crate::plain::is_zero\""),
    ("ReadResult.entries", "skip_serializing_if = \"crate::plain::is_zero\""),
    ("ReadResult.left_out", "skip_serializing_if = \"crate::plain::is_zero\""),
    ("WriteResult.entries", "skip_serializing_if = \"crate::plain::is_zero\""),
    ("ReadResult.encoding", "serialize_with = \"crate::plain::encoding\""),
    ("Entry.type", "serialize_with = \"crate::plain::entry_type\""),
    ("DeleteResult.type", "serialize_with = \"crate::plain::entry_type\""),
    ("PatchedFile.change", "serialize_with = \"crate::plain::change\""),
    ("PatchedFile.moved_from", "skip_serializing_if = \"String::is_empty\""),
    ("PatchedFile.trash_entry", "skip_serializing_if = \"String::is_empty\""),
    ("SessionResult.state", "serialize_with = \"crate::plain::session_state\""),
    ("SessionResult.ended_by", "serialize_with = \"crate::plain::ended_by\""),
    ("ExecResult.ended_by", "serialize_with = \"crate::plain::ended_by\""),
    // For those who count results, and not for models.
    ("ExecResult.evidence", "skip"),
    ("ExecResult.limits_hit", "serialize_with = \"crate::plain::limits\""),
    ("KillEvidence.method", "serialize_with = \"crate::plain::method\""),
    (
        "McpResult.structured_content_json",
        "rename = \"structured_content\", serialize_with = \"crate::plain::json\", skip_serializing_if = \"String::is_empty\"",
    ),
];

fn main() -> Result<()> {
    let check = match std::env::args().nth(1).as_deref() {
        None => false,
        Some("--check") => true,
        Some(other) => bail!("unknown argument {other}: the only one is --check"),
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize()?;
    let made = generate(&root.join("proto"))?;
    let directory = root.join("crates/wire/src/generated");
    if check { compare(&made, &directory) } else { replace(&made, &directory) }
}

/// The generated files by their names.
fn generate(proto: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let files = proto_files(proto)?;
    let descriptors = protox::compile(&files, [proto])?;
    let mut made = BTreeMap::from([
        ("descriptors.bin".to_owned(), descriptors.encode_to_vec()),
        ("messages.bin".to_owned(), without_comments(&descriptors).encode_to_vec()),
    ]);

    let out = tempfile::tempdir()?;
    let mut config = prost_build::Config::new();
    config.enable_type_names();
    // Sorted maps: equal messages have equal bytes, and the daemon recognises a repeated request by its bytes.
    config.btree_map(["."]);
    // Raw bytes of files and frames are shared, not copied.
    config.bytes([
        ".cofferdam.worker.v1.Output",
        ".cofferdam.v1.UploadFileRequest",
        ".cofferdam.v1.UploadArchiveRequest",
        ".cofferdam.v1.DownloadFileResponse",
        ".cofferdam.v1.DownloadArchiveResponse",
    ]);
    let plain = results(&descriptors);
    for message in plain.iter().filter(|message| *message != SERIALIZED) {
        config.type_attribute(format!(".cofferdam.v1.{message}"), "#[derive(serde::Serialize)]");
    }
    for choice in ["Entry.Type", "PatchedFile.Change"] {
        config.type_attribute(
            format!(".cofferdam.v1.{choice}"),
            "#[derive(serde::Deserialize)] #[serde(rename_all = \"lowercase\")]",
        );
    }
    config.type_attribute(".cofferdam.v1.Result.kind", "#[derive(serde::Serialize)] #[serde(untagged)]");
    for (field, attribute) in PLAIN_FIELDS {
        config.field_attribute(format!(".cofferdam.v1.{field}"), format!("#[serde({attribute})]"));
    }
    tonic_prost_build::configure()
        .out_dir(out.path())
        .client_mod_attribute(".", SERVICES)
        .server_mod_attribute(".", SERVICES)
        .compile_fds_with_config(descriptors.clone(), config)?;
    for name in ["cofferdam.v1.rs", "cofferdam.worker.v1.rs"] {
        made.insert(name.to_owned(), fs::read(out.path().join(name))?);
    }
    made.insert("cofferdam.v1.json.rs".to_owned(), json_mapping(&descriptors, &plain).into_bytes());
    Ok(made)
}

/// For the JSON of messages: where comments stand in the proto files takes six times the memory of all the rest when it is decoded.
fn without_comments(descriptors: &FileDescriptorSet) -> FileDescriptorSet {
    let mut bare = descriptors.clone();
    for file in &mut bare.file {
        file.source_code_info = None;
    }
    bare
}

/// Results of operations and their parts. They have serde's own form beside that of proto3: the one that models are shown, see
/// `plain.rs`.
fn results(descriptors: &FileDescriptorSet) -> Vec<String> {
    let messages: Vec<&DescriptorProto> =
        descriptors.file.iter().flat_map(|file| &file.message_type).collect();
    let mut found = vec!["Result"];
    for at in 0.. {
        let Some(&name) = found.get(at) else { break };
        let fields =
            messages.iter().filter(|message| message.name() == name).flat_map(|message| &message.field);
        for part in fields.filter_map(|field| field.type_name().strip_prefix(".cofferdam.v1.")) {
            if messages.iter().any(|message| message.name() == part) && !found.contains(&part) {
                found.push(part);
            }
        }
    }
    found.into_iter().skip(1).map(str::to_owned).collect()
}

/// The list of the public API's messages, for the macro in `json.rs` that gives each its JSON.
fn json_mapping(descriptors: &FileDescriptorSet, plain: &[String]) -> String {
    let mut names = Vec::new();
    for file in descriptors.file.iter().filter(|file| file.package() == "cofferdam.v1") {
        add_messages(&file.message_type, "crate::v1", plain, &mut names);
    }
    names.sort();
    format!("// This file is @generated.\njson_mapping! {{\n    {},\n}}\n", names.join(",\n    "))
}

/// Adds the paths of these messages and of those within them, without those that have serde's own form. Entries of maps are no
/// messages in Rust.
fn add_messages(messages: &[DescriptorProto], path: &str, plain: &[String], names: &mut Vec<String>) {
    for message in
        messages.iter().filter(|message| !message.options.as_ref().is_some_and(MessageOptions::map_entry))
    {
        if !plain.iter().any(|plain| plain == message.name()) {
            names.push(format!("{path}::{}", message.name().to_upper_camel_case()));
        }
        let path = format!("{path}::{}", message.name().to_snake_case());
        add_messages(&message.nested_type, &path, plain, names);
    }
}

/// Every proto file below the directory, relative to it, in the order of their names.
fn proto_files(proto: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut directories = vec![proto.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "proto") {
                files.push(path.strip_prefix(proto)?.to_owned());
            }
        }
    }
    files.sort();
    Ok(files)
}

fn compare(made: &BTreeMap<String, Vec<u8>>, directory: &Path) -> Result<()> {
    for (name, contents) in made {
        if fs::read(directory.join(name)).ok().as_ref() != Some(contents) {
            bail!("crates/wire/src/generated/{name} does not match the proto files: run `just generate`");
        }
    }
    Ok(())
}

fn replace(made: &BTreeMap<String, Vec<u8>>, directory: &Path) -> Result<()> {
    fs::create_dir_all(directory)?;
    for (name, contents) in made {
        fs::write(directory.join(name), contents).with_context(|| name.clone())?;
    }
    Ok(())
}
