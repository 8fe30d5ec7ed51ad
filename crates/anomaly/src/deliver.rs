//! Delivers alerts to webhooks: one POST for an alert and a webhook, retried at growing intervals until it is given up.
//!
//! Each webhook has a separate task: a receiver that never answers delays only its own alerts. Waiting deliveries are in the store
//! with their alert, so that a restart goes on with them. A receiver can recognize a repetition by `webhook-id`.

use std::sync::Arc;
use std::time::Duration;

use crate::alert::{Delivery, DeliveryState};
use identity::AlertId;
use policy::Severity;
use timestamp::UnixMillis;
use tokio_util::sync::CancellationToken;
use webhook::{Endpoint, Failed, MAX_WAIT, Sender, backoff};

use super::alerts::Alerts;

/// A webhook, ready for use.
#[derive(Debug)]
pub struct Webhook {
    /// The endpoint. Deliveries have its name.
    pub endpoint: Endpoint,
    pub min_severity: Severity,
}

/// Delivers until `stop`. Then it gives up an attempt under way, and the next daemon makes it again.
pub(super) async fn deliver(
    alerts: Arc<Alerts>,
    webhook: Arc<Webhook>,
    sender: Sender,
    stop: CancellationToken,
) {
    let endpoint = &webhook.endpoint;
    loop {
        let mut woken = alerts.woken();
        let next = alerts.next_delivery(&endpoint.name);
        let at_once = UnixMillis::now().0;
        let (at, id, body) = match next {
            Some((at, id, body)) if at <= at_once => (at, id, body),
            other => {
                // A wall clock may jump: check it again now and then.
                let wait = other.map_or(MAX_WAIT, |(at, ..)| {
                    Duration::from_millis(at - at_once).min(Duration::from_secs(30))
                });
                tokio::select! {
                    () = stop.cancelled() => return,
                    _ = woken.changed() => {}
                    () = tokio::time::sleep(wait) => {}
                }
                continue;
            }
        };
        tracing::debug!(alert = %id, webhook = endpoint.name, late_ms = at_once.saturating_sub(at), "posting");
        let message_id = id.to_string();
        let sent = tokio::select! {
            () = stop.cancelled() => return,
            sent = sender.post(endpoint, &message_id, at_once / 1_000, &body) => sent,
        };
        alerts
            .delivered(id, &endpoint.name, |delivery| {
                settle(delivery, endpoint, sent, UnixMillis::now().0);
                // Logged before any client sees the new state.
                report(id, endpoint, delivery);
            })
            .await;
    }
}

fn report(alert: AlertId, endpoint: &Endpoint, delivery: &Delivery) {
    let Delivery { state, attempts, failure, .. } = delivery;
    match state {
        DeliveryState::Due => {
            tracing::warn!(%alert, webhook = endpoint.name, attempts, "an alert was not delivered: {failure}");
        }
        DeliveryState::GaveUp => {
            tracing::error!(%alert, webhook = endpoint.name, attempts, "an alert is not delivered: {failure}");
        }
        DeliveryState::Delivered => {}
    }
}

fn settle(delivery: &mut Delivery, endpoint: &Endpoint, sent: Result<(), Failed>, now: u64) {
    delivery.attempts += 1;
    match sent {
        Ok(()) => {
            delivery.state = DeliveryState::Delivered;
            delivery.failure.clear();
        }
        Err(Failed { message, for_good }) => {
            delivery.failure = message;
            if for_good || delivery.attempts >= endpoint.attempts {
                delivery.state = DeliveryState::GaveUp;
            } else {
                let wait = backoff(endpoint.first_retry, delivery.attempts, uuid::Uuid::new_v4().as_u128());
                delivery.next_at = now.saturating_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
            }
        }
    }
}
