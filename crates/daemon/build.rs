//! Builds the static `coffer-guest` that `cofferd` carries inside.
//!
//! A static binary needs `-C target-feature=+crt-static` on its own crates and not on build scripts and proc macros,
//! which one `cargo build` cannot express; so this script calls cargo once more, with a target directory of its own.
//! Packagers may give a finished binary instead, by `COFFER_AGENT_BINARY`.

use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest as _, Sha256};

/// Path of a finished guest.
const GIVEN_BY: &str = "COFFER_AGENT_BINARY";

/// What the guest is made of, from the workspace's root.
const SOURCES: [&str; 6] =
    ["Cargo.toml", "crates/wire", "crates/jail", "crates/ops", "crates/worker-protocol", "crates/guest"];

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    for source in SOURCES {
        println!("cargo::rerun-if-changed={}", root.join(source).display());
    }
    println!("cargo::rerun-if-env-changed={GIVEN_BY}");
    let guest = match std::env::var_os(GIVEN_BY) {
        Some(given) => PathBuf::from(given),
        None => build(&root)?,
    };
    let guest = guest.canonicalize().map_err(|e| format!("{GIVEN_BY}: {}: {e}", guest.display()))?;
    println!("cargo::rustc-env=COFFER_AGENT_EMBEDDED={}", guest.display());
    println!("cargo::rustc-env=COFFER_AGENT_SHA256={}", hex::encode(Sha256::digest(std::fs::read(&guest)?)));
    Ok(())
}

/// Builds the guest; its path.
fn build(root: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let target = std::env::var("TARGET")?;
    let (directory, outer) = target_directory()?;
    let profile = if outer == "release" { "static" } else { "static-dev" };
    let directory = directory.join("static");

    let mut cargo = Command::new(std::env::var_os("CARGO").ok_or("CARGO is not set")?);
    cargo
        .current_dir(root)
        .args(["build", "--package", "cofferdam-guest", "--profile", profile, "--target", &target])
        .arg("--target-dir")
        .arg(&directory);
    // What the outer cargo set up for this very build does not hold for the inner one.
    for inherited in
        ["RUSTFLAGS", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "CARGO_BUILD_TARGET", "CARGO_TARGET_DIR"]
    {
        cargo.env_remove(inherited);
    }
    cargo.env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+crt-static");
    if !cargo.status()?.success() {
        return Err("the static coffer-guest did not build; see the messages above".into());
    }
    Ok(directory.join(&target).join(profile).join("coffer-guest"))
}

/// `target/` and the name of the profile, from `target/PROFILE/build/PACKAGE-HASH/out`. Cargo's `PROFILE` says only which
/// of its own two the profile comes from.
fn target_directory() -> Result<(PathBuf, OsString), Box<dyn Error>> {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let profile = out.ancestors().nth(3).ok_or("OUT_DIR is not below a target directory")?;
    let target = profile.parent().ok_or("OUT_DIR is not below a target directory")?;
    Ok((target.to_owned(), profile.file_name().unwrap_or_default().to_owned()))
}
