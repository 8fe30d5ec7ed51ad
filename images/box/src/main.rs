//! The utilities of the default image, in one static multi-call binary.
//!
//! The image is made without a registry: this one file, and a symlink to it for each applet. The applet is chosen by
//! the base name that the binary was called by. What is here reads and reports; nothing deletes, and nothing talks to a
//! network (`sh` can redirect into files, which is what a shell is for). Options and output are those of the uutils
//! implementations, which follow GNU's.

mod applet;
mod find;
mod sh;
mod sys;

use std::{ffi::OsString, path::Path, process::ExitCode};

/// What shells answer for a command that does not exist.
const NOT_FOUND: u8 = 127;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    let name = args.first().map(Path::new).and_then(Path::file_name).unwrap_or_default();
    if let Some(applet) = applet::named(name) {
        return applet.run(args);
    }
    let names: Vec<&str> = applet::ALL.iter().map(|applet| applet.name).collect();
    eprintln!("{}: call this binary by one of its names: {}", name.display(), names.join(" "));
    ExitCode::from(NOT_FOUND)
}
