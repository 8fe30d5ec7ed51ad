//! Holds the alerts: decides which firing is a new one and which steps each alert still needs, and bounds their number.
//!
//! It makes no I/O. The caller takes the changes and stores them together with the position in the log up to which they are right.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::alert::{Acknowledged, Alert, Delivery, DeliveryState, Imposed, ImposedState, Measure, Whom};
use identity::AlertId;
use policy::AnomalySetting;

use super::detector::Firing;

/// Most alerts that are kept. Beyond that the least important are removed.
pub(super) const MAX_ALERTS: usize = 10_000;
/// Most alerts that may wait for one webhook.
pub(super) const MAX_DUE: usize = 1_000;

/// The facts of a webhook that the table needs.
#[derive(Debug, Clone)]
pub(super) struct Listener {
    pub(super) name: String,
    pub(super) min_severity: policy::Severity,
}

#[derive(Debug, Default)]
pub(super) struct AlertTable {
    alerts: BTreeMap<AlertId, Alert>,
    /// The alert to which further firings of a rule and a subject belong.
    current: HashMap<(String, Whom), AlertId>,
    changed: BTreeSet<AlertId>,
    removed: Vec<AlertId>,
}

/// The changes to store.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Changes {
    pub(super) alerts: Vec<Alert>,
    pub(super) removed: Vec<AlertId>,
}

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        self.alerts.is_empty() && self.removed.is_empty()
    }
}

impl AlertTable {
    /// Returns a table of the stored alerts.
    pub(super) fn new(stored: Vec<Alert>) -> Self {
        let mut table = Self::default();
        for alert in stored {
            if alert.acknowledged.is_none() {
                table.current.insert((alert.rule.clone(), alert.subject.clone()), alert.id);
            }
            table.alerts.insert(alert.id, alert);
        }
        table
    }

    /// Handles a rule that fired at a record of `at`. Returns the alert if it is a new one.
    ///
    /// There is one alert for a rule, a subject and a window, or for as long as its measure is in force.
    pub(super) fn fire(
        &mut self,
        firing: &Firing,
        setting: &AnomalySetting,
        at: u64,
        listeners: &[Listener],
    ) -> Option<Alert> {
        let key = (firing.rule.as_str().to_owned(), Whom::from(&firing.subject));
        if let Some(alert) = self.current.get(&key).and_then(|id| self.alerts.get_mut(id)) {
            let in_window = at < alert.last_at.saturating_add(setting.window_s.saturating_mul(1_000));
            let over = alert.imposed.measure.lasts().is_some() && alert.is_over(at);
            let holds = alert.imposed.measure != Measure::None && !alert.is_over(at);
            if holds || (in_window && !over) {
                alert.occurrences += 1;
                alert.last_at = at.max(alert.last_at);
                alert.last_sequence = firing.sequence;
                self.changed.insert(alert.id);
                return None;
            }
        }
        let due = |listener: &Listener| Delivery {
            webhook: listener.name.clone(),
            state: DeliveryState::Due,
            attempts: 0,
            next_at: 0,
            failure: String::new(),
        };
        let told = listeners.iter().filter(|listener| setting.severity >= listener.min_severity);
        let alert = Alert {
            id: AlertId::new(),
            rule: key.0.clone(),
            severity: setting.severity,
            subject: key.1.clone(),
            principal: firing.agent.principal.to_string(),
            agent_id: firing.agent.id.to_string(),
            run_id: firing.run.to_string(),
            threshold: setting.threshold,
            window_s: setting.window_s,
            count: firing.evidence.count,
            sequences: firing.evidence.sequences.clone(),
            raised_at: at,
            occurrences: 1,
            last_at: at,
            last_sequence: firing.sequence,
            imposed: Imposed::due(setting),
            recorded: false,
            acknowledged: None,
            deliveries: told.map(due).collect(),
        };
        self.make_room(at);
        for delivery in &alert.deliveries {
            self.make_way(&delivery.webhook);
        }
        self.current.insert(key, alert.id);
        self.changed.insert(alert.id);
        self.alerts.insert(alert.id, alert.clone());
        Some(alert)
    }

    /// Removes one alert if there are too many: first settled ones, of these acknowledged ones, then the least severe, then the
    /// oldest.
    fn make_room(&mut self, now: u64) {
        if self.alerts.len() < MAX_ALERTS {
            return;
        }
        let least = self.alerts.values().min_by_key(|alert| {
            (!alert.is_settled(now), alert.acknowledged.is_none(), alert.severity, alert.id)
        });
        if let Some(id) = least.map(|alert| alert.id)
            && let Some(alert) = self.alerts.remove(&id)
        {
            let key = (alert.rule, alert.subject);
            if self.current.get(&key) == Some(&id) {
                self.current.remove(&key);
            }
            self.changed.remove(&id);
            self.removed.push(id);
        }
    }

    /// Gives up the oldest waiting delivery of a webhook if too many wait.
    fn make_way(&mut self, webhook: &str) {
        let waits = |alert: &&Alert| {
            alert.deliveries.iter().any(|d| d.webhook == webhook && d.state == DeliveryState::Due)
        };
        let waiting: Vec<AlertId> = self.alerts.values().filter(waits).map(|alert| alert.id).collect();
        if let Some(first) = waiting.first().filter(|_| waiting.len() >= MAX_DUE) {
            self.delivery(*first, webhook, |delivery| {
                delivery.state = DeliveryState::GaveUp;
                "too many alerts wait for this webhook".clone_into(&mut delivery.failure);
            });
        }
    }

    pub(super) fn get(&self, id: AlertId) -> Option<&Alert> {
        self.alerts.get(&id)
    }

    /// Returns all alerts, newest first.
    pub(super) fn newest(&self) -> impl Iterator<Item = &Alert> {
        self.alerts.values().rev()
    }

    /// Changes an alert. `None`: it has been removed.
    pub(super) fn change(&mut self, id: AlertId, how: impl FnOnce(&mut Alert)) -> Option<Alert> {
        let alert = self.alerts.get_mut(&id)?;
        how(alert);
        self.changed.insert(id);
        Some(alert.clone())
    }

    /// Changes one delivery.
    pub(super) fn delivery(
        &mut self,
        id: AlertId,
        webhook: &str,
        how: impl FnOnce(&mut Delivery),
    ) -> Option<Alert> {
        let alert = self.alerts.get_mut(&id)?;
        how(alert.deliveries.iter_mut().find(|delivery| delivery.webhook == webhook)?);
        self.changed.insert(id);
        Some(alert.clone())
    }

    /// Acknowledges an alert: further firings raise another one. `None`: it has been removed, or was acknowledged before.
    pub(super) fn acknowledge(&mut self, id: AlertId, word: Acknowledged) -> Option<Alert> {
        let alert = self.alerts.get_mut(&id).filter(|alert| alert.acknowledged.is_none())?;
        alert.acknowledged = Some(word);
        if matches!(alert.imposed.state, ImposedState::Due | ImposedState::InForce) {
            alert.imposed.state = ImposedState::Lifted;
        }
        let key = (alert.rule.clone(), alert.subject.clone());
        if self.current.get(&key) == Some(&id) {
            self.current.remove(&key);
        }
        self.changed.insert(id);
        Some(alert.clone())
    }

    /// Returns the alerts that are not in the audit log yet, or whose measure is due.
    pub(super) fn unfinished(&self) -> Vec<AlertId> {
        let unfinished = |alert: &&Alert| !alert.recorded || alert.imposed.state == ImposedState::Due;
        self.alerts.values().filter(unfinished).map(|alert| alert.id).collect()
    }

    /// Returns the next delivery for a webhook, and its time. Unrecorded alerts are not delivered.
    pub(super) fn next_delivery(&self, webhook: &str) -> Option<(u64, &Alert)> {
        self.alerts
            .values()
            .filter(|alert| alert.recorded)
            .flat_map(|alert| alert.deliveries.iter().map(move |delivery| (delivery, alert)))
            .filter(|(delivery, _)| delivery.webhook == webhook && delivery.state == DeliveryState::Due)
            .map(|(delivery, alert)| (delivery.next_at, alert))
            .min_by_key(|(at, alert)| (*at, alert.id))
    }

    /// Takes the changes to store.
    pub(super) fn take_changes(&mut self) -> Changes {
        let changed = std::mem::take(&mut self.changed);
        Changes {
            alerts: changed.iter().filter_map(|id| self.alerts.get(id)).cloned().collect(),
            removed: std::mem::take(&mut self.removed),
        }
    }

    /// Returns changes that could not be stored to the table.
    pub(super) fn return_changes(&mut self, changes: Changes) {
        self.changed.extend(changes.alerts.into_iter().map(|alert| alert.id));
        self.removed.extend(changes.removed);
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
