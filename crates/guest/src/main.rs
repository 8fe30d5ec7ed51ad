#![doc = include_str!("../README.md")]

mod args;
mod call;
mod channel;
mod children;
mod credit;
mod exec;
mod execute;
mod fault;
mod files;
mod fingerprint;
mod hello;
mod init;
mod lane;
mod outbox;
mod serve;
mod streams;
mod sys;
mod terminal_input;
mod threads;

use std::process::ExitCode;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::args::Command;

fn main() -> ExitCode {
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        eprintln!("coffer-guest: cannot become non-dumpable: {error}");
        return ExitCode::FAILURE;
    }
    match args::parse(std::env::args_os().skip(1)) {
        Ok(Command::Hold) => init::run(),
        Ok(Command::Serve(mounts)) => match serve::run(mounts) {
            Ok(()) => ExitCode::SUCCESS,
            Err(fault) => {
                eprintln!("coffer-guest: {fault}");
                ExitCode::FAILURE
            }
        },
        Err(error) => {
            eprintln!("coffer-guest: {error}");
            ExitCode::from(2)
        }
    }
}
