//! Builds the two static parts that `cofferd` carries inside: the agent and the utilities of the default image.
//!
//! A static binary needs `-C target-feature=+crt-static` on its own crates and not on build scripts and proc macros,
//! which one `cargo build` cannot express; so this script calls cargo once more, with a target directory of its own.
//! Packagers may give finished binaries instead, by `COFFER_AGENT_BINARY` and `COFFER_BOX_BINARY`.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

struct Part {
    package: &'static str,
    binary: &'static str,
    given_by: &'static str,
    embedded_as: &'static str,
}

const PARTS: [Part; 2] = [
    Part {
        package: "cofferdam-agent",
        binary: "coffer-agent",
        given_by: "COFFER_AGENT_BINARY",
        embedded_as: "COFFER_AGENT_EMBEDDED",
    },
    Part {
        package: "coffer-box",
        binary: "coffer-box",
        given_by: "COFFER_BOX_BINARY",
        embedded_as: "COFFER_BOX_EMBEDDED",
    },
];

/// What the static parts are made of, from the workspace's root.
const SOURCES: [&str; 8] = [
    "Cargo.toml",
    "proto",
    "crates/wire",
    "crates/jail",
    "crates/ops",
    "crates/worker",
    "crates/agent",
    "images/box",
];

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    for source in SOURCES {
        println!("cargo::rerun-if-changed={}", root.join(source).display());
    }
    let mut missing = Vec::new();
    for part in &PARTS {
        println!("cargo::rerun-if-env-changed={}", part.given_by);
        match std::env::var_os(part.given_by) {
            Some(given) => embed(part, Path::new(&given))?,
            None => missing.push(part),
        }
    }
    if !missing.is_empty() {
        build(&root, &missing)?;
    }
    Ok(())
}

fn build(root: &Path, parts: &[&Part]) -> Result<(), Box<dyn Error>> {
    let target = std::env::var("TARGET")?;
    let profile = if std::env::var("PROFILE")? == "release" { "static" } else { "static-dev" };
    let directory = target_directory()?.join("static");

    let mut cargo = Command::new(std::env::var_os("CARGO").ok_or("CARGO is not set")?);
    cargo
        .current_dir(root)
        .args(["build", "--profile", profile, "--target", &target, "--target-dir"])
        .arg(&directory);
    for part in parts {
        cargo.args(["--package", part.package]);
    }
    // What the outer cargo set up for this very build does not hold for the inner one.
    for inherited in
        ["RUSTFLAGS", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "CARGO_BUILD_TARGET", "CARGO_TARGET_DIR"]
    {
        cargo.env_remove(inherited);
    }
    cargo.env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+crt-static");
    if !cargo.status()?.success() {
        return Err(
            "the static parts (coffer-agent, coffer-box) did not build; see the messages above".into()
        );
    }
    for part in parts {
        embed(part, &directory.join(&target).join(profile).join(part.binary))?;
    }
    Ok(())
}

fn embed(part: &Part, binary: &Path) -> Result<(), Box<dyn Error>> {
    let binary =
        binary.canonicalize().map_err(|e| format!("{}: {}: {e}", part.given_by, binary.display()))?;
    println!("cargo::rustc-env={}={}", part.embedded_as, binary.display());
    Ok(())
}

/// `target/`, from `target/PROFILE/build/PACKAGE-HASH/out`.
fn target_directory() -> Result<PathBuf, Box<dyn Error>> {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    Ok(out.ancestors().nth(4).ok_or("OUT_DIR is not below a target directory")?.to_owned())
}
