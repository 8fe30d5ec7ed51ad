//! Starts in place of a daemon that serves, and asks one to give its place to this program.

#![expect(clippy::disallowed_methods, reason = "a file of the daemon's own: the policy before a hand-over")]

use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use policy::Policy;
use refusal::chain;
use serde_json::json;
use take_over::{Formats, Listeners, Predecessor, Released, RequestError};

use crate::args::Args;
use crate::config::{Config, Text};
use crate::startup;

/// Time that the lock of a predecessor has to be released after it ended: a thread of it may still wait for a disk.
const LOCK: Duration = Duration::from_secs(30);

/// Names of the files with the configuration and the policy that were in force before a hand-over.
const CONFIG: &str = "configuration-before.yaml";
const POLICY: &str = "policy-before.yaml";

/// Exit code if no daemon could be asked, or if it refused: only a restart changes its program.
const NEEDS_RESTART: u8 = 5;

/// Returns the versions of all data that a daemon leaves, and without which another cannot go on.
pub(crate) fn formats() -> Formats {
    Formats::new([
        ("approvals", gateway::FORMAT),
        ("drain of the node", node::FORMAT),
        ("groups of tenants", tenants::FORMAT_OF_GROUPS),
        ("log", audit::FORMAT),
        ("processes", processes::FORMAT),
        ("sealed values", store::SEALED),
        ("store", store::schema_version()),
        ("traffic of tenants", tenants::FORMAT),
        ("use of models", model_usage::VERSION),
        ("workers", worker_protocol::PROTOCOL),
    ])
}

/// Prints the versions for `--versions`.
pub(crate) fn print_versions() {
    println!("{:#}", json!({ "version": env!("CARGO_PKG_VERSION"), "formats": formats() }));
}

/// Returns the file with the configuration that was in force before a hand-over.
pub(crate) fn kept_config(state_dir: &Path) -> PathBuf {
    state_dir.join(CONFIG)
}

/// Keeps configuration and policy in force for a daemon that goes on after a failed hand-over. With changed files it could not start, or
/// would end runs.
pub(crate) fn keep(state_dir: &Path, config: &Text, policy: &Policy) -> anyhow::Result<()> {
    let (of_config, of_policy) = (kept_config(state_dir), state_dir.join(POLICY));
    // Those of an earlier hand-over must not stay if these cannot be written.
    for path in [&of_config, &of_policy] {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    atomic_file::replace(&of_config, |file| file.write_all(config.as_bytes()))?;
    let text = policy.to_yaml()?;
    Ok(atomic_file::replace(&of_policy, |file| file.write_all(text.as_bytes()))?)
}

fn kept_policy(state_dir: &Path) -> anyhow::Result<Policy> {
    let text = std::fs::read_to_string(state_dir.join(POLICY))?;
    Ok(Policy::from_files([(POLICY, text)])?)
}

/// The way in which this daemon begins.
#[derive(Default)]
pub(crate) struct Beginning {
    pub(crate) listeners: Listeners,
    /// The daemon that goes on if this one fails.
    predecessor: Option<Predecessor>,
    /// Policy in place of that in the files: it was in force before a hand-over that failed.
    pub(crate) policy: Option<Policy>,
    /// Time to wait for the lock of the state directory.
    pub(crate) patience: Duration,
}

impl Beginning {
    /// Gets the sockets of the daemon that this one follows, if it follows one, and waits until that daemon has stopped.
    pub(crate) fn of(args: &Args, config: &Config) -> anyhow::Result<Self> {
        if args.take_over {
            return Self::after_predecessor(config);
        }
        if args.resume {
            let resumed = take_over::resumed().context("--resume is for the daemon alone")?;
            tracing::error!(why = resumed.why, "the successor failed, and this daemon goes on");
            let policy = kept_policy(&config.state_dir);
            let policy = policy.inspect_err(|error| {
                tracing::error!(
                    "the policy before the hand-over is not there, and that of the files counts: {error:#}"
                );
            });
            let listeners = resumed.listeners;
            return Ok(Self { listeners, predecessor: None, policy: policy.ok(), patience: LOCK });
        }
        Ok(Self::default())
    }

    fn after_predecessor(config: &Config) -> anyhow::Result<Self> {
        // The earlier daemon still serves during these checks.
        startup::policy(config)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(startup::engine(config))?;
        jail::supported().map_err(|error| anyhow::anyhow!("{}", chain(&error)))?;
        let (predecessor, listeners) = take_over::take_over(&config.state_dir, formats())?;
        tracing::info!("the earlier daemon stops and hands over");
        // Until the predecessor has given its place up, it needs the files of the sockets.
        listeners.leave(true);
        if predecessor.released()? == Released::Died {
            tracing::warn!("the earlier daemon died before it had stopped in order");
        }
        Ok(Self { listeners, predecessor: Some(predecessor), policy: None, patience: LOCK })
    }

    /// Returns true if a run that would fail may be given up, because no other daemon could go on with it.
    pub(crate) fn may_lose_runs(&self) -> bool {
        !self.predecessor.as_ref().is_some_and(Predecessor::watches)
    }

    /// Returns true if this daemon follows another one, which took reloads while this one began.
    pub(crate) fn follows(&self) -> bool {
        self.predecessor.is_some()
    }

    /// Says that this daemon serves, and waits until its predecessor has ended.
    pub(crate) fn is_ready(&mut self) {
        self.listeners.close_unused();
        if let Some(predecessor) = self.predecessor.take() {
            predecessor.is_relieved();
            self.listeners.leave(false);
        }
    }

    /// Tells the predecessor that this daemon fails.
    pub(crate) fn fails(&mut self, why: &anyhow::Error) {
        if let Some(predecessor) = self.predecessor.take() {
            predecessor.failed(&format!("{why:#}"));
        }
    }
}

/// Asks the daemon to start this program as its successor.
pub(crate) fn upgrade(config: &Config) -> anyhow::Result<ExitCode> {
    startup::policy(config)?;
    let program = std::env::current_exe().context("the path of this program")?;
    let upgraded = take_over::upgrade(&config.state_dir, program, formats());
    Ok(match upgraded {
        Ok(()) => {
            println!("cofferd {} has taken over", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Err(error) => failed(error),
    })
}

/// Prints what would not survive an upgrade to this program. Fails if the program could not take over.
pub(crate) fn check(file: &Path, config: &Config) -> anyhow::Result<ExitCode> {
    startup::policy(config)?;
    println!("{}: this program can read configuration and policy", file.display());
    let report = match take_over::check(&config.state_dir, formats()) {
        Ok(report) => report,
        Err(error) => return Ok(failed(error)),
    };
    println!("from cofferd {} to {}", report.version, env!("CARGO_PKG_VERSION"));
    for end in &report.ends {
        println!("ends: {end}");
    }
    for hindrance in &report.hindrances {
        println!("prevents the take-over: {hindrance}");
    }
    if report.hindrances.is_empty() {
        println!("all other runs and processes survive");
        return Ok(ExitCode::SUCCESS);
    }
    println!("restart the daemon instead; `runs.on_stop` says what becomes of the runs");
    Ok(ExitCode::from(NEEDS_RESTART))
}

fn failed(error: RequestError) -> ExitCode {
    let needs_restart = error.needs_restart();
    eprintln!("cofferd: {:#}", anyhow::Error::new(error));
    if needs_restart { ExitCode::from(NEEDS_RESTART) } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_can_follow_itself() {
        assert_eq!(formats().differences(&formats()), Vec::<String>::new());
    }

    #[test]
    fn a_daemon_that_goes_on_has_the_configuration_and_the_policy_of_before() {
        let place = tempfile::tempdir().unwrap();
        assert!(kept_policy(place.path()).is_err());
        let policy = Policy::builtin().unwrap();
        let file = place.path().join("cofferd.yaml");
        std::fs::write(&file, "limits: { runs: 7 }\n").unwrap();
        let config = crate::config::load(&file).unwrap();
        for _ in ["first hand-over", "second hand-over"] {
            keep(place.path(), &config.text, &policy).unwrap();
            assert_eq!(kept_policy(place.path()).unwrap().digest(), policy.digest());
            let kept = crate::config::load(&kept_config(place.path())).unwrap();
            assert_eq!((kept.to_string(), kept.digest), (config.to_string(), config.digest.clone()));
        }
    }

    #[test]
    fn a_daemon_without_predecessor_may_give_runs_up() {
        let mut beginning = Beginning::default();
        assert!(beginning.may_lose_runs() && !beginning.follows());
        beginning.is_ready();
        assert!(!beginning.listeners.are_left());
    }
}
