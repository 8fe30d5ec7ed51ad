//! The attacker: a small static program that the security tests run inside of runs.
//!
//! The tests compile it with plain `rustc`, so it depends on nothing but the standard library. It prints one line for
//! each thing that it tried, `NAME ok` or `NAME ERRNO`; what must come of it is for the test to know.

mod calls;
mod churn;
mod exhaust;
mod layer;
mod look;
mod net;
mod peers;
mod place;
mod swap;
mod sys;
mod tree;
mod window;

use std::env;
use std::fmt::Display;
use std::io;

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["calls"] => calls::from_stdin(),
        ["writable"] => look::writable(),
        ["special-files"] => look::special_files(),
        ["find", text] => look::find(text),
        ["read", paths @ ..] => look::read(paths),
        ["list", paths @ ..] => look::list(paths),
        ["environment"] => look::environment(),
        ["processes"] => look::processes(),
        ["connect", targets @ ..] => net::connect(targets),
        ["listen-abstract", name, ready] => net::listen_abstract(name, ready),
        ["peers"] => peers::attack(),
        ["signal-agent", number] => peers::signal_agent(number),
        ["signal-first"] => peers::signal_first(),
        ["signal-all", number] => peers::signal_all(number),
        ["place", kind, paths @ ..] => place::place(kind, paths),
        ["swap", one, other, ready, stop] => swap::swap(one, other, ready, stop),
        ["churn", directory, ready, stop] => churn::churn(directory, ready, stop),
        ["window"] => window::size(),
        ["tree", kind, count, end] => tree::grow(kind, count, end),
        ["layer-work"] => layer::work(),
        ["layer-attack", outside] => layer::attack(outside),
        ["layer-deep"] => report("deep", layer::deep()),
        ["hop"] => tree::hop(),
        ["bomb"] => exhaust::bomb(),
        ["chains", count] => exhaust::chains(count),
        ["forks"] => exhaust::forks(),
        ["memory"] => exhaust::memory(),
        ["file", path, bytes] => exhaust::file(path, bytes),
        ["fill", directory] => exhaust::fill(directory),
        ["flood", bytes] => exhaust::flood(bytes),
        _ => {
            eprintln!("no such attempt: {words:?}");
            std::process::exit(64);
        }
    }
}

/// Prints what came of an attempt.
fn report<T>(name: impl Display, result: io::Result<T>) {
    match result {
        Ok(_) => println!("{name} ok"),
        Err(error) => println!("{name} {}", error.raw_os_error().map_or(-1, |errno| errno)),
    }
}

/// The result of a call that answers -1 on failure.
fn check(result: impl Into<i64>) -> io::Result<i64> {
    match result.into() {
        -1 => Err(io::Error::last_os_error()),
        value => Ok(value),
    }
}
