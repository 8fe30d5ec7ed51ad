//! The command line.

use std::path::PathBuf;

use clap::Parser;

/// The daemon in which coding agents work: hardened containers, permissions, approvals, and a tamper-evident record.
#[derive(Debug, Parser)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of the command line")]
#[command(
    name = "cofferd",
    version,
    after_help = "Example:\n  cofferd --config /etc/cofferdam/cofferd.yaml\n\nThen, in another terminal: coffer doctor; coffer run create --help"
)]
pub(crate) struct Args {
    /// The configuration, YAML. Default: COFFERDAM_CONFIG, or /etc/cofferdam/cofferd.yaml.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Only say whether configuration and policy are in order, so that the daemon could start.
    #[arg(long)]
    pub(crate) check_config: bool,

    /// Only print the configuration that would be in force, defaults filled in.
    #[arg(long, conflicts_with = "check_config")]
    pub(crate) print_config: bool,

    /// Take over from the daemon that serves this state_dir: its sockets, its runs and their processes. It goes on if this one fails.
    #[arg(long, conflicts_with_all = ["check_config", "print_config"])]
    pub(crate) take_over: bool,

    /// Have the daemon that serves this state_dir start this program, which takes over. Waits until the program serves.
    #[arg(long, conflicts_with_all = ["check_config", "print_config", "take_over"])]
    pub(crate) upgrade: bool,

    /// Only say what would not survive an upgrade to this program.
    #[arg(long, conflicts_with_all = ["check_config", "print_config", "take_over", "upgrade"])]
    pub(crate) check_upgrade: bool,

    /// Only print the version of this program, and those of its data and protocols, as JSON.
    #[arg(long, conflicts_with_all = ["check_config", "print_config", "take_over", "upgrade", "check_upgrade"])]
    pub(crate) versions: bool,

    /// For the daemon alone: watches its successor.
    #[arg(long, hide = true)]
    pub(crate) guard: bool,

    /// For the daemon alone: the configuration that was in force before its successor failed.
    #[arg(long, hide = true, requires = "resume", value_name = "FILE")]
    pub(crate) kept: Option<PathBuf>,

    /// For the daemon alone: goes on after its successor failed.
    #[arg(long, hide = true, conflicts_with = "take_over")]
    pub(crate) resume: bool,
}

impl Args {
    /// Returns the path of the configuration file.
    ///
    /// clap does not read the variable itself. If it did, the usage line of every error would show `--config` while the
    /// variable is set.
    pub(crate) fn config(&self) -> PathBuf {
        let named =
            || std::env::var_os("COFFERDAM_CONFIG").filter(|path| !path.is_empty()).map(PathBuf::from);
        self.config.clone().or_else(named).unwrap_or_else(|| "/etc/cofferdam/cofferd.yaml".into())
    }
}
