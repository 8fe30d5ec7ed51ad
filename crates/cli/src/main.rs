#![doc = include_str!("../README.md")]

mod approval;
mod audit;
mod backup;
mod base;
mod bundle;
mod call;
mod checkpoint;
mod cli;
mod completions;
mod console;
mod cp;
mod egress;
mod endpoint;
mod host_path;
mod limits;
mod manual;
mod mcp;

mod passkey;
mod permission;
mod plan;
mod policy;
mod process;
mod run;
mod session;
mod tls;
mod token;
mod transcript;
mod trash;
mod upgrade;
mod verbs;
mod workspace;

use std::process::ExitCode;

use command_context::{client, companions, follow, run_ref, variables};
use presentation::{ending, exit, failure, ids, output, quantity, time, ui};
use text::{clean, outlet};

use crate::cli::Cli;
use crate::exit::Exit;
use crate::failure::Ended;
use crate::ui::Ui;

fn main() -> ExitCode {
    let cli = Cli::read();
    let ui = Ui::new(cli.globals.output);
    let exit = match start(cli, ui) {
        Ok(exit) => exit,
        Err(failure) if failure.reader_left() => Exit::Ok,
        Err(failure) => {
            ui.fail(&failure);
            failure.exit()
        }
    };
    exit.into()
}

fn start(cli: Cli, ui: Ui) -> Ended {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(cli.run(ui))
}
