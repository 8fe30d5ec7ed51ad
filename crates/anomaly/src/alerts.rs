//! Runs the alerts of the daemon: stores, records, enforces, shows and acknowledges them.
//!
//! Each step is on disk before the next. An alert is stored with its position in the log, then recorded. Then its measure is
//! imposed and recorded, and the alert is delivered. A daemon that dies in between goes on at that step; it does not write again
//! what the log has already ([`Alerts::found`]).

use std::sync::Arc;

use crate::alert::{Acknowledged, Alert, Delivery, ImposedState, Measure};
use audit::{Event, Kind, Record};
use audit_service::AuditLog;
use identity::{AlertId, Principal};
use operations::Reason;
use parking_lot::{Mutex, RwLock};
use refusal::{Refusal, chain};
use serde_json::{Value, json};
use store::{Store, StoreError};
use timestamp::UnixMillis;
use tokio::sync::{broadcast, watch};

use super::detector::Firing;
use super::enforce::Enforcement;
use super::table::{AlertTable, Listener};

/// Most changes that a slow watcher may lag, before it has to list the alerts again.
const CHANGES: usize = 1_024;
/// Most characters of an operator's comment.
const MAX_COMMENT: usize = 4_096;

/// All alerts of the daemon.
pub struct Alerts {
    table: Mutex<AlertTable>,
    /// Sequence number up to which the log has been read. The store is right up to there.
    position: Mutex<u64>,
    store: Store,
    audit: Arc<AuditLog>,
    enforcement: Arc<dyn Enforcement>,
    listeners: RwLock<Vec<Listener>>,
    /// In an `Arc`: a channel keeps its last messages in memory, and these are large.
    changes: broadcast::Sender<Arc<Alert>>,
    wake: watch::Sender<()>,
    /// Held from taking changes until they are stored, so that the last change is stored last.
    storing: tokio::sync::Mutex<()>,
}

impl Alerts {
    /// Opens the alerts that are stored.
    pub(super) fn open(
        store: Store,
        audit: Arc<AuditLog>,
        enforcement: Arc<dyn Enforcement>,
        listeners: Vec<Listener>,
    ) -> Result<Self, StoreError> {
        let (stored, position) = store.alerts()?;
        let stored = stored.iter().map(|alert| serde_json::from_str(alert)).collect::<Result<_, _>>()?;
        Ok(Self {
            table: Mutex::new(AlertTable::new(stored)),
            position: Mutex::new(position),
            store,
            audit,
            enforcement,
            listeners: RwLock::new(listeners),
            changes: broadcast::Sender::new(CHANGES),
            wake: watch::Sender::new(()),
            storing: tokio::sync::Mutex::default(),
        })
    }

    /// Replaces the webhooks that alerts are for from now on.
    pub(super) fn set_listeners(&self, listeners: Vec<Listener>) {
        *self.listeners.write() = listeners;
    }

    /// Imposes again the measures that are in force, before the first client is admitted.
    pub(super) async fn restore(&self) {
        for alert in self.in_force(|_| true) {
            if let Err(failure) = self.enforcement.impose(&alert).await {
                tracing::warn!(alert = %alert.id, "an effect of an alert no longer holds: {failure}");
                self.change(alert.id, |alert| {
                    alert.imposed.state = ImposedState::Over;
                    alert.imposed.failure = failure;
                });
            }
        }
        self.keep().await;
    }

    fn in_force(&self, wanted: impl Fn(&Alert) -> bool) -> Vec<Alert> {
        let now = UnixMillis::now().0;
        let holds = |alert: &&Alert| {
            alert.imposed.state == ImposedState::InForce && !alert.is_over(now) && wanted(alert)
        };
        self.table.lock().newest().filter(holds).cloned().collect()
    }

    /// Handles a rule that fired at a record of `at` milliseconds.
    ///
    /// Returns true if that raised an alert, and false if it is a further occurrence of an existing one.
    pub(super) fn fire(&self, firing: &Firing, setting: &policy::AnomalySetting, at: u64) -> bool {
        let raised = self.table.lock().fire(firing, setting, at, &self.listeners.read());
        if let Some(alert) = &raised {
            tracing::warn!(
                alert = %alert.id,
                rule = alert.rule,
                agent = alert.agent_id,
                run = alert.run_id,
                action = alert.imposed.measure.name(),
                "{}",
                alert.summary()
            );
            self.publish(alert.clone());
        }
        raised.is_some()
    }

    /// Notes an alert's record in the log, which an earlier daemon may not have noted in the store.
    pub(super) async fn found(&self, record: &Record) {
        let event = &record.event;
        let detail = |name: &str| event.details.as_ref()?.get(name)?.as_str();
        let Some(id) = detail("alert_id").and_then(|id| AlertId::parse(id).ok()) else { return };
        let noted = |alert: &mut Alert| alert.recorded = true;
        match detail("state") {
            Some("raised") if self.table.lock().get(id).is_some_and(|alert| !alert.recorded) => {
                self.change(id, noted);
            }
            Some("imposed")
                if self
                    .table
                    .lock()
                    .get(id)
                    .is_some_and(|alert| alert.imposed.state == ImposedState::Due) =>
            {
                let until = event
                    .details
                    .as_ref()
                    .and_then(|details| details.get("until_ms"))
                    .and_then(Value::as_u64);
                let now = UnixMillis::now().0;
                if let Some(alert) = self.change(id, |alert| in_force(alert, until))
                    && !alert.is_over(now)
                {
                    let _ = self.enforcement.impose(&alert).await;
                }
            }
            Some("acknowledged")
                if self.table.lock().get(id).is_some_and(|alert| alert.acknowledged.is_none()) =>
            {
                let word = Acknowledged {
                    by: event.principal.clone().unwrap_or_default(),
                    at: UnixMillis::now().0,
                    comment: detail("comment").unwrap_or_default().to_owned(),
                };
                self.lift(id, word).await;
            }
            _ => {}
        }
    }

    /// Records the unrecorded alerts, and imposes the measures that are due. A failure is retried the next time.
    pub(super) async fn finish(&self) {
        let unfinished = self.table.lock().unfinished();
        for id in unfinished {
            if self.record(id).await.is_err() {
                break;
            }
            self.impose(id).await;
        }
        self.expire();
        self.keep().await;
        self.wake.send_replace(());
    }

    async fn record(&self, id: AlertId) -> Result<(), audit_service::Unavailable> {
        let Some(alert) = self.get(id).filter(|alert| !alert.recorded) else { return Ok(()) };
        // Stores the alert first, which an interruption must not lose.
        self.keep().await;
        self.audit.record(event(&alert, "raised", json!({}))).await?;
        self.change(id, |alert| alert.recorded = true);
        Ok(())
    }

    async fn impose(&self, id: AlertId) {
        let until = |alert: &Alert| {
            alert.imposed.measure.lasts().map(|lasts| UnixMillis::now().0.saturating_add(lasts))
        };
        let Some(mut alert) = self.get(id).filter(|alert| alert.imposed.state == ImposedState::Due) else {
            return;
        };
        let ends = until(&alert);
        in_force(&mut alert, ends);
        let imposed = self.enforcement.impose(&alert).await;
        let done = match &imposed {
            Ok(()) => event(&alert, "imposed", json!({ "until_ms": alert.imposed.until })),
            Err(failure) => event(&alert, "failed", json!({ "failure": failure })),
        };
        // An operator was quicker.
        if self.get(id).is_none_or(|now| now.acknowledged.is_some()) {
            let _ = self.enforcement.lift(&alert).await;
            return;
        }
        self.change(id, |stored| match &imposed {
            Ok(()) => in_force(stored, alert.imposed.until),
            Err(failure) => {
                tracing::error!(alert = %id, action = stored.imposed.measure.name(), "{failure}");
                stored.imposed.state = ImposedState::Failed;
                stored.imposed.failure.clone_from(failure);
            }
        });
        if self.audit.record(done).await.is_err() {
            tracing::error!(alert = %id, "the measure that an alert imposed is not in the audit log yet");
        }
    }

    /// Marks the measures that have expired.
    fn expire(&self) {
        let now = UnixMillis::now().0;
        let mut table = self.table.lock();
        let over: Vec<AlertId> = table
            .newest()
            .filter(|alert| alert.imposed.state == ImposedState::InForce && alert.is_over(now))
            .map(|alert| alert.id)
            .collect();
        for id in over {
            if let Some(alert) = table.change(id, |alert| alert.imposed.state = ImposedState::Over) {
                self.publish(alert);
            }
        }
    }

    /// Acknowledges an alert: lifts its measure, and resets the rule for its subject.
    pub async fn acknowledge(
        &self,
        id: AlertId,
        principal: &Principal,
        comment: &str,
    ) -> Result<Alert, Refusal> {
        if comment.chars().count() > MAX_COMMENT {
            return Err(Refusal::invalid("comment", format!("must be at most {MAX_COMMENT} characters")));
        }
        let alert = self.get(id).ok_or_else(|| no_such_alert(id))?;
        if let Some(word) = &alert.acknowledged {
            return Err(Refusal::new(
                Reason::PreconditionFailed,
                format!("the alert was acknowledged by {} already", word.by),
            ));
        }
        let (comment, _) = self.audit.redactor().text(comment);
        let told = json!({ "comment": comment, "lifted": alert.imposed.measure.name() });
        self.audit.record(event(&alert, "acknowledged", told).principal(&principal.name)).await?;
        let word = Acknowledged { by: principal.name.clone(), at: UnixMillis::now().0, comment };
        let lifted = self.lift(id, word).await;
        self.keep().await;
        lifted.or_else(|| self.get(id)).ok_or_else(|| no_such_alert(id))
    }

    async fn lift(&self, id: AlertId, word: Acknowledged) -> Option<Alert> {
        let was_in_force = self.get(id)?.imposed.state == ImposedState::InForce;
        let alert = self.table.lock().acknowledge(id, word)?;
        if was_in_force && let Err(failure) = self.enforcement.lift(&alert).await {
            tracing::warn!(alert = %id, "the measure of an alert had already ended: {failure}");
        }
        if matches!(alert.imposed.measure, Measure::Throttle { .. }) {
            // An agent has one throttle, which several alerts may share.
            for other in self.in_force(|other| other.agent_id == alert.agent_id) {
                let _ = self.enforcement.impose(&other).await;
            }
        }
        self.publish(alert.clone());
        Some(alert)
    }

    /// Returns one alert.
    pub fn get(&self, id: AlertId) -> Option<Alert> {
        self.table.lock().get(id).cloned()
    }

    /// Returns the `most` newest alerts that `wanted` accepts, newest first; with `after`, older ones than that.
    pub fn list(&self, after: Option<AlertId>, most: usize, wanted: impl Fn(&Alert) -> bool) -> Vec<Alert> {
        let table = self.table.lock();
        let behind = |alert: &&Alert| after.is_none_or(|after| alert.id < after);
        table.newest().filter(behind).filter(|alert| wanted(alert)).take(most).cloned().collect()
    }

    /// Returns the changes from now on.
    pub fn changes(&self) -> broadcast::Receiver<Arc<Alert>> {
        self.changes.subscribe()
    }

    pub(super) fn position(&self) -> u64 {
        *self.position.lock()
    }

    /// Notes that the log has been read up to here.
    pub(super) fn advance(&self, sequence: u64) {
        let mut position = self.position.lock();
        *position = sequence.max(*position);
    }

    /// Stores the changes, with the position. A failure is retried with the next change.
    pub(super) async fn keep(&self) {
        let _one = self.storing.lock().await;
        let changes = self.table.lock().take_changes();
        if !changes.is_empty() {
            self.save(changes).await;
        }
    }

    /// Stores the position, even without changes.
    pub(super) async fn keep_position(&self) {
        let _one = self.storing.lock().await;
        let changes = self.table.lock().take_changes();
        self.save(changes).await;
    }

    /// Stores changes that were taken by the holder of `storing`: an older state is never stored after a newer one.
    async fn save(&self, changes: super::table::Changes) {
        let position = self.position();
        let (alerts, removed) = (changes.alerts.clone(), changes.removed.clone());
        let saved = self.store.with(move |store| {
            let record = |alert: &Alert| Ok((alert.id, serde_json::to_string(alert)?));
            let alerts = alerts.iter().map(record).collect::<Result<Vec<_>, StoreError>>()?;
            store.save_alerts(&alerts, &removed, position)
        });
        let saved = saved.await;
        if let Err(error) = saved {
            tracing::error!(error = %chain(&error), "alerts cannot be stored");
            self.table.lock().return_changes(changes);
        }
    }

    /// Returns the next delivery for a webhook: its time, its alert, and the message.
    pub(super) fn next_delivery(&self, webhook: &str) -> Option<(u64, AlertId, Vec<u8>)> {
        let table = self.table.lock();
        let (at, alert) = table.next_delivery(webhook)?;
        Some((at, alert.id, message(alert)))
    }

    /// Notes how an attempt ended.
    pub(super) async fn delivered(&self, id: AlertId, webhook: &str, how: impl FnOnce(&mut Delivery)) {
        let changed = self.table.lock().delivery(id, webhook, how);
        if let Some(alert) = changed {
            self.publish(alert);
        }
        self.keep().await;
    }

    /// Returns a receiver that changes when there may be an alert to deliver.
    pub(super) fn woken(&self) -> watch::Receiver<()> {
        let mut woken = self.wake.subscribe();
        woken.mark_unchanged();
        woken
    }

    fn publish(&self, alert: Alert) {
        // Without a watcher the message is dropped.
        let _ = self.changes.send(Arc::new(alert));
    }

    fn change(&self, id: AlertId, how: impl FnOnce(&mut Alert)) -> Option<Alert> {
        let changed = self.table.lock().change(id, how);
        if let Some(alert) = &changed {
            self.publish(alert.clone());
        }
        changed
    }
}

fn in_force(alert: &mut Alert, until: Option<u64>) {
    let stops = alert.imposed.measure == Measure::Stop;
    alert.imposed.state = if stops { ImposedState::Over } else { ImposedState::InForce };
    alert.imposed.until = until;
}

fn no_such_alert(id: AlertId) -> Refusal {
    Refusal::absent("alert", id, "there is no such alert")
}

/// Returns the record of an alert. `state`: `raised`, `imposed`, `failed`, `acknowledged`.
fn event(alert: &Alert, state: &str, more: Value) -> Event {
    let mut details = alert.facts();
    details["state"] = state.into();
    if let (Some(details), Value::Object(more)) = (details.as_object_mut(), more) {
        details.extend(more);
    }
    let mut event = Event::new(Kind::Alert).agent(&alert.agent_id).details(details);
    if !alert.run_id.is_empty() {
        event = event.run(&alert.run_id);
    }
    event
}

/// Returns the message to a webhook, with the same bytes at every attempt.
fn message(alert: &Alert) -> Vec<u8> {
    let mut data = alert.facts();
    data["principal"] = alert.principal.as_str().into();
    data["agent_id"] = alert.agent_id.as_str().into();
    data["run_id"] = alert.run_id.as_str().into();
    let raised =
        jiff::Timestamp::from_millisecond(i64::try_from(alert.raised_at).unwrap_or(0)).unwrap_or_default();
    let message = json!({ "type": "alert.raised", "timestamp": raised.to_string(), "data": data });
    message.to_string().into_bytes()
}

#[cfg(test)]
#[path = "alerts_tests.rs"]
mod tests;
