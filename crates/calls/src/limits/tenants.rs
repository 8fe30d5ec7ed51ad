//! Serves `GetTenants`, and records the runs that bounds of tenants refuse.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ::tenants::{Resource, TenantUse};
use admission::Occurrences;
use audit::{Event, Kind, Outcome, Status};
use identity::{Principal, Role};
use operations::Reason;
use parking_lot::Mutex;
use refusal::Refusal;
use runs::Runs;
use serde_json::json;
use wire::v1;
use wire::v1::resource_use::Resource as Wire;

use super::Limits;

/// Most tenants of an answer.
const MOST: usize = 1_000;
/// Time after which a tenant without a refusal is forgotten, and number of tenants at which that is looked at.
const FORGET: (Duration, usize) = (Duration::from_secs(60), 1_024);

/// Refusals that are not on record yet, by tenant.
#[derive(Debug, Default)]
pub(super) struct Refused(Mutex<BTreeMap<String, (Instant, Occurrences)>>);

impl Refused {
    /// Counts a refusal. Returns the number since the last record of this tenant, if it is time for another one.
    fn add(&self, tenant: &str, now: Instant) -> Option<u64> {
        let mut all = self.0.lock();
        if all.len() >= FORGET.1 && !all.contains_key(tenant) {
            all.retain(|_, (last, _)| now.duration_since(*last) < FORGET.0);
        }
        let (last, occurrences) =
            all.entry(tenant.to_owned()).or_insert_with(|| (now, Occurrences::default()));
        *last = now;
        occurrences.add(now)
    }
}

impl Limits {
    /// Records that a run was refused because of a bound of its tenant: at once, and then once a minute with a count.
    ///
    /// Does nothing for a refusal of another reason.
    pub async fn run_refused(&self, refusal: &Refusal, principal: &Principal, agent: &str) {
        if refusal.reason != Reason::TenantLimit {
            return;
        }
        let facts: BTreeMap<&str, &str> =
            refusal.metadata.iter().map(|(name, value)| (&**name, value.as_str())).collect();
        let tenant = facts.get("tenant").copied().unwrap_or_default();
        let Some(count) = self.refused.add(tenant, Instant::now()) else { return };
        let mut details = json!({ "count": count });
        for name in ["tenant", "limit"] {
            details[name] = facts.get(name).copied().unwrap_or_default().into();
        }
        for name in ["used", "wanted", "max"] {
            details[name] = facts.get(name).and_then(|fact| fact.parse::<u64>().ok()).into();
        }
        let outcome = Outcome::new(Status::Denied).reason(refusal.reason.as_str()).message(&*refusal.message);
        let event = Event::new(Kind::RunRefused).principal(&principal.name).agent(agent).outcome(outcome);
        if self.audit.enqueue(event.details(details)).await.is_err() {
            tracing::error!(tenant, "a run that was refused is not in the audit log");
        }
    }
}

/// Returns the use of the tenants that `principal` may see.
pub fn show_tenants(
    runs: &Runs,
    principal: &Principal,
    request: &v1::GetTenantsRequest,
) -> Result<v1::GetTenantsResponse, Refusal> {
    let whose = whose(principal, &request.principal)?;
    let mut tenants = runs.launcher.tenancy().report(&runs.used_by_principal(), whose);
    let left_out = tenants.len().saturating_sub(MOST);
    tenants.truncate(MOST);
    Ok(v1::GetTenantsResponse {
        tenants: tenants.into_iter().map(to_wire).collect(),
        left_out: u32::try_from(left_out).unwrap_or(u32::MAX),
    })
}

/// Returns the principal whose tenant is shown; `None` for all tenants.
fn whose<'a>(principal: &'a Principal, asked: &'a str) -> Result<Option<&'a str>, Refusal> {
    identity::check_principal_name("principal", asked)?;
    let sees_all = principal.roles.has_any(&[Role::Operator, Role::Auditor]);
    match asked {
        "" if sees_all => Ok(None),
        "" => Ok(Some(&principal.name)),
        _ if sees_all || asked == principal.name => Ok(Some(asked)),
        _ => {
            let message = "principal: only operators and auditors see the tenants of others";
            Err(Refusal::new(Reason::PermissionDenied, message))
        }
    }
}

fn to_wire(tenant: TenantUse) -> v1::TenantUse {
    let TenantUse { tenant, section, groups, bounds, used } = tenant;
    let one = |(resource, used)| {
        let shown = match resource {
            Resource::Runs => Wire::Runs,
            Resource::Memory => Wire::MemoryMib,
            Resource::Cpu => Wire::CpuMillis,
            Resource::Disk => Wire::DiskMib,
            Resource::Egress => Wire::EgressMibToday,
            Resource::Pool => Wire::PoolLastMinute,
        };
        v1::ResourceUse { resource: shown.into(), used, limit: bounds.of(resource) }
    };
    v1::TenantUse { tenant, section, resources: used.into_iter().map(one).collect(), groups }
}

#[cfg(test)]
mod tests {
    use identity::Roles;

    use super::*;

    #[test]
    fn a_flood_of_refusals_is_one_record_a_minute_with_all_of_them() {
        let (refused, now) = (Refused::default(), Instant::now());
        let at = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(refused.add("a", at(0)), Some(1));
        for _ in 0..200 {
            assert_eq!(refused.add("a", at(1)), None);
        }
        assert_eq!(refused.add("b", at(1)), Some(1), "another tenant");
        assert_eq!(refused.add("a", at(60)), Some(201));
        for number in 0..3 * FORGET.1 {
            let later = at(200 + 60 * number as u64);
            refused.add(&format!("p{number}"), later);
        }
        assert!(refused.0.lock().len() <= FORGET.1);
    }

    #[test]
    fn operators_and_auditors_see_all_tenants_and_others_their_own() {
        let of = |roles: &[Role]| {
            let roles = roles.iter().fold(Roles::none(), |roles, role| roles.with(*role));
            Principal { name: "uid:7".to_owned(), roles, ..Principal::anonymous() }
        };
        for role in [Role::Operator, Role::Auditor] {
            assert_eq!(whose(&of(&[role]), "").unwrap(), None);
            assert_eq!(whose(&of(&[role]), "uid:8").unwrap(), Some("uid:8"));
        }
        let own = of(&[Role::Orchestrator]);
        assert_eq!(whose(&own, "").unwrap(), Some("uid:7"));
        assert_eq!(whose(&own, "uid:7").unwrap(), Some("uid:7"));
        assert_eq!(whose(&own, "uid:8").unwrap_err().reason, Reason::PermissionDenied);
    }
}
