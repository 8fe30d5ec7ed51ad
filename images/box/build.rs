//! Compiles dash, the applet `sh`.

use std::{io, path::PathBuf};

fn main() -> io::Result<()> {
    stay_in_place();

    println!("cargo::rerun-if-changed=dash");
    let mut dash = cc::Build::new();
    dash.files(c_files("dash")?)
        .files(c_files("dash/bltin")?)
        .include("dash")
        .define("BSD", "1")
        .define("SHELL", None)
        // The entry takes another name, for this binary has a `main` already.
        .define("main", "dash_main")
        .flag("-include")
        .flag("dash/config.h")
        .std("gnu11")
        .warnings(false);
    if std::env::var("CARGO_CFG_TARGET_ENV").as_deref() == Ok("musl") {
        for name in ["stat", "lstat", "fstat", "open", "readdir", "dirent"] {
            dash.define(&format!("{name}64"), name);
        }
    }
    dash.try_compile("dash").map_err(io::Error::other)
}

/// As a static program it is linked for a fixed address: otherwise 13,000 relocations come before each `main`, which was
/// the larger part of what `true` cost. Nothing here is worth the randomisation: these are the commands of the run, and
/// whoever takes one over gets what the next argument vector would have given.
fn stay_in_place() {
    let is = |name: &str, wanted: &str| {
        std::env::var(name).is_ok_and(|values| values.split(',').any(|value| value == wanted))
    };
    if is("CARGO_CFG_TARGET_FEATURE", "crt-static") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        println!("cargo::rustc-link-arg-bins=-static");
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}

fn c_files(directory: &str) -> io::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory)?.map(|entry| Ok(entry?.path()));
    let mut files = entries.collect::<io::Result<Vec<_>>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "c"));
    files.sort();
    Ok(files)
}
