//! The command line.

use std::path::PathBuf;

use clap::Parser;

/// The daemon in which coding agents work: hardened containers, permissions, approvals, and a tamper-evident record.
#[derive(Debug, Parser)]
#[command(
    name = "cofferd",
    version,
    after_help = "Example:\n  cofferd --config /etc/cofferdam/cofferd.yaml\n\nThen, in another terminal: coffer doctor; coffer run create --help"
)]
pub(crate) struct Args {
    /// The configuration, YAML.
    #[arg(
        long,
        value_name = "FILE",
        env = "COFFERDAM_CONFIG",
        default_value = "/etc/cofferdam/cofferd.yaml"
    )]
    pub(crate) config: PathBuf,

    /// Only say whether the configuration is in order.
    #[arg(long)]
    pub(crate) check_config: bool,

    /// Only print the configuration that would be in force, defaults filled in.
    #[arg(long, conflicts_with = "check_config")]
    pub(crate) print_config: bool,
}
