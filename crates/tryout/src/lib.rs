#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod cleanup;
mod coffer;
mod config;
mod daemon;
mod demo;
mod failure;
mod init;
mod needs;
mod project;
mod sample;
mod say;
mod signals;
mod story;
mod up;

pub use demo::Demo;
pub use failure::Failure;
pub use init::Init;
pub use up::{Down, Up, lets_decide_own};

/// Commands of `coffer` for a first look.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    Demo(Demo),
    Up(Up),
    Down(Down),
    Init(Init),
}

impl Command {
    /// Executes the command.
    pub async fn run(self) -> Result<(), Failure> {
        match self {
            Self::Demo(demo) => demo.run().await,
            Self::Up(up) => up.run().await,
            Self::Down(down) => down.run().await,
            Self::Init(init) => init.run(),
        }
    }
}
