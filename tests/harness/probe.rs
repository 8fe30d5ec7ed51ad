//! Programs for inside of containers: the attacker's, `tests/probe`, one that finds out what there is, `tests/offers`, and an MCP
//! server, `tests/mcp_server`. Compiled
//! statically with plain `rustc`, once for each version of their source.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the attacker's program is.
pub fn probe() -> PathBuf {
    compiled("probe")
}

/// Returns the path of the program that finds out what a container offers.
pub fn offers() -> PathBuf {
    compiled("offers")
}

/// Where the MCP server is.
pub fn mcp_server() -> PathBuf {
    compiled("mcp_server")
}

fn compiled(name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    let mut files: Vec<PathBuf> = source.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in files {
        std::fs::read(file).unwrap().hash(&mut hasher);
    }
    let directory = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let built = directory.join(format!("security-{name}-{:016x}", hasher.finish()));
    if !built.exists() {
        // Several tests may be here at the same time, in processes of their own.
        let workshop = tempfile::tempdir_in(&directory).unwrap();
        let own = workshop.path().join(name);
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let status = Command::new(rustc)
            .args(["--edition=2024", "-O", "-C", "target-feature=+crt-static", "-C", "strip=symbols", "-o"])
            .arg(&own)
            .arg(source.join("main.rs"))
            .status()
            .unwrap();
        assert!(status.success(), "{name} does not compile");
        std::fs::rename(own, &built).unwrap();
    }
    built
}
