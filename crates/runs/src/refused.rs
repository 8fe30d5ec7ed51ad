//! Records the runs that bounds of tenants, the node or the daemon's limit refuse.
//!
//! A refusal costs its client nothing, but a record costs space on disk. So each tenant has one record a minute of each reason, with the
//! number of refusals since the last one. Beyond a number of tenants, the others share a record, which names none of them.

use std::collections::{BTreeMap, BTreeSet};
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
/// Most tenants and reasons that are counted apart, and most further tenants that are told apart in the number of them.
const APART: usize = 1_024;

/// A reason and a tenant. `None` is for all tenants that are not counted apart.
type Key = (&'static str, Option<String>);

/// Refusals of a key that are not on record yet.
#[derive(Debug)]
struct Counted {
    last: Instant,
    occurrences: Occurrences,
    /// Tenants that are not counted apart.
    together: BTreeSet<String>,
}

/// Refusals for one record.
#[derive(Debug, PartialEq, Eq)]
struct Due {
    count: u64,
    /// Number of their tenants, [`APART`] also for more.
    tenants: usize,
}

/// Refusals that are not on record yet.
#[derive(Debug, Default)]
pub(crate) struct Refused(Mutex<BTreeMap<Key, Counted>>);

impl Refused {
    /// Counts a refusal. Returns those since the last record of this reason and tenant, if it is time for another one.
    fn add(&self, reason: Reason, tenant: &str, now: Instant) -> Option<Due> {
        let mut all = self.0.lock();
        let mut key = (reason.as_str(), Some(tenant.to_owned()));
        if all.len() >= APART && !all.contains_key(&key) {
            all.retain(|_, counted| now.duration_since(counted.last) < FORGET);
            if all.len() >= APART {
                key.1 = None;
            }
        }
        let is_apart = key.1.is_some();
        let new = || Counted { last: now, occurrences: Occurrences::default(), together: BTreeSet::new() };
        let counted = all.entry(key).or_insert_with(new);
        counted.last = now;
        if !is_apart && counted.together.len() < APART {
            counted.together.insert(tenant.to_owned());
        }
        let count = counted.occurrences.add(now)?;
        Some(Due { count, tenants: std::mem::take(&mut counted.together).len().max(1) })
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
        let named = refusal.metadata.iter().find(|(name, _)| name == "tenant");
        let tenant = named.map_or_else(|| tenancy.tenant_of(principal), |(_, tenant)| tenant.clone());
        let Some(due) = self.add(refusal.reason, &tenant, Instant::now()) else { return };
        let event = if due.tenants > 1 {
            of_several(&due, refusal)
        } else {
            of_one(due.count, &tenant, refusal, (principal, agent))
        };
        if audit.enqueue(event).await.is_err() {
            tracing::error!(tenant, "a run that was refused is not in the audit log");
        }
    }
}

/// Returns the record of refusals of one tenant, with the facts of the last one.
fn of_one(count: u64, tenant: &str, refusal: &Refusal, (principal, agent): (&str, &str)) -> Event {
    let facts: BTreeMap<&str, &str> =
        refusal.metadata.iter().map(|(name, value)| (&**name, value.as_str())).collect();
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
    event.details(details)
}

/// Returns the record of refusals of several tenants. No principal, agent, bound or message of one of them is in it.
fn of_several(due: &Due, refusal: &Refusal) -> Event {
    let outcome = Outcome::new(Status::Denied).reason(refusal.reason.as_str());
    let details = json!({ "count": due.count, "tenants": due.tenants });
    Event::new(Kind::RunRefused).outcome(outcome).details(details)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_a_tenant(count: u64) -> Option<Due> {
        Some(Due { count, tenants: 1 })
    }

    #[test]
    fn a_flood_of_refusals_is_one_record_a_minute_with_all_of_them() {
        let (refused, now) = (Refused::default(), Instant::now());
        let at = |seconds| now + Duration::from_secs(seconds);
        let add = |tenant: &str, seconds| refused.add(Reason::TenantLimit, tenant, at(seconds));
        assert_eq!(add("a", 0), of_a_tenant(1));
        for _ in 0..200 {
            assert_eq!(add("a", 1), None);
        }
        assert_eq!(add("b", 1), of_a_tenant(1), "another tenant");
        assert_eq!(refused.add(Reason::NodeDrained, "a", at(1)), of_a_tenant(1), "another reason");
        assert_eq!(add("a", 60), of_a_tenant(201));
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
        let new = refused.add(Reason::Overloaded, "new", now + FORGET);
        assert_eq!(new, of_a_tenant(1), "the others are forgotten");
    }

    #[test]
    fn a_shared_record_has_the_number_of_its_tenants() {
        let (refused, now) = (Refused::default(), Instant::now());
        let add = |tenant: &str, seconds| {
            refused.add(Reason::Overloaded, tenant, now + Duration::from_secs(seconds))
        };
        let keep_all_apart = |seconds| {
            for number in 0..APART {
                add(&format!("p{number}"), seconds);
            }
        };
        keep_all_apart(0);
        assert_eq!(add("a", 1), of_a_tenant(1), "it is the first");
        for tenant in ["a", "b", "b", "c", "b"] {
            assert_eq!(add(tenant, 2), None);
        }
        keep_all_apart(50);
        assert_eq!(add("d", 61), Some(Due { count: 6, tenants: 4 }));
        for number in 0..2 * APART {
            assert_eq!(add(&format!("q{number}"), 62), None);
        }
        keep_all_apart(100);
        let due = add("d", 121);
        assert_eq!(due, Some(Due { count: 2 * APART as u64 + 1, tenants: APART }), "the number is bounded");
        keep_all_apart(150);
        assert_eq!(add("e", 150), None);
        let due = add("d", 181);
        assert_eq!(due, Some(Due { count: 2, tenants: 2 }), "tenants of an earlier record do not count");
    }

    #[test]
    fn a_shared_record_names_no_tenant_and_nothing_of_one() {
        let refusal = Refusal::new(Reason::TenantLimit, "alpha uses 2 of at most 2")
            .with("tenant", "alpha")
            .with("limit", "tenants.alpha.runs")
            .with("max", "2");
        let one = of_one(3, "alpha", &refusal, ("uid:7", "agent"));
        let details = json!({ "count": 3, "tenant": "alpha", "limit": "tenants.alpha.runs", "max": 2 });
        assert_eq!((one.details, one.principal.as_deref()), (Some(details), Some("uid:7")));
        assert_eq!(one.agent_id.as_deref(), Some("agent"));
        let several = of_several(&Due { count: 3, tenants: 2 }, &refusal);
        assert_eq!(several.details, Some(json!({ "count": 3, "tenants": 2 })));
        let outcome = several.outcome.as_ref().unwrap();
        assert_eq!((outcome.reason.as_deref(), outcome.message.as_deref()), (Some("TENANT_LIMIT"), None));
        assert_eq!((several.principal, several.agent_id), (None, None));
    }
}
