//! The command line.

use std::path::PathBuf;
use std::time::Duration;

const USAGE: &str = "\
The benchmark of both lanes.

  tests/bench.sh [--lane container|host|audit] [--json FILE] [--check] [--rounds N] [--seconds N] [--tree DIRECTORY]

  --lane LANE       only this one
  --json FILE       also write everything that was measured
  --check           exit with 1 when a goal is missed
  --rounds N        rounds of each comparison (30)
  --seconds N       how long the load lasts (10)
  --tree DIRECTORY  the tree to search, copied from here (crates from cargo's registry)";

/// One of the two ways to do an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    Container,
    Host,
    /// None of both: the audit log.
    Audit,
}

/// How to run.
#[derive(Debug)]
pub(crate) struct Args {
    /// What is measured; both when absent.
    pub(crate) lane: Option<Lane>,
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
        let mut parsed = Self {
            lane: None,
            json: None,
            check: false,
            rounds: 30,
            load: Duration::from_secs(10),
            tree: None,
        };
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value\n\n{USAGE}"));
            match arg.as_str() {
                "--lane" => parsed.lane = Some(lane(&value()?)?),
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

    /// Whether this lane is measured.
    pub(crate) fn has(&self, lane: Lane) -> bool {
        self.lane.is_none_or(|only| only == lane)
    }
}

fn lane(name: &str) -> Result<Lane, String> {
    match name {
        "container" => Ok(Lane::Container),
        "host" => Ok(Lane::Host),
        "audit" => Ok(Lane::Audit),
        _ => Err(format!("{name}: no lane\n\n{USAGE}")),
    }
}

fn number(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|&number| number > 0).ok_or_else(|| format!("{text}: not a number above 0"))
}
