//! Has the console carry xterm.js, if `deploy/console-assets.sh` has fetched it. Without it, recordings are shown as text.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

const FILES: [&str; 2] = ["xterm.js", "xterm.css"];

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-env-changed=COFFERDAM_CONSOLE_ASSETS");
    println!("cargo::rerun-if-changed=build.rs");
    let [manifest, out] = ["CARGO_MANIFEST_DIR", "OUT_DIR"].map(|name| env::var_os(name).map(PathBuf::from));
    let (Some(manifest), Some(out)) = (manifest, out) else {
        return Err(io::Error::other("cargo starts this script"));
    };
    let named = env::var_os("COFFERDAM_CONSOLE_ASSETS").map(PathBuf::from);
    let assets = named.unwrap_or_else(|| manifest.join("../../target/console-assets"));
    // The directory as a whole: cargo would look at a file that is missing as changed, each time.
    println!(
        "cargo::rerun-if-changed={}",
        if assets.exists() { assets.clone() } else { manifest.join("assets") }.display()
    );
    let code = if FILES.iter().all(|name| assets.join(name).is_file()) {
        for name in FILES {
            fs::copy(assets.join(name), out.join(name))?;
        }
        let part = |name: &str| format!("include_bytes!({:?})", path(&out.join(name)));
        format!(
            "const XTERM: Option<Xterm> = Some(Xterm {{ script: {}, style: {} }});\n",
            part(FILES[0]),
            part(FILES[1])
        )
    } else {
        "const XTERM: Option<Xterm> = None;\n".to_owned()
    };
    fs::write(out.join("xterm.rs"), code)
}

fn path(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
