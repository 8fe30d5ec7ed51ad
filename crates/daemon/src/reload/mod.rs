//! Takes a new configuration and policy while the daemon runs: as a whole or not at all.
//!
//! ```text
//!  turn ─► read files ─► check ─► prepare every part ─► record ─► put into force
//!            └────────────┴──────────┴──► every problem, and nothing has changed
//! ```
//!
//! Nothing can fail after the record. Values that need a restart are named, and wait.

mod targets;

use std::path::PathBuf;
use std::sync::Arc;

use audit::{Event, Kind};
use audit_service::AuditLog;
use daemon_log::{Level, Log};
use operations::Reason;
use parking_lot::Mutex;
use policy::Policy;
use refusal::Refusal;
use serde_json::json;
use service_manager::ServiceManager;
use tokio::sync::Semaphore;

use self::targets::Prepared;
pub(crate) use self::targets::{IssuerTasks, Targets};
use crate::config::{Change, Config, check_pool, load_settled};
use crate::policy::{Loader, Sources, loaded_event};

/// Most reloads that wait or are under way. Each reads the files when it is its turn, so more would find nothing new.
const WAITING: usize = 8;
/// Most bytes of problems in an answer. The rest is in the log.
const MOST_TOLD: usize = 6 * 1_024;

/// Result of a reload.
pub(crate) struct Reloaded {
    pub(crate) applied: Vec<String>,
    pub(crate) needs_restart: Vec<String>,
    pub(crate) digest: String,
    pub(crate) previous_digest: String,
    pub(crate) policy_digest: String,
    pub(crate) policy_changed: bool,
}

/// Configuration that is in force, and the keys of its file that wait for a restart.
#[derive(Clone)]
pub(crate) struct InForce {
    config: Arc<Config>,
    pub(crate) needs_restart: Vec<String>,
}

impl InForce {
    /// Returns the SHA-256 of the file that was read last.
    pub(crate) fn digest(&self) -> &str {
        &self.config.digest
    }
}

/// Everything that a reload reads and changes.
pub(crate) struct Reloader {
    file: PathBuf,
    loader: Arc<Loader>,
    audit: Arc<AuditLog>,
    log: Arc<Log>,
    manager: Arc<ServiceManager>,
    targets: Targets,
    in_force: Mutex<InForce>,
    places: Semaphore,
}

impl Reloader {
    /// Returns a reloader of the configuration in `file`, of which `config` is in force.
    pub(crate) fn new(
        (file, config): (PathBuf, Config),
        (loader, audit): (Arc<Loader>, Arc<AuditLog>),
        (log, manager): (Arc<Log>, Arc<ServiceManager>),
        targets: Targets,
    ) -> Self {
        let in_force = InForce { config: Arc::new(config), needs_restart: Vec::new() };
        let (in_force, places) = (Mutex::new(in_force), Semaphore::new(WAITING));
        Self { file, loader, audit, log, manager, targets, in_force, places }
    }

    /// Returns the configuration in force.
    pub(crate) fn in_force(&self) -> InForce {
        self.in_force.lock().clone()
    }

    /// Returns the level of the daemon's log in force.
    pub(crate) fn level(&self) -> Level {
        self.log.level()
    }

    /// Reads the configuration and the policy again on behalf of `principal`.
    ///
    /// If anything is wrong, nothing changes, and the refusal lists every problem.
    pub(crate) async fn reload(&self, principal: &str) -> Result<Reloaded, Refusal> {
        let busy = |_| Refusal::new(Reason::Overloaded, "other reloads wait: one of them finds what is new");
        let _place = self.places.try_acquire().map_err(busy)?;
        // One after the other, so that the last one on record is the one in force.
        let mut sources = self.loader.turn().await;
        let _reloading = self.manager.reloading();
        let reloaded = self.take(&mut sources, principal).await;
        drop(sources);
        self.loader.policy_changed().await;
        match &reloaded {
            Ok(done) => tracing::info!(
                applied = done.applied.join(", "),
                needs_restart = done.needs_restart.join(", "),
                digest = done.digest,
                policy_changed = done.policy_changed,
                principal,
                "configuration and policy were reloaded"
            ),
            Err(refusal) => tracing::warn!(principal, "the reload was refused: {}", refusal.message),
        }
        reloaded
    }

    /// Reloads if the files differ from what is in force: a successor has read them while its predecessor still took reloads.
    pub(crate) async fn catch_up(&self) {
        let (file, config) = (self.file.clone(), self.in_force().config);
        let sources = self.loader.turn().await.clone();
        let read = tokio::task::spawn_blocking(move || read(&file, &config, &sources)).await;
        let is_in_force = matches!(&read, Ok(Ok((change, policy)))
            if change.next.digest == self.in_force().digest() && policy.digest() == self.loader.digest());
        if !is_in_force {
            // The reloader logs the problems itself.
            let _ = self.reload("take-over").await;
        }
    }

    async fn take(&self, sources: &mut Sources, principal: &str) -> Result<Reloaded, Refusal> {
        let (file, before, current) = (self.file.clone(), self.in_force(), sources.clone());
        let config = before.config.clone();
        let read = tokio::task::spawn_blocking(move || read(&file, &config, &current)).await;
        let read = read.map_err(|error| Refusal::internal("reading the configuration", &error))?;
        let (change, policy) = read.map_err(|problems| refused(&problems))?;
        let Change { next, applied, needs_restart } = change;
        let prepared =
            self.targets.prepare(&before.config, &next).await.map_err(|problems| refused(&problems))?;

        let reloaded = Reloaded {
            applied,
            needs_restart: needs_restart.clone(),
            digest: next.digest.clone(),
            previous_digest: before.digest().to_owned(),
            policy_digest: policy.digest().to_owned(),
            policy_changed: policy.digest() != self.loader.digest(),
        };
        self.loader.keep(&policy).await;
        self.audit.record(changed_event(&reloaded, &self.loader.digest()).principal(principal)).await?;
        // The record before this one has the digest, too. If the log fails between the two, no call is admitted.
        if self.audit.record(loaded_event(&policy).principal(principal)).await.is_err() {
            tracing::error!(
                "the audit log cannot be written: the policy that was loaded is not on record by itself"
            );
        }
        *sources = Sources::of(&next);
        self.put(next, needs_restart, policy, prepared);
        Ok(reloaded)
    }

    /// Puts everything into force. Waits for nothing.
    fn put(&self, next: Config, needs_restart: Vec<String>, policy: Policy, prepared: Prepared) {
        self.log.set_level(next.log_level.clone());
        // Before the policy, which may name new secrets.
        self.targets.put(&next, prepared);
        self.loader.put(policy);
        *self.in_force.lock() = InForce { config: Arc::new(next), needs_restart };
    }

    /// Sets the level of the daemon's log until the next reload, and returns the previous one.
    pub(crate) async fn set_level(&self, level: Level, principal: &str) -> Result<Level, Refusal> {
        let _turn = self.loader.turn().await;
        let details = json!({ "log_level": level.as_str(), "previous_log_level": self.log.level().as_str() });
        let event = Event::new(Kind::ConfigurationChanged).details(details).principal(principal);
        self.audit.record(event).await?;
        let previous = self.log.set_level(level.clone());
        tracing::warn!(
            level = level.as_str(),
            previous = previous.as_str(),
            principal,
            "the level of the log was set"
        );
        Ok(previous)
    }
}

/// Reads both sources, and returns the change or every problem of both.
fn read(
    file: &std::path::Path,
    in_force: &Config,
    sources: &Sources,
) -> Result<(Change, Policy), Vec<String>> {
    let mut problems = Vec::new();
    let change = match load_settled(file) {
        Ok(config) => Some((config.pool.clone(), in_force.change_to(config))),
        Err(error) => {
            problems.push(format!("{error:#}"));
            None
        }
    };
    let sources = change.as_ref().map_or_else(|| sources.clone(), |(_, change)| Sources::of(&change.next));
    let policy = sources.read().map_err(|problem| problems.push(problem)).ok();
    if let (Some((pool, _)), Some(policy)) = (&change, &policy)
        && let Err(error) = check_pool(pool, policy)
    {
        problems.push(format!("{error:#}"));
    }
    match (change, policy) {
        (Some((_, change)), Some(policy)) if problems.is_empty() => Ok((change, policy)),
        _ => Err(problems),
    }
}

fn refused(problems: &[String]) -> Refusal {
    let mut told = "nothing was reloaded, the configuration and the policy in force stay:".to_owned();
    for line in problems.iter().flat_map(|problem| problem.lines()) {
        if told.len() + line.len() > MOST_TOLD {
            told.push_str("\nand more: `cofferd --check-config` lists all");
            break;
        }
        told.push('\n');
        told.push_str(line);
    }
    Refusal::new(Reason::InvalidArgument, told)
}

/// Returns the record of a reload.
fn changed_event(reloaded: &Reloaded, policy_before: &str) -> Event {
    Event::new(Kind::ConfigurationChanged).details(json!({
        "digest": reloaded.digest,
        "previous_digest": reloaded.previous_digest,
        "policy_digest": reloaded.policy_digest,
        "previous_policy_digest": policy_before,
        "applied": reloaded.applied,
        "needs_restart": reloaded.needs_restart,
    }))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn read_in(directory: &Path, in_force: &Config) -> Result<(Change, Policy), Vec<String>> {
        read(&directory.join("cofferd.yaml"), in_force, &Sources::of(in_force))
    }

    #[test]
    fn the_problems_of_both_files_are_told_and_a_change_has_the_policy_of_its_directory() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("cofferd.yaml");
        let policy = place.path().join("policy");
        std::fs::create_dir(&policy).unwrap();
        let config = format!("policy_dir: {}\n", policy.display());
        std::fs::write(&file, &config).unwrap();
        let in_force = load_settled(&file).unwrap();
        std::fs::write(&file, format!("{config}limits: {{ runs: many }}\nstate_dri: /x\n")).unwrap();
        std::fs::write(policy.join("a.yaml"), "profiles:\n  x: { operations: { read: perhaps } }\n").unwrap();
        let problems = read_in(place.path(), &in_force).err().unwrap().join("\n");
        for told in ["cofferd.yaml:2: limits.runs: ", "cofferd.yaml:3: state_dri: ", "a.yaml:2: "] {
            assert!(problems.contains(told), "{told}: {problems}");
        }
        std::fs::remove_file(policy.join("a.yaml")).unwrap();
        std::fs::write(&file, "limits: { calls: 7, runs: 7 }\n").unwrap();
        let (change, policy) = read_in(place.path(), &in_force).unwrap();
        assert_eq!(change.applied, ["limits.calls", "policy_dir"]);
        assert_eq!(change.needs_restart, ["limits.runs"]);
        assert_eq!(policy.digest(), Policy::builtin().unwrap().digest());
        std::fs::write(&file, "pool: [{ profile: nope, min: 1, max: 1 }]\n").unwrap();
        let problems = read_in(place.path(), &in_force).err().unwrap();
        assert!(problems[0].contains("pool[0].profile"), "{problems:?}");
    }

    #[test]
    fn an_answer_has_a_bounded_number_of_problems() {
        let problems: Vec<String> =
            (0..1_000).map(|line| format!("cofferd.yaml:{line}: key: is wrong")).collect();
        let refusal = refused(&problems);
        assert!(refusal.message.len() < MOST_TOLD + 100 && refusal.message.contains("cofferd.yaml:0: "));
        assert!(refusal.message.ends_with("lists all"), "{}", refusal.message);
        assert_eq!(refused(&problems[..1]).message.lines().count(), 2);
    }
}
