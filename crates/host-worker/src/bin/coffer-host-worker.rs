//! The host lane as a program of its own, for tests; `cofferd` carries the same entry inside.

use std::process::ExitCode;

fn main() -> ExitCode {
    cofferdam_host_worker::main()
}
