//! Judges ratios against those of a baseline, and names the file of each baseline.

#[path = "runs/baseline.rs"]
mod baseline;

use std::path::Path;
use std::process::ExitCode;

use self::baseline::Baseline;
pub(crate) use self::baseline::Ratios;

/// What to do with ratios.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Store,
    Check,
    Nothing,
}

impl Verdict {
    /// Stores the ratios of this build in `tests/bench/NAME`, or says how far they are from those that are there. `spared` are
    /// those that this daemon cannot have.
    pub(crate) fn give(self, name: &str, ratios: &Ratios, spared: &[&str]) -> ExitCode {
        let build = if cfg!(debug_assertions) { "debug" } else { "release" };
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("bench").join(name);
        let baseline = Baseline::parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
        match self {
            Self::Store => write(&path, &baseline.with(build, ratios)),
            Self::Check => {
                let objections = baseline.objections(build, ratios, spared);
                for objection in &objections {
                    println!("  {objection}");
                }
                if !objections.is_empty() {
                    return ExitCode::FAILURE;
                }
                println!("all ratios are within their margins of tests/bench/{name}, {build} build");
            }
            Self::Nothing => {}
        }
        ExitCode::SUCCESS
    }
}

pub(crate) fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
