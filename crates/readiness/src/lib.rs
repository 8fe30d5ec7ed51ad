#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(missing_docs)] // only the daemon calls it

use std::sync::Arc;
use std::time::Duration;

use audit_service::AuditLog;
use policy::Policy;
use refusal::chain;
use runs::Runs;
use service_manager::ServiceManager;
use store::Store;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

/// Time between two checks, and within which one has to end.
const LOOK: Duration = Duration::from_secs(5);
/// Time between two checks of a store that could be written. Each is a sync of the disk.
const LOOK_AT_STORE: Duration = Duration::from_secs(30);

/// Conditions that were met when they were checked last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The audit log can be written, so calls are admitted.
    pub log: bool,
    store: bool,
    engine: bool,
}

impl Seen {
    pub fn is_ready(self) -> bool {
        self.log && self.store && self.engine
    }

    fn status(self) -> String {
        let missing = [("audit log", self.log), ("store", self.store), ("engine", self.engine)];
        let missing: Vec<&str> = missing.into_iter().filter(|(_, met)| !met).map(|(name, _)| name).collect();
        if missing.is_empty() { "ready".to_owned() } else { format!("not ready: {}", missing.join(", ")) }
    }
}

/// One condition of readiness.
#[derive(Debug, PartialEq, Eq)]
pub struct Condition {
    pub name: String,
    /// Reason that it is not met.
    pub problem: Option<&'static str>,
}

/// The daemon's readiness.
pub struct Readiness {
    audit: Arc<AuditLog>,
    store: Store,
    runs: Arc<Runs>,
    seen: watch::Sender<Seen>,
}

impl Readiness {
    /// Returns the readiness of a daemon that has just opened its store and reached its engine.
    pub fn new(audit: Arc<AuditLog>, store: Store, runs: Arc<Runs>) -> Arc<Self> {
        let seen = Seen { log: audit.check().is_ok(), store: true, engine: true };
        Arc::new(Self { audit, store, runs, seen: watch::Sender::new(seen) })
    }

    /// Returns the conditions as seen last, and their changes.
    pub fn seen(&self) -> watch::Receiver<Seen> {
        self.seen.subscribe()
    }

    /// Returns all conditions: those of the daemon, and the pools of these profiles.
    pub fn conditions(&self, policy: &Policy, profiles: &[String]) -> Vec<Condition> {
        let Seen { log, store, engine } = *self.seen.borrow();
        let condition = |name: &str, met: bool, problem| Condition {
            name: name.to_owned(),
            problem: (!met).then_some(problem),
        };
        let mut conditions = vec![
            condition("audit log", log, "it cannot be written, or its disk is full: no call is admitted"),
            condition("store", store, "it cannot be written: no run begins"),
            condition("engine", engine, "the container engine does not answer: no run begins"),
        ];
        let fills = self.runs.launcher.pool.levels().fills;
        for profile in profiles {
            let of_profile =
                fills.iter().filter(|fill| fill.name.split('/').next() == Some(profile.as_str()));
            let waits: Vec<bool> = of_profile.map(|fill| fill.ready > 0 || fill.target == 0).collect();
            let problem = if policy.profile(profile).is_none() {
                Some("the policy has no such profile")
            } else if waits.is_empty() {
                Some("no containers are kept for this profile")
            } else {
                waits.contains(&false).then_some("no container waits yet")
            };
            conditions.push(Condition { name: format!("pool {profile}"), problem });
        }
        conditions
    }

    /// Checks the conditions until `stop`, and shows changes to the service manager and in the log.
    pub async fn watch(self: Arc<Self>, manager: Arc<ServiceManager>, stop: CancellationToken) {
        let watches = async { tokio::join!(self.follow_log(&manager), self.look(&manager)) };
        stop.run_until_cancelled(watches).await;
    }

    /// Follows the log, whose changes count at once.
    async fn follow_log(&self, manager: &ServiceManager) {
        loop {
            let log = self.seen.borrow().log;
            self.audit.changed_from(log).await;
            let log = self.audit.check().is_ok();
            self.change(manager, |seen| seen.log = log);
        }
    }

    /// Asks the engine and tries the store again and again.
    async fn look(&self, manager: &ServiceManager) {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut writing, mut written) = (None, Instant::now());
        let mut changes = self.seen();
        loop {
            tokio::select! {
                _ = looks.tick() => {}
                // The disk of the log may be that of the store, and have space again.
                _ = changes.changed(), if !self.seen.borrow().store => {}
            }
            let (engine, store) = tokio::join!(self.engine(), self.store(&mut writing, &mut written));
            self.change(manager, |seen| (seen.engine, seen.store) = (engine, store));
            changes.mark_unchanged();
        }
    }

    fn change(&self, manager: &ServiceManager, change: impl FnOnce(&mut Seen)) {
        self.seen.send_if_modified(|seen| {
            let before = *seen;
            change(seen);
            before != *seen
        });
        self.tell(manager);
    }

    async fn engine(&self) -> bool {
        match timeout(LOOK, self.runs.launcher.engine.ping()).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::debug!(error = chain(&error), "the engine does not answer");
                false
            }
            Err(_) => false,
        }
    }

    /// Returns true if the store can be written. A check that has not ended is not joined by another.
    async fn store(&self, writing: &mut Option<JoinHandle<bool>>, written: &mut Instant) -> bool {
        if writing.is_none() {
            if self.seen.borrow().store && written.elapsed() < LOOK_AT_STORE {
                return true;
            }
            let store = self.store.clone();
            *writing = Some(tokio::spawn(async move {
                let checked = store.with(Store::check_writable).await;
                checked.inspect_err(|error| tracing::debug!(error = chain(error), "the store")).is_ok()
            }));
        }
        let Some(check) = writing else { return true };
        let Ok(checked) = timeout(LOOK, check).await else { return false };
        (*writing, *written) = (None, Instant::now());
        checked.unwrap_or(false)
    }

    /// Returns the line that the service manager shows.
    pub fn status(&self) -> String {
        self.seen.borrow().status()
    }

    fn tell(&self, manager: &ServiceManager) {
        let status = self.status();
        let Some(changed) = manager.status(&status).then_some(status) else { return };
        if self.seen.borrow().is_ready() {
            tracing::info!("the daemon is ready again");
        } else {
            tracing::warn!(status = changed, "the daemon is not ready");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_missing_part_makes_the_daemon_unready_and_is_named() {
        let all = Seen { log: true, store: true, engine: true };
        assert_eq!((all.is_ready(), all.status().as_str()), (true, "ready"));
        for (seen, status) in [
            (Seen { log: false, ..all }, "not ready: audit log"),
            (Seen { store: false, ..all }, "not ready: store"),
            (Seen { engine: false, store: false, ..all }, "not ready: store, engine"),
        ] {
            assert_eq!((seen.is_ready(), seen.status().as_str()), (false, status));
        }
    }
}
