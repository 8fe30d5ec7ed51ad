//! One webhook's task: what is due is sent, what failed is tried again, later each time, until it is given up.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::send::Failed;
use super::{Sender, Webhook};
use crate::anomaly::Alerts;
use crate::anomaly::alert::{Delivery, DeliveryState};
use crate::anomaly::desk::now;
use crate::ids::AlertId;

/// Longest between two attempts.
const MAX_WAIT: Duration = Duration::from_secs(3600);

/// Delivers until `stop`. An attempt under way is given up then, and made again by the next daemon.
pub(in crate::anomaly) async fn deliver(
    alerts: Arc<Alerts>,
    webhook: Arc<Webhook>,
    sender: Sender,
    stop: CancellationToken,
) {
    loop {
        let mut woken = alerts.woken();
        let next = alerts.next_delivery(&webhook.name);
        let at_once = now();
        let (at, id, body) = match next {
            Some((at, id, body)) if at <= at_once => (at, id, body),
            other => {
                // A wall clock may jump: it is looked at again now and then.
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
        tracing::debug!(alert = %id, webhook = webhook.name, late_ms = at_once.saturating_sub(at), "posting");
        let message_id = id.to_string();
        let sent = tokio::select! {
            () = stop.cancelled() => return,
            sent = sender.post(&webhook, &message_id, at_once / 1_000, &body) => sent,
        };
        alerts
            .delivered(id, &webhook.name, |delivery| {
                settle(delivery, &webhook, sent, now());
                // Before anybody sees that it is so.
                report(id, &webhook, delivery);
            })
            .await;
    }
}

fn report(alert: AlertId, webhook: &Webhook, delivery: &Delivery) {
    let Delivery { state, attempts, failure, .. } = delivery;
    match state {
        DeliveryState::Due => {
            tracing::warn!(%alert, webhook = webhook.name, attempts, "an alert was not delivered: {failure}");
        }
        DeliveryState::GaveUp => {
            tracing::error!(%alert, webhook = webhook.name, attempts, "an alert is not delivered: {failure}");
        }
        DeliveryState::Delivered => {}
    }
}

fn settle(delivery: &mut Delivery, webhook: &Webhook, sent: Result<(), Failed>, now: u64) {
    delivery.attempts += 1;
    match sent {
        Ok(()) => {
            delivery.state = DeliveryState::Delivered;
            delivery.failure.clear();
        }
        Err(Failed { message, for_good }) => {
            delivery.failure = message;
            if for_good || delivery.attempts >= webhook.attempts {
                delivery.state = DeliveryState::GaveUp;
            } else {
                let wait = backoff(webhook.first_retry, delivery.attempts, uuid::Uuid::new_v4().as_u128());
                delivery.next_at = now.saturating_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
            }
        }
    }
}

/// The wait after so many attempts: twice as long each time, from half of that to all of it, so that many senders do not
/// come back together.
fn backoff(first: Duration, attempts: u32, random: u128) -> Duration {
    let whole = first.saturating_mul(2_u32.saturating_pow(attempts.saturating_sub(1))).min(MAX_WAIT);
    let half = whole / 2;
    let share = u32::try_from(random % 1_000).unwrap_or(0);
    half + half * share / 1_000
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{MAX_WAIT, backoff};

    #[test]
    fn the_wait_doubles_within_its_bounds() {
        let first = Duration::from_secs(5);
        for attempts in 1..200 {
            let most = first.saturating_mul(2_u32.saturating_pow(attempts - 1)).min(MAX_WAIT);
            for random in [0, 1, 999, 500, u128::MAX] {
                let wait = backoff(first, attempts, random);
                assert!((most / 2..=most).contains(&wait), "{attempts}: {wait:?} of {most:?}");
            }
        }
        assert_ne!(backoff(first, 3, 10), backoff(first, 3, 900));
    }
}
