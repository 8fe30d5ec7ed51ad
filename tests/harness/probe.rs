//! The attacker's program: `tests/probe`, compiled statically with plain `rustc`, once for each version of its source.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the compiled program is.
pub fn probe() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("probe");
    let mut files: Vec<PathBuf> = source.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in files {
        std::fs::read(file).unwrap().hash(&mut hasher);
    }
    let directory = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let built = directory.join(format!("security-probe-{:016x}", hasher.finish()));
    if !built.exists() {
        // Several tests may be here at the same time, in processes of their own.
        let workshop = tempfile::tempdir_in(&directory).unwrap();
        let own = workshop.path().join("probe");
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let status = Command::new(rustc)
            .args(["--edition=2024", "-O", "-C", "target-feature=+crt-static", "-C", "strip=symbols", "-o"])
            .arg(&own)
            .arg(source.join("main.rs"))
            .status()
            .unwrap();
        assert!(status.success(), "the probe does not compile");
        std::fs::rename(own, &built).unwrap();
    }
    built
}
