//! Serves `GetTenants`.

use ::tenants::{Resource, TenantUse};
use identity::{Principal, Role};
use operations::Reason;
use refusal::Refusal;
use runs::Runs;
use wire::v1;
use wire::v1::resource_use::Resource as Wire;

/// Most tenants of an answer.
const MOST: usize = 1_000;

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
