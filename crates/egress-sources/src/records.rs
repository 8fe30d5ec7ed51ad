//! Records of a run's connections and refusals, as the audit log has them.
//!
//! No record has a redirect. The records do tell which connection a call began last before it was refused a host.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use egress_rules::Destination;
use serde_json::Value;
use timestamp::Timestamp;

use crate::refused::Refused;

/// Longest time from a connection to a refusal to which it may have led.
const SOON: Duration = Duration::from_secs(10);

/// Last connections before refusals, as host and port, by the refused host and its port.
pub(super) type Ways<'r> = BTreeMap<(&'r str, Option<u16>), BTreeSet<&'r str>>;

/// Records of the kinds `egress_intent` and `egress_refused` of one run.
#[derive(Debug, Default)]
pub struct Records {
    /// In the order of the log.
    steps: BTreeMap<u64, Step>,
}

#[derive(Debug)]
struct Step {
    at: Timestamp,
    /// Calls whose commands were running.
    calls: Vec<String>,
    event: Event,
}

#[derive(Debug)]
enum Event {
    /// A connection went out to this host and port.
    Connected(String),
    Refused(Refused),
}

impl Records {
    /// Adds a record, in any order. Records of another kind or form are left out.
    pub fn add(&mut self, json: &str) {
        if let Ok(record) = serde_json::from_str(json)
            && let Some((sequence, step)) = step(&record)
        {
            self.steps.insert(sequence, step);
        }
    }

    /// Returns the refusals.
    pub fn refused(&self) -> Vec<Refused> {
        let refused = self.steps.values().filter_map(|step| match &step.event {
            Event::Refused(refused) => Some(refused.clone()),
            Event::Connected(_) => None,
        });
        refused.collect()
    }

    /// Returns the last connection of the same call within the time before each refusal.
    ///
    /// A refusal that is on record with a later count names no call, and has none.
    pub(super) fn ways(&self) -> Ways<'_> {
        let mut last: BTreeMap<&str, (u64, Timestamp, &str)> = BTreeMap::new();
        let mut ways = Ways::new();
        for (sequence, Step { at, calls, event }) in &self.steps {
            match event {
                Event::Connected(to) => {
                    last.extend(calls.iter().map(|call| (call.as_str(), (*sequence, *at, to.as_str()))));
                }
                Event::Refused(refused) => {
                    let before = calls.iter().filter_map(|call| last.get(call.as_str()));
                    let soon = before.filter(|(_, then, _)| then.until(*at) <= SOON);
                    if let Some((_, _, to)) = soon.max() {
                        ways.entry((refused.host.as_str(), refused.port)).or_default().insert(*to);
                    }
                }
            }
        }
        ways
    }
}

/// Returns a record with its place in the log.
fn step(record: &Value) -> Option<(u64, Step)> {
    let details = record.get("details")?;
    let event = match record.get("kind")?.as_str()? {
        "egress_intent" => Event::Connected(connected(details)?),
        "egress_refused" => Event::Refused(Refused::from_record(details)?),
        _ => return None,
    };
    let at = record.get("time")?.as_str()?.parse().ok()?;
    let calls = details.get("calls").and_then(Value::as_array).into_iter().flatten();
    let calls = calls.filter_map(Value::as_str).map(str::to_owned).collect();
    Some((record.get("sequence")?.as_u64()?, Step { at, calls, event }))
}

/// Returns the host and port of a connection.
fn connected(details: &Value) -> Option<String> {
    let host = Destination::parse(details.get("host")?.as_str()?).ok()?;
    let port = u16::try_from(details.get("port")?.as_u64()?).ok()?;
    Some(format!("{host}:{port}"))
}

#[cfg(test)]
#[path = "records_tests.rs"]
mod tests;
