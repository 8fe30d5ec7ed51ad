#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(missing_docs)] // the daemon alone calls it

pub mod alert;
mod alerts;
mod deliver;
mod detector;
mod enforce;
mod grant_expansion;
mod intake;
mod recent;
mod rules;
mod seen;
mod table;
mod timeline;
mod watch;

#[cfg(test)]
mod traces;

use std::sync::Arc;

use audit_service::AuditLog;
use gateway::Gateway;
use parking_lot::Mutex;
use refusal::chain;
use runs::Runs;
use store::Store;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use webhook::Sender;

pub use alerts::Alerts;
pub use deliver::Webhook;

use deliver::deliver;
use enforce::AlertActions;

/// Detects anomalies and delivers alerts, once it is spawned.
pub struct Detection {
    watch: watch::Watch,
    webhooks: Vec<Webhook>,
    sender: Option<Sender>,
}

/// Opens the alerts of this daemon, and imposes again the measures that were in force when the last daemon ended.
///
/// # Errors
/// If the store cannot be read, or if there are webhooks and no certificates to verify their servers with.
pub async fn open(
    store: Store,
    (audit, gateway, runs): (Arc<AuditLog>, Arc<Gateway>, Arc<Runs>),
    webhooks: Vec<Webhook>,
) -> anyhow::Result<(Arc<Alerts>, Detection)> {
    let sender = if webhooks.is_empty() { None } else { Some(Sender::new().map_err(anyhow::Error::msg)?) };
    let listeners = listeners(&webhooks);
    let actions = AlertActions { gateway: gateway.clone(), runs: runs.clone() };
    let alerts = Alerts::open(store, audit.clone(), Arc::new(actions), listeners)
        .map_err(|error| anyhow::anyhow!("the store: {}", chain(&error)))?;
    alerts.restore().await;
    let alerts = Arc::new(alerts);
    let watch = watch::Watch { alerts: alerts.clone(), audit, gateway, runs };
    Ok((alerts, Detection { watch, webhooks, sender }))
}

fn listeners(webhooks: &[Webhook]) -> Vec<table::Listener> {
    let listener = |webhook: &Webhook| table::Listener {
        name: webhook.endpoint.name.clone(),
        min_severity: webhook.min_severity,
    };
    webhooks.iter().map(listener).collect()
}

impl Detection {
    /// Runs until the daemon stops. The deliveries' tracker is empty when all tasks have ended.
    pub fn spawn(self, stop: &CancellationToken) -> Deliveries {
        let Self { watch, webhooks, sender } = self;
        let (alerts, tasks) = (watch.alerts.clone(), TaskTracker::new());
        tasks.spawn(watch.run(stop.clone()));
        tasks.close();
        let current = Mutex::new(CancellationToken::new());
        let deliveries = Deliveries { alerts, tasks, stop: stop.clone(), current };
        deliveries.begin(webhooks, sender.as_ref());
        deliveries
    }
}

/// The tasks that deliver alerts to the webhooks in force.
pub struct Deliveries {
    alerts: Arc<Alerts>,
    tasks: TaskTracker,
    stop: CancellationToken,
    /// Ends the tasks of the webhooks in force.
    current: Mutex<CancellationToken>,
}

impl Deliveries {
    /// Returns the tracker of all tasks.
    pub fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    /// Replaces the webhooks. `sender` has to be there if there are any.
    ///
    /// An attempt under way is given up, and made again by the next task of that name. Alerts that wait for a webhook which is gone stay
    /// in the store, and are delivered if it comes back.
    pub fn replace(&self, webhooks: Vec<Webhook>, sender: Option<&Sender>) {
        self.alerts.set_listeners(listeners(&webhooks));
        self.begin(webhooks, sender);
    }

    fn begin(&self, webhooks: Vec<Webhook>, sender: Option<&Sender>) {
        let next = self.stop.child_token();
        std::mem::replace(&mut *self.current.lock(), next.clone()).cancel();
        for webhook in webhooks {
            if let Some(sender) = sender.cloned() {
                self.tasks.spawn(deliver(self.alerts.clone(), Arc::new(webhook), sender, next.clone()));
            }
        }
    }
}
