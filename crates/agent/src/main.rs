//! coffer-agent: the container lane, one static binary mounted into any image.
//!
//! Two ways to run it: `hold` is PID 1 of every container; `serve` is started once a run by an exec of the engine and
//! executes the run's calls, which arrive as frames on its standard input. It has no privileges: it shares the uid of
//! the commands that it starts, so it must not be readable by them. Its file's mode (root's, 0711) sees to that from
//! the first instruction; being non-dumpable is asked for again here, for whoever installs it otherwise.

mod args;
mod call;
mod channel;
mod credit;
mod desk;
mod exec;
mod files;
mod fingerprint;
mod hello;
mod hold;
mod outbox;
mod serve;
mod streams;
mod sys;
mod threads;

use std::process::ExitCode;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::args::Command;

fn main() -> ExitCode {
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        eprintln!("coffer-agent: cannot become non-dumpable: {error}");
        return ExitCode::FAILURE;
    }
    match args::parse(std::env::args_os().skip(1)) {
        Ok(Command::Hold) => hold::run(),
        Ok(Command::Serve(mounts)) => match serve::run(mounts) {
            Ok(()) => ExitCode::SUCCESS,
            Err(fault) => {
                eprintln!("coffer-agent: {fault}");
                ExitCode::FAILURE
            }
        },
        Err(error) => {
            eprintln!("coffer-agent: {error}");
            ExitCode::from(2)
        }
    }
}
