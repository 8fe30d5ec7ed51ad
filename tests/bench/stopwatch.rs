//! Makes the program that measures other programs inside the container: `stopwatch/main.rs`, compiled statically with
//! plain `rustc`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles it into `directory`.
pub(crate) fn compile(directory: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("bench/stopwatch/main.rs");
    let program = directory.join("stopwatch");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let status = Command::new(rustc)
        .args(["--edition=2024", "-O", "-C", "target-feature=+crt-static", "-C", "strip=symbols", "-o"])
        .arg(&program)
        .arg(source)
        .status()
        .unwrap();
    assert!(status.success(), "the stopwatch does not compile");
    program
}
