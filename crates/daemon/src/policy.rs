//! Loads the policy at the start and on request, as a whole or not at all.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use audit::{Event, Kind};
use audit_service::AuditLog;
use calls::Approvals;
use egress_rules::SecretName;
use gateway::Gateway;
use operations::Reason;
use policy::{Policy, Problems};
use refusal::{Refusal, chain};
use store::Store;
use tokio::sync::{Mutex, MutexGuard};

use crate::config::{Config, check_secrets};

/// Reads the policy in the directory, or returns the built-in policy.
pub(crate) fn load(directory: Option<&PathBuf>) -> Result<Policy, Problems> {
    match directory {
        Some(directory) => Policy::load_dir(directory),
        None => Policy::builtin(),
    }
}

/// Attempts to read a policy that changes.
const ATTEMPTS: u32 = 10;

/// Time in which two readings of the policy have to be equal.
const SETTLED: Duration = Duration::from_millis(100);

/// Places that a policy is read from, and what it may name.
#[derive(Debug, Clone)]
pub(crate) struct Sources {
    pub(crate) directory: Option<PathBuf>,
    /// Names of the secrets of the configuration.
    pub(crate) secrets: BTreeSet<SecretName>,
    /// True if the configuration has a console in which passkeys are registered.
    pub(crate) takes_passkeys: bool,
}

impl Sources {
    /// Returns the sources that a configuration names.
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            directory: config.policy_dir.clone(),
            secrets: config.secrets.keys().cloned().collect(),
            takes_passkeys: config.takes_passkeys(),
        }
    }

    /// Reads the policy until two readings are equal: somebody may be writing it. Blocks for about a second at most.
    pub(crate) fn read(&self) -> Result<Policy, String> {
        let once = || load(self.directory.as_ref()).map_err(|problems| problems.to_string());
        let digest = |policy: &Result<Policy, String>| {
            policy.as_ref().map(|policy| policy.digest().to_owned()).map_err(String::clone)
        };
        let mut before = once();
        // A policy without a directory cannot change.
        let attempts = if self.directory.is_some() { ATTEMPTS } else { 0 };
        for attempt in 1..=attempts {
            std::thread::sleep(SETTLED);
            let now = once();
            if digest(&before) == digest(&now) {
                break;
            }
            if attempt == attempts {
                return Err(
                    "the policy keeps changing while it is read: reload when it is complete".to_owned()
                );
            }
            before = now;
        }
        let policy = before?;
        check_secrets(&self.secrets, &policy)?;
        policy.check_passkeys(self.takes_passkeys)?;
        Ok(policy)
    }
}

/// Loader that replaces the policy while the daemon runs.
pub(crate) struct Loader {
    /// Held while the policy or the configuration is replaced, so that the last one on record is the one in force.
    sources: Mutex<Sources>,
    gateway: Arc<Gateway>,
    approvals: Arc<Approvals>,
    audit: Arc<AuditLog>,
    store: Store,
}

impl Loader {
    pub(crate) fn new(
        sources: Sources,
        (gateway, approvals): (Arc<Gateway>, Arc<Approvals>),
        audit: Arc<AuditLog>,
        store: Store,
    ) -> Self {
        Self { sources: Mutex::new(sources), gateway, approvals, audit, store }
    }

    /// Waits for earlier reloads, and keeps later ones waiting while the guard is held.
    pub(crate) async fn turn(&self) -> MutexGuard<'_, Sources> {
        self.sources.lock().await
    }

    /// Loads the policy on behalf of `principal`. Returns its digest, and true if it differs from the previous policy.
    ///
    /// If the policy is bad, the old one stays in force and the refusal lists every problem.
    pub(crate) async fn reload(&self, principal: &str) -> Result<(String, bool), Refusal> {
        let reloaded = self.load(principal).await;
        self.policy_changed().await;
        reloaded
    }

    async fn load(&self, principal: &str) -> Result<(String, bool), Refusal> {
        let sources = self.turn().await;
        let read = sources.clone();
        let loaded = tokio::task::spawn_blocking(move || read.read()).await;
        let loaded = loaded.map_err(|error| Refusal::internal("loading the policy", &error))?;
        let policy = loaded.map_err(|problems| {
            tracing::warn!("the policy was not loaded, the old one stays in force:\n{problems}");
            Refusal::new(
                Reason::InvalidArgument,
                format!("the policy was not loaded, the old one stays in force:\n{problems}"),
            )
        })?;
        keep(&self.store, &policy).await;
        // The policy is recorded before it decides anything.
        self.audit.record(loaded_event(&policy).principal(principal)).await?;
        Ok(self.put(policy))
    }

    /// Puts a policy into force that is on record and stored. Returns its digest, and true if it differs from the previous policy.
    pub(crate) fn put(&self, policy: Policy) -> (String, bool) {
        let digest = policy.digest().to_owned();
        let changed = self.gateway.reload(policy);
        tracing::info!(digest, changed, "policy loaded");
        (digest, changed)
    }

    /// Stores a policy that comes into force.
    pub(crate) async fn keep(&self, policy: &Policy) {
        keep(&self.store, policy).await;
    }

    /// Applies the policy in force to approvals and consents.
    pub(crate) async fn policy_changed(&self) {
        self.approvals.policy_changed().await;
    }

    /// Returns the digest of the policy in force.
    pub(crate) fn digest(&self) -> String {
        self.gateway.policy().digest().to_owned()
    }
}

/// Stores a policy that comes into force, so that bundles can contain the policies of their decisions.
///
/// If it cannot be stored, bundles report that it is missing.
pub(crate) async fn keep(store: &Store, policy: &Policy) {
    let digest = policy.digest().to_owned();
    let result = match policy.canonical() {
        Ok(canonical) => {
            let stored = store.with(move |store| store.put_policy(&digest, &canonical)).await;
            stored.map_err(|error| chain(&error))
        }
        Err(error) => Err(error.to_string()),
    };
    if let Err(error) = result {
        tracing::warn!(error, "the policy could not be stored: bundles of runs under it will lack it");
    }
}

/// Returns the record of a policy that comes into force.
pub(crate) fn loaded_event(policy: &Policy) -> Event {
    let mut details = serde_json::json!({
        "digest": policy.digest(),
        "profiles": policy.profile_names().collect::<Vec<_>>(),
        "roles": policy.role_names().collect::<Vec<_>>(),
    });
    let off: Vec<&str> = policy.without_deny_list().collect();
    if !off.is_empty() {
        details["deny_list_off"] = off.into();
    }
    let open: Vec<&str> = policy.with_container_paths().collect();
    if !open.is_empty() {
        details["container_paths"] = open.into();
    }
    Event::new(Kind::PolicyLoaded).details(details)
}
