//! Builds the static `coffer-guest`, `coffer-host-worker` and `coffer-egress` that `cofferd` embeds.
//!
//! A static binary needs `-C target-feature=+crt-static` on its own crates, but not on build scripts and proc macros.
//! One `cargo build` cannot express that, so this script calls cargo once more, with a separate target directory.
//! Packagers can supply finished binaries instead, in `COFFER_GUEST_BINARY`, `COFFER_HOST_WORKER_BINARY` and `COFFER_EGRESS_BINARY`.

use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest as _, Sha256};

/// The embedded programs, and the prefixes of their environment variables.
const PROGRAMS: [(&str, &str); 3] = [
    ("coffer-guest", "COFFER_GUEST"),
    ("coffer-host-worker", "COFFER_HOST_WORKER"),
    ("coffer-egress", "COFFER_EGRESS"),
];

/// Source paths of the programs, from the workspace's root. A change in one of them runs this script again.
const SOURCES: [&str; 17] = [
    "Cargo.lock",
    "Cargo.toml",
    "crates/confinement",
    "crates/egress-rules",
    "crates/egress-worker",
    "crates/file-ops",
    "crates/git-remote",
    "crates/git-wire",
    "crates/guest",
    "crates/host-launch",
    "crates/host-worker",
    "crates/jail",
    "crates/operations",
    "crates/signature-twins",
    "crates/text",
    "crates/wire",
    "crates/worker-protocol",
];

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    for source in SOURCES {
        println!("cargo::rerun-if-changed={}", root.join(source).display());
    }
    let given = PROGRAMS.map(|(_, variable)| {
        let given_by = format!("{variable}_BINARY");
        println!("cargo::rerun-if-env-changed={given_by}");
        let given = std::env::var_os(given_by).map(PathBuf::from);
        if let Some(given) = &given {
            println!("cargo::rerun-if-changed={}", given.display());
        }
        given
    });
    let built = if given.iter().all(Option::is_some) { PathBuf::new() } else { build(&root)? };
    let own = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    for ((name, variable), given) in PROGRAMS.into_iter().zip(given) {
        let program = given.unwrap_or_else(|| built.join(name));
        let bytes = std::fs::read(&program).map_err(|e| format!("{}: {e}", program.display()))?;
        let digest = hex::encode(Sha256::digest(&bytes));
        // A copy, because builds with other settings share the target directory, and so the program would change after its digest was taken.
        let program = own.join(name);
        std::fs::write(&program, bytes)?;
        println!("cargo::rustc-env={variable}_EMBEDDED={}", program.display());
        println!("cargo::rustc-env={variable}_SHA256={digest}");
    }
    Ok(())
}

/// Builds the programs and returns the directory that contains them.
fn build(root: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let target = std::env::var("TARGET")?;
    let (directory, outer) = target_directory()?;
    let profile = if outer == "release" { "static" } else { "static-dev" };
    let directory = directory.join("static");

    let mut cargo = Command::new(std::env::var_os("CARGO").ok_or("CARGO is not set")?);
    cargo
        .current_dir(root)
        .arg("build")
        .args(
            ["cofferdam-guest", "cofferdam-host-worker", "cofferdam-egress-worker"]
                .map(|name| format!("--package={name}")),
        )
        .arg("--bins")
        .args(["--profile", profile, "--target", &target])
        .arg("--target-dir")
        .arg(&directory);
    // Settings that the outer cargo made for this build do not hold for the inner one.
    for inherited in
        ["RUSTFLAGS", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "CARGO_BUILD_TARGET", "CARGO_TARGET_DIR"]
    {
        cargo.env_remove(inherited);
    }
    cargo.env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+crt-static");
    if !cargo.status()?.success() {
        return Err("the static programs did not build; see the messages above".into());
    }
    Ok(directory.join(&target).join(profile))
}

/// Returns `target/` and the name of the profile, from `target/PROFILE/build/PACKAGE-HASH/out`.
///
/// Cargo's `PROFILE` variable names only the built-in profile that the profile inherits from.
fn target_directory() -> Result<(PathBuf, OsString), Box<dyn Error>> {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let profile = out.ancestors().nth(3).ok_or("OUT_DIR is not below a target directory")?;
    let target = profile.parent().ok_or("OUT_DIR is not below a target directory")?;
    Ok((target.to_owned(), profile.file_name().unwrap_or_default().to_owned()))
}
