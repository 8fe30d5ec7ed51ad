//! The utilities of the default image, in one static multi-call binary.
//!
//! The image is made without a registry: this one file, and a symlink to it for each applet. The applet is chosen by
//! the base name that the binary was called by. What is here reads and reports; nothing deletes, and nothing talks to a
//! network (`sh` can redirect into files, which is what a shell is for). Options and output are those of the uutils
//! implementations, which follow GNU's.
//!
//! Most of them are over sooner than a program has started, and so the start is short: see [`sys`] and
//! [`applet::Applet`].

#![cfg_attr(all(target_env = "gnu", not(test)), no_main)]

mod applet;
mod find;
mod sh;
mod sys;

use std::{ffi::OsString, path::Path};

/// What shells answer for a command that does not exist.
const NOT_FOUND: i32 = 127;

/// Where it is not [`sys`] that has the entry: other C libraries hand arguments to the standard library's runtime alone.
#[cfg(any(not(target_env = "gnu"), test))]
fn main() {
    std::process::exit(run());
}

/// Runs the applet by whose name it was called, to its end: its exit code.
fn run() -> i32 {
    let args: Vec<OsString> = std::env::args_os().collect();
    let name = args.first().map(Path::new).and_then(Path::file_name).unwrap_or_default();
    if let Some(applet) = applet::named(name) {
        return applet.run(args);
    }
    let names: Vec<&str> = applet::ALL.iter().map(|applet| applet.name).collect();
    eprintln!("{}: call this binary by one of its names: {}", name.display(), names.join(" "));
    NOT_FOUND
}
