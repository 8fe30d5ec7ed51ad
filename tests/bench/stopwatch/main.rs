//! Runs a program inside the container and says how long that took: `NANOSECONDS BYTES`, the latter of its output, which
//! is read to the end. So a program's own time is known without that of the exec that brought it in.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Instant;

fn main() {
    let mut words = std::env::args_os().skip(1);
    let program = words.next().expect("stopwatch PROGRAM ARGUMENTS…");
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut output = Vec::with_capacity(1 << 20);
    let began = Instant::now();
    let mut child = command.spawn().expect("the program starts");
    child.stdout.take().unwrap().read_to_end(&mut output).unwrap();
    child.wait().unwrap();
    println!("{} {}", began.elapsed().as_nanos(), output.len());
}
