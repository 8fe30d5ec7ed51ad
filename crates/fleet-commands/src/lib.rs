#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod envoy;
mod haproxy;
mod nodes;
mod write;

use clap::Subcommand;
use command_context::client::Context;
use presentation::failure::Ended;

/// A command of `coffer fleet`.
#[derive(Debug, Subcommand)]
pub enum Command {
    Envoy(envoy::Envoy),
    Haproxy(haproxy::Haproxy),
}

impl Command {
    /// Executes the command.
    pub fn run(self, context: &Context) -> Ended {
        match self {
            Self::Envoy(envoy) => envoy.run(context),
            Self::Haproxy(haproxy) => haproxy.run(context),
        }
    }
}
