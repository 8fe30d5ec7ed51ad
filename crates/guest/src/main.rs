#![doc = include_str!("../README.md")]

mod args;
mod call;
mod channel;
mod children;
mod companion;
mod credit;
mod drain;
mod exec;
mod execute;
mod fault;
mod files;
mod fingerprint;
mod hello;
mod init;
mod keep;
mod lane;
mod outbox;
mod outside;
mod relay;
mod serve;
mod streams;
mod sweep;
mod sys;
mod terminal_input;
mod threads;
mod transfer;

use std::process::ExitCode;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::args::Command;

fn ended(ended: Result<(), fault::Fault>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("coffer-guest: {fault}");
            ExitCode::FAILURE
        }
    }
}

fn main() -> ExitCode {
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        eprintln!("coffer-guest: cannot become non-dumpable: {error}");
        return ExitCode::FAILURE;
    }
    match args::parse(std::env::args_os().skip(1)) {
        Ok(Command::Hold) => init::run(),
        Ok(Command::Serve(serve)) => ended(serve::run(serve)),
        Ok(Command::Keep) => ended(keep::run()),
        Ok(Command::Relay) => ended(relay::run()),
        Ok(Command::Sweep) => sweep::run(),
        Ok(Command::Drain) => drain::run(),
        Ok(Command::Companion) => companion::run(),
        Err(error) => {
            eprintln!("coffer-guest: {error}");
            ExitCode::from(2)
        }
    }
}
