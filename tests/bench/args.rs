//! The command line.

use std::path::PathBuf;
use std::time::Duration;

const USAGE: &str = "\
The benchmark of the container lane.

  tests/bench.sh [--json FILE] [--check] [--rounds N] [--seconds N] [--tree DIRECTORY]

  --json FILE       also write everything that was measured
  --check           exit with 1 when a goal is missed
  --rounds N        rounds of each comparison (30)
  --seconds N       how long the load lasts (10)
  --tree DIRECTORY  the tree to search, copied from here (crates from cargo's registry)";

/// How to run.
#[derive(Debug)]
pub(crate) struct Args {
    pub(crate) json: Option<PathBuf>,
    pub(crate) check: bool,
    /// Rounds of each comparison.
    pub(crate) rounds: usize,
    /// Of the load.
    pub(crate) load: Duration,
    /// What is searched; cargo's registry when absent.
    pub(crate) tree: Option<PathBuf>,
}

impl Args {
    pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut parsed =
            Self { json: None, check: false, rounds: 30, load: Duration::from_secs(10), tree: None };
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value\n\n{USAGE}"));
            match arg.as_str() {
                "--json" => parsed.json = Some(value()?.into()),
                "--check" => parsed.check = true,
                "--rounds" => parsed.rounds = number(&value()?)?,
                "--seconds" => parsed.load = Duration::from_secs(number(&value()?)? as u64),
                "--tree" => parsed.tree = Some(value()?.into()),
                // cargo says so to every benchmark.
                "--bench" => {}
                _ => return Err(USAGE.to_owned()),
            }
        }
        Ok(parsed)
    }
}

fn number(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|&number| number > 0).ok_or_else(|| format!("{text}: not a number above 0"))
}
