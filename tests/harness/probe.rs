//! Programs for inside of containers: the attacker's, `tests/probe`, one that finds out what there is, `tests/offers`, and an MCP
//! server, `tests/mcp_server`. Compiled statically with plain `rustc`, once for each version of their source; the one that finds
//! out, with the C library in files of the image as well.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the attacker's program is.
pub fn probe() -> PathBuf {
    compiled("probe", Libc::Static)
}

/// Returns the path of the program that finds out what a container offers.
pub fn offers() -> PathBuf {
    offers_with(Libc::Static)
}

/// Returns the same program with its C library there.
pub fn offers_with(libc: Libc) -> PathBuf {
    compiled("offers", libc)
}

/// Where the MCP server is.
pub fn mcp_server() -> PathBuf {
    compiled("mcp_server", Libc::Static)
}

/// Place of a program's C library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Libc {
    /// In the program.
    Static,
    /// In files of the image, as in Debian's and in distroless images.
    Shared,
}

impl Libc {
    fn option(self) -> &'static str {
        match self {
            Self::Static => "target-feature=+crt-static",
            Self::Shared => "target-feature=-crt-static",
        }
    }
}

fn compiled(name: &str, libc: Libc) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    let mut files: Vec<PathBuf> = source.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in files {
        std::fs::read(file).unwrap().hash(&mut hasher);
    }
    let directory = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let built = directory.join(format!("security-{name}-{libc:?}-{:016x}", hasher.finish()));
    if !built.exists() {
        // Several tests may be here at the same time, in processes of their own.
        let workshop = tempfile::tempdir_in(&directory).unwrap();
        let own = workshop.path().join(name);
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let status = Command::new(rustc)
            .args(["--edition=2024", "-O", "-C", libc.option(), "-C", "strip=symbols", "-o"])
            .arg(&own)
            .arg(source.join("main.rs"))
            .status()
            .unwrap();
        assert!(status.success(), "{name} does not compile");
        std::fs::rename(own, &built).unwrap();
    }
    built
}
