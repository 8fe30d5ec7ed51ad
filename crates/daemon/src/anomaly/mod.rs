//! Anomaly detection: what looks wrong in the record, and what follows from it.
//!
//! ```text
//!  audit log ─► watch ─► intake ─► detector: rules ─► table: one alert for a rule, a subject and a window
//!  (calls write it,                                     │
//!   and wait for nothing here)                          ▼
//!                                   alerts: store ─► record ─► impose ─► deliver (webhooks)
//!                                                     ▲         │
//!                                   operator: acknowledge ──────┴─► lift
//! ```
//!
//! Invariants: nothing here is on a call's path; what an alert imposes is on record before it is done; the same alert never
//! imposes twice, and none is lost or raised again by a restart; memory is bounded whatever agents do and are called.

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
use tokio_util::task::TaskTracker;
use webhook::Sender;

use crate::app::App;
use crate::config;

pub(crate) use alerts::Alerts;

use deliver::{Webhook, deliver};
use enforce::AlertActions;

/// The webhooks of the configuration, with their secrets read.
pub(crate) struct Webhooks(Vec<Arc<Webhook>>, Option<Sender>);

/// Reads what webhooks need. A configuration without any reads no certificates either.
fn webhooks(configured: &[config::Webhook]) -> Result<Webhooks, String> {
    let webhooks = configured.iter().map(|webhook| {
        Ok(Arc::new(Webhook {
            endpoint: webhook.endpoint.open(&webhook.name)?,
            min_severity: webhook.min_severity,
        }))
    });
    let webhooks: Vec<_> = webhooks.collect::<Result<_, String>>()?;
    let sender = if webhooks.is_empty() { None } else { Some(Sender::new()?) };
    Ok(Webhooks(webhooks, sender))
}

/// Alerts of this daemon, with what was in force when the last one ended in force again; and who is told of them.
pub(crate) async fn open(
    store: Store,
    audit: Arc<AuditLog>,
    gateway: Arc<Gateway>,
    runs: Arc<Runs>,
    configured: &[config::Webhook],
) -> anyhow::Result<(Arc<Alerts>, Webhooks)> {
    let webhooks = webhooks(configured).map_err(|error| anyhow::anyhow!("alerts.webhooks: {error}"))?;
    let hands = AlertActions { gateway, runs };
    let listener = |webhook: &Arc<Webhook>| table::Listener {
        name: webhook.endpoint.name.clone(),
        min_severity: webhook.min_severity,
    };
    let listeners = webhooks.0.iter().map(listener).collect();
    let alerts = Alerts::open(store, audit, Arc::new(hands), listeners)
        .map_err(|error| anyhow::anyhow!("the store: {}", chain(&error)))?;
    alerts.restore().await;
    Ok((Arc::new(alerts), webhooks))
}

/// Looks for anomalies, and tells webhooks, until the daemon stops; the tracker says when all of it has ended.
pub(crate) fn start(app: &App, Webhooks(webhooks, sender): Webhooks) -> TaskTracker {
    let tasks = TaskTracker::new();
    let watch = watch::Watch {
        alerts: app.alerts.clone(),
        audit: app.audit.clone(),
        gateway: app.gateway.clone(),
        runs: app.runs.clone(),
    };
    tasks.spawn(watch.run(app.stop.clone()));
    for webhook in webhooks {
        if let Some(sender) = sender.clone() {
            tasks.spawn(deliver(app.alerts.clone(), webhook, sender, app.stop.clone()));
        }
    }
    tasks.close();
    tasks
}
