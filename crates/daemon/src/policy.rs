//! Loads the policy at the start and on request, as a whole or not at all.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use audit::{Event, Kind};
use audit_service::AuditLog;
use calls::Approvals;
use egress_rules::SecretName;
use gateway::Gateway;
use operations::Reason;
use policy::{Policy, Problems};
use refusal::{Refusal, chain};
use store::Store;
use tokio::sync::Mutex;

use crate::config::check_secrets;

/// Reads the policy in the directory, or returns the built-in policy.
pub(crate) fn load(directory: Option<&PathBuf>) -> Result<Policy, Problems> {
    match directory {
        Some(directory) => Policy::load_dir(directory),
        None => Policy::builtin(),
    }
}

/// Loader that replaces the policy while the daemon runs.
pub(crate) struct Loader {
    directory: Option<PathBuf>,
    /// Names of the secrets of the configuration.
    secrets: BTreeSet<SecretName>,
    gateway: Arc<Gateway>,
    approvals: Arc<Approvals>,
    audit: Arc<AuditLog>,
    store: Store,
    /// Allows one reload at a time, so that the last policy on record is the one in force.
    turn: Mutex<()>,
}

impl Loader {
    pub(crate) fn new(
        (directory, secrets): (Option<PathBuf>, BTreeSet<SecretName>),
        (gateway, approvals): (Arc<Gateway>, Arc<Approvals>),
        audit: Arc<AuditLog>,
        store: Store,
    ) -> Self {
        Self { directory, secrets, gateway, approvals, audit, store, turn: Mutex::default() }
    }

    /// Loads the policy on behalf of `principal`. Returns its digest, and true if it differs from the previous policy.
    ///
    /// If the policy is bad, the old one stays in force and the refusal lists every problem.
    pub(crate) async fn reload(&self, principal: &str) -> Result<(String, bool), Refusal> {
        let reloaded = self.load(principal).await;
        self.approvals.policy_changed().await;
        reloaded
    }

    async fn load(&self, principal: &str) -> Result<(String, bool), Refusal> {
        let _turn = self.turn.lock().await;
        let directory = self.directory.clone();
        let loaded = tokio::task::spawn_blocking(move || load(directory.as_ref())).await;
        let loaded = loaded.map_err(|error| Refusal::internal("loading the policy", &error))?;
        let checked = loaded.map_err(|problems| problems.to_string()).and_then(|policy| {
            check_secrets(&self.secrets, &policy)?;
            Ok(policy)
        });
        let policy = checked.map_err(|problems| {
            tracing::warn!("the policy was not loaded, the old one stays in force:\n{problems}");
            Refusal::new(
                Reason::InvalidArgument,
                format!("the policy was not loaded, the old one stays in force:\n{problems}"),
            )
        })?;
        let digest = policy.digest().to_owned();
        keep(&self.store, &policy).await;
        // The policy is recorded before it decides anything.
        self.audit.record(loaded_event(&policy).principal(principal)).await?;
        let changed = self.gateway.reload(policy);
        tracing::info!(digest, changed, "policy loaded");
        Ok((digest, changed))
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
