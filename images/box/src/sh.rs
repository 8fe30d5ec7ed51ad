//! `sh`: dash, the shell that Debian has as `/bin/sh`, compiled from the C in `../dash`.
//!
//! A shell has to fork, hand signals on, and end at a broken pipe like any other program; the shells written in Rust
//! under a permissive licence emulate that with threads and hang in a pipeline that starts with a loop.

use std::ffi::OsString;

use crate::sys;

const CANNOT_START: i32 = 125;

pub(crate) fn main(args: Vec<OsString>) -> i32 {
    // Rust's runtime ignores SIGPIPE. A shell hands that on to everything that it starts.
    if uucore::signals::enable_pipe_errors().is_err() || uucore::disable_rust_signal_handlers().is_err() {
        eprintln!("sh: its signals cannot be set up");
        return CANNOT_START;
    }
    sys::dash(args)
}
