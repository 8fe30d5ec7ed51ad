//! Makes the programs that measure inside the container, `stopwatch/main.rs` and `caller/main.rs`: compiled statically with
//! plain `rustc`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles one of them into `directory`.
pub(crate) fn compile(name: &str, directory: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("bench").join(name).join("main.rs");
    let program = directory.join(name);
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let status = Command::new(rustc)
        .args(["--edition=2024", "-O", "-C", "target-feature=+crt-static", "-C", "strip=symbols", "-o"])
        .arg(&program)
        .arg(source)
        .status()
        .unwrap();
    assert!(status.success(), "the {name} does not compile");
    program
}
