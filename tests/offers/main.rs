//! A program that finds out what a container offers to programs: a small static one that needs no file of an image.
//!
//! The test of `tests/e2e/offers.rs` compiles it with plain `rustc`, so it depends on nothing but the standard library. It
//! prints one line for each row of the table in `images/README.md`: `NAME<tab>VALUE`. A value says what came of it in one
//! word, or is the name of an error.

#![no_main]

mod calls;
mod errors;
mod files;
mod names;
mod process;

use std::fmt::Display;

/// Without the start-up of Rust's library, which would change how signals are treated.
#[unsafe(no_mangle)]
pub extern "C" fn main() -> i32 {
    // A copy that only shows that it can be started.
    if std::env::var_os("OFFERS_IS_CHILD").is_some() {
        return 0;
    }
    process::rows();
    names::rows();
    files::rows();
    calls::rows();
    0
}

fn row(name: &str, value: impl Display) {
    println!("{name}\t{value}");
}
