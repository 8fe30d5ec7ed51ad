//! Records the runs that bounds of tenants, the node or the daemon's limit refuse.
//!
//! A refusal costs its client nothing, but a record costs space on disk. So each tenant has one record a minute of each reason, with the
//! number of refusals since the last one. Beyond a number of tenants, the others share a record, which names none of them.

use std::collections::BTreeMap;
use std::time::Instant;

use ::tenants::Tenancy;
use admission::OccurrencesByClient;
use audit::{Event, Kind, Outcome, Status};
use audit_service::AuditLog;
use operations::Reason;
use refusal::Refusal;
use serde_json::json;

/// Refusals that are not on record yet, by reason and tenant.
#[derive(Debug, Default)]
pub(crate) struct Refused(OccurrencesByClient<String>);

impl Refused {
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
        let Some(due) = self.0.add(refusal.reason.as_str(), &tenant, Instant::now()) else { return };
        let event = match due.clients {
            1 => of_one(due.count, &tenant, refusal, (principal, agent)),
            tenants => of_several(due.count, tenants, refusal),
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
fn of_several(count: u64, tenants: usize, refusal: &Refusal) -> Event {
    let outcome = Outcome::new(Status::Denied).reason(refusal.reason.as_str());
    let details = json!({ "count": count, "tenants": tenants });
    Event::new(Kind::RunRefused).outcome(outcome).details(details)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let several = of_several(3, 2, &refusal);
        assert_eq!(several.details, Some(json!({ "count": 3, "tenants": 2 })));
        let outcome = several.outcome.as_ref().unwrap();
        assert_eq!((outcome.reason.as_deref(), outcome.message.as_deref()), (Some("TENANT_LIMIT"), None));
        assert_eq!((several.principal, several.agent_id), (None, None));
    }
}
