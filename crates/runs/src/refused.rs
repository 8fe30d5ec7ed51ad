//! Records the runs that bounds of tenants, the node or the daemon's limit refuse.
//!
//! A refusal costs its client nothing, but a record costs space on disk. So each tenant has one record a minute of each reason, with the
//! number of refusals since the last one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ::tenants::Tenancy;
use admission::Occurrences;
use audit::{Event, Kind, Outcome, Status};
use audit_service::AuditLog;
use operations::Reason;
use parking_lot::Mutex;
use refusal::Refusal;
use serde_json::json;

/// Time after which a tenant without a refusal is forgotten.
const FORGET: Duration = Duration::from_secs(60);
/// Most tenants and reasons that are counted apart. Further tenants count as one.
const APART: usize = 1_024;

/// A reason and a tenant.
type Key = (&'static str, String);

/// Refusals that are not on record yet, with the moment of the last one.
#[derive(Debug, Default)]
pub(crate) struct Refused(Mutex<BTreeMap<Key, (Instant, Occurrences)>>);

impl Refused {
    /// Counts a refusal. Returns the number since the last record of this reason and tenant, if it is time for another one.
    fn add(&self, reason: Reason, tenant: &str, now: Instant) -> Option<u64> {
        let mut all = self.0.lock();
        let mut key = (reason.as_str(), tenant.to_owned());
        if all.len() >= APART && !all.contains_key(&key) {
            all.retain(|_, (last, _)| now.duration_since(*last) < FORGET);
            if all.len() >= APART {
                key.1.clear();
            }
        }
        let (last, occurrences) = all.entry(key).or_insert_with(|| (now, Occurrences::default()));
        *last = now;
        occurrences.add(now)
    }

    /// Records that a run was not admitted because of a bound of its tenant, of the node or of the daemon, or because the node is drained:
    /// at once, and then once a minute with a count. `agent` is empty if it is not known.
    ///
    /// Does nothing for a refusal of another reason.
    pub(crate) async fn record(
        &self,
        (audit, tenancy): (&AuditLog, &Tenancy),
        refusal: &Refusal,
        principal: &str,
        agent: &str,
    ) {
        if !matches!(refusal.reason, Reason::TenantLimit | Reason::Overloaded | Reason::NodeDrained) {
            return;
        }
        let facts: BTreeMap<&str, &str> =
            refusal.metadata.iter().map(|(name, value)| (&**name, value.as_str())).collect();
        let tenant = facts.get("tenant").map(|tenant| (*tenant).to_owned());
        let tenant = tenant.unwrap_or_else(|| tenancy.tenant_of(principal));
        let Some(count) = self.add(refusal.reason, &tenant, Instant::now()) else { return };
        let mut details = json!({ "count": count, "tenant": tenant });
        if let Some(limit) = facts.get("limit") {
            details["limit"] = (*limit).into();
        }
        for name in ["used", "wanted", "max"] {
            if let Some(number) = facts.get(name).and_then(|fact| fact.parse::<u64>().ok()) {
                details[name] = number.into();
            }
        }
        let outcome = Outcome::new(Status::Denied).reason(refusal.reason.as_str()).message(&*refusal.message);
        let mut event = Event::new(Kind::RunRefused).principal(principal).outcome(outcome);
        event.agent_id = Some(agent.to_owned()).filter(|agent| !agent.is_empty());
        if audit.enqueue(event.details(details)).await.is_err() {
            tracing::error!(tenant, "a run that was refused is not in the audit log");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_refusals_is_one_record_a_minute_with_all_of_them() {
        let (refused, now) = (Refused::default(), Instant::now());
        let at = |seconds| now + Duration::from_secs(seconds);
        let add = |tenant: &str, seconds| refused.add(Reason::TenantLimit, tenant, at(seconds));
        assert_eq!(add("a", 0), Some(1));
        for _ in 0..200 {
            assert_eq!(add("a", 1), None);
        }
        assert_eq!(add("b", 1), Some(1), "another tenant");
        assert_eq!(refused.add(Reason::NodeDrained, "a", at(1)), Some(1), "another reason");
        assert_eq!(add("a", 60), Some(201));
        for number in 0..3 * APART {
            add(&format!("p{number}"), 200 + 60 * number as u64);
        }
        assert!(refused.0.lock().len() <= APART);
    }

    #[test]
    fn tenants_beyond_the_bound_share_a_record() {
        let (refused, now) = (Refused::default(), Instant::now());
        let records = (0..2 * APART)
            .filter(|number| refused.add(Reason::Overloaded, &format!("p{number}"), now).is_some());
        assert_eq!((records.count(), refused.0.lock().len()), (APART + 1, APART + 1));
        assert_eq!(refused.add(Reason::Overloaded, "new", now + FORGET), Some(1), "the others are forgotten");
    }
}
