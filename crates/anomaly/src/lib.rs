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
    webhooks: Vec<Arc<Webhook>>,
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
    let listener = |webhook: &Webhook| table::Listener {
        name: webhook.endpoint.name.clone(),
        min_severity: webhook.min_severity,
    };
    let listeners = webhooks.iter().map(listener).collect();
    let actions = AlertActions { gateway: gateway.clone(), runs: runs.clone() };
    let alerts = Alerts::open(store, audit.clone(), Arc::new(actions), listeners)
        .map_err(|error| anyhow::anyhow!("the store: {}", chain(&error)))?;
    alerts.restore().await;
    let alerts = Arc::new(alerts);
    let watch = watch::Watch { alerts: alerts.clone(), audit, gateway, runs };
    let webhooks = webhooks.into_iter().map(Arc::new).collect();
    Ok((alerts, Detection { watch, webhooks, sender }))
}

impl Detection {
    /// Runs until the daemon stops. The tracker is empty when all tasks have ended.
    pub fn spawn(self, stop: &CancellationToken) -> TaskTracker {
        let tasks = TaskTracker::new();
        let alerts = self.watch.alerts.clone();
        tasks.spawn(self.watch.run(stop.clone()));
        for webhook in self.webhooks {
            if let Some(sender) = self.sender.clone() {
                tasks.spawn(deliver(alerts.clone(), webhook, sender, stop.clone()));
            }
        }
        tasks.close();
        tasks
    }
}
