//! Reads `tenants`: the bounds of the principals and groups of each, and of principals that none matches.

use std::collections::BTreeMap;

use document::{At, Fields};
use tenants::{Bounds, Resource, Tenant, Tenants};

/// Most names and beginnings that one tenant may list.
const MAX_PRINCIPALS: usize = 20_000;
/// Longest name of a principal, bytes.
const MAX_PRINCIPAL: usize = 512;
/// Longest name of a group with its issuer, bytes.
const MAX_GROUP: usize = 256;
/// Beginnings of the names of principals, by their credential.
const KINDS: [&str; 4] = ["uid:", "cert:", "token:", "oidc:"];
/// Largest bounds, in the unit of each.
const MOST: [(Resource, u64); 6] = [
    (Resource::Runs, 100_000),
    (Resource::Memory, 1 << 30),
    (Resource::Cpu, 1 << 30),
    (Resource::Disk, 1 << 34),
    (Resource::Egress, 1 << 34),
    (Resource::Pool, 100_000),
];

/// Reads one tenant. That of the name `default` matches no principal: it is for those that no other matches.
pub(super) fn tenant(name: &str, at: &At<'_>) -> Tenant {
    let keys = Resource::ALL.map(Resource::key);
    let is_default = name == Tenants::DEFAULT;
    let known: Vec<&str> =
        keys.into_iter().chain(["match", "groups"].into_iter().filter(|_| !is_default)).collect();
    let fields = at.fields(&known);
    fields.need_values(&keys);
    let groups = fields.get("groups").filter(|_| !is_default).map(groups);
    let matched = match &groups {
        _ if is_default => None,
        Some(_) => fields.get("match"),
        None => fields.required("match"),
    };
    let principals = matched.map_or_else(Vec::new, principals);
    let bounds = bounds(&fields);
    // A bound with a problem has been reported.
    if keys.iter().all(|key| fields.get(key).is_none()) {
        at.problem_hint("bounds nothing", Some(format!("give one of {}", keys.join(", "))));
    }
    Tenant { principals, groups: groups.unwrap_or_default(), bounds, place: 0 }
}

fn bounds(fields: &Fields<'_>) -> Bounds {
    // 0 is possible: a tenant that may have none.
    let [runs, memory_mib, cpu_millis, disk_mib, egress_mib_per_day, pool_per_minute] =
        MOST.map(|(resource, most)| fields.get(resource.key()).and_then(|at| at.number(0..=most)));
    Bounds { runs, memory_mib, cpu_millis, disk_mib, egress_mib_per_day, pool_per_minute }
}

fn principals(at: &At<'_>) -> Vec<String> {
    let items = at.one_or_more();
    if items.is_empty() || items.len() > MAX_PRINCIPALS {
        at.problem(format!("must list 1 to {MAX_PRINCIPALS} principals"));
    }
    let read = |item: &At<'_>| {
        let name = item.text()?;
        let beginning = name.strip_suffix('*').unwrap_or(name);
        let has_kind = KINDS.iter().any(|kind| beginning.starts_with(kind));
        if !has_kind || beginning.contains(['*', '\n', '\t']) || name.len() > MAX_PRINCIPAL {
            item.problem_hint(
                "must be the name of a principal, or the beginning of some and `*`",
                Some("such as `uid:1000`, `token:ci`, `cert:builder` or `oidc:corp:ml-*`".to_owned()),
            );
        }
        Some(name.to_owned())
    };
    items.iter().take(MAX_PRINCIPALS).filter_map(read).collect()
}

fn groups(at: &At<'_>) -> Vec<String> {
    let items = at.one_or_more();
    if items.is_empty() || items.len() > Tenants::MOST_GROUPS {
        at.problem(format!("must list 1 to {} groups", Tenants::MOST_GROUPS));
    }
    let read = |item: &At<'_>| {
        let name = item.text()?;
        let has_both =
            name.split_once(':').is_some_and(|(issuer, group)| !issuer.is_empty() && !group.is_empty());
        if !has_both || name.contains(['*', '\n', '\t']) || name.len() > MAX_GROUP {
            item.problem_hint(
                "must be a group with the name of its issuer in the configuration",
                Some("such as `corp:ml`".to_owned()),
            );
        }
        Some(name.to_owned())
    };
    items.iter().take(Tenants::MOST_GROUPS).filter_map(read).collect()
}

/// Reports principals and groups that two tenants match with the same text, and too many beginnings or groups. `report` is called with a
/// tenant's name, a key of it, and a message.
pub(super) fn compare(tenants: &BTreeMap<String, Tenant>, mut report: impl FnMut(&str, &str, String)) {
    let (mut seen, mut beginnings) = (BTreeMap::new(), 0);
    let mut groups = BTreeMap::new();
    for (name, group) in
        tenants.iter().flat_map(|(name, tenant)| tenant.groups.iter().map(move |group| (name, group)))
    {
        if let Some(before) = groups.insert(group.as_str(), name.as_str()) {
            report(name, "groups", format!("`{group}` is also in the tenant {before}; keep one"));
        }
    }
    if groups.len() > Tenants::MOST_GROUPS
        && let Some(name) = tenants.iter().find(|(_, tenant)| !tenant.groups.is_empty()).map(|(name, _)| name)
    {
        let most = Tenants::MOST_GROUPS;
        report(name, "groups", format!("the tenants have more than {most} groups together"));
    }
    for (name, tenant) in tenants {
        for principal in &tenant.principals {
            beginnings += usize::from(principal.ends_with('*'));
            if let Some(before) = seen.insert(principal.as_str(), name.as_str()) {
                report(name, "match", format!("`{principal}` is also in the tenant {before}; keep one"));
            }
        }
    }
    if beginnings > Tenants::MOST_BEGINNINGS
        && let Some(name) = tenants.keys().next()
    {
        let most = Tenants::MOST_BEGINNINGS;
        report(
            name,
            "match",
            format!("the tenants have more than {most} beginnings of names together; use whole names"),
        );
    }
}

#[cfg(test)]
mod tests {
    use crate::Policy;

    const REST: &str = "profiles: {p: {operations: {}}}\nroles: {r: {allow: \"*\"}}\n";

    fn loaded(tenants: &str) -> Result<Policy, Vec<String>> {
        Policy::from_files([("p.yaml", format!("{REST}tenants:\n{tenants}"))])
            .map_err(|problems| problems.0.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn tenants_are_read_and_written_back() {
        let policy = loaded(
            "  ml: {match: ['oidc:corp:ml-*', 'token:ml-ci'], runs: 20, memory_mib: 32768, cpu_millis: 16000, disk_mib: 204800,
        egress_mib_per_day: 10240, pool_per_minute: 30}\n  default: {runs: 4}\n",
        );
        let policy = policy.unwrap();
        let ml = policy.tenants().of("oidc:corp:ml-7", None);
        assert_eq!((ml.tenant, ml.bounds.runs, ml.bounds.pool_per_minute), ("ml", Some(20), Some(30)));
        let own = policy.tenants().of("uid:7", None);
        assert_eq!((own.tenant, own.section, own.bounds.runs), ("uid:7", "default", Some(4)));
        let written = policy.to_yaml().unwrap();
        assert_eq!(Policy::from_files([("again.yaml", &written)]).unwrap().digest(), policy.digest());
        let other = loaded("  default: {runs: 5}\n").unwrap();
        assert_ne!(other.digest(), policy.digest());
        let none = Policy::from_files([("p.yaml", REST)]).unwrap();
        assert!(none.tenants().is_empty() && !none.to_yaml().unwrap().contains("tenants"));
    }

    #[test]
    fn groups_are_read_and_written_back_in_the_order_of_the_policy() {
        let policy = loaded(
            "  web: {groups: 'corp:web', runs: 1}\n  ml: {match: 'token:ml-ci', groups: ['corp:ml', 'lab:a:b'], runs: 2}\n",
        );
        let policy = policy.unwrap();
        let tenants = policy.tenants();
        let both = ["corp:ml".to_owned(), "corp:web".to_owned()];
        assert_eq!(tenants.first(&both), Some("corp:web"));
        assert_eq!(tenants.of("oidc:corp:a", Some("lab:a:b")).tenant, "ml");
        assert_eq!(tenants.of("token:ml-ci", None).tenant, "ml");
        let again = Policy::from_files([("again.yaml", policy.to_yaml().unwrap())]).unwrap();
        assert_eq!((again.digest(), again.tenants().first(&both)), (policy.digest(), Some("corp:web")));
        let other = loaded(
            "  ml: {match: 'token:ml-ci', groups: ['corp:ml', 'lab:a:b'], runs: 2}\n  web: {groups: 'corp:web', runs: 1}\n",
        );
        assert_ne!(other.unwrap().digest(), policy.digest());
    }

    #[test]
    fn every_problem_of_a_tenant_has_its_place() {
        let principal = "must be the name of a principal, or the beginning of some and `*` (such as `uid:1000`, `token:ci`, \
                         `cert:builder` or `oidc:corp:ml-*`)";
        for (tenants, problem) in [
            ("  a: {match: 'uid:1'}\n", "p.yaml:4: tenants.a: bounds nothing (give one of runs, ".to_owned()),
            ("  a: {runs: 1}\n", "p.yaml:4: tenants.a: `match` is missing".to_owned()),
            ("  a: {match: [alice], runs: 1}\n", format!("p.yaml:4: tenants.a.match[0]: {principal}")),
            ("  a: {match: ['*'], runs: 1}\n", format!("p.yaml:4: tenants.a.match[0]: {principal}")),
            ("  a: {match: ['uid:*1'], runs: 1}\n", format!("p.yaml:4: tenants.a.match[0]: {principal}")),
            (
                "  a: {match: [], runs: 1}\n",
                "p.yaml:4: tenants.a.match: must list 1 to 20000 principals".to_owned(),
            ),
            (
                "  a: {match: 'uid:1', runs: -1}\n",
                "p.yaml:4: tenants.a.runs: must be a whole number from 0 to 100000".to_owned(),
            ),
            (
                "  a: {match: 'uid:1', memory: 5, runs: 1}\n",
                "p.yaml:4: tenants.a.memory: unknown key".to_owned(),
            ),
            (
                "  a: {match: 'uid:1', runs: 1, disk_mib: null}\n",
                "p.yaml:4: tenants.a.disk_mib: has no value, so it would bound nothing".to_owned(),
            ),
            (
                "  default: {match: 'uid:1', runs: 1}\n",
                "p.yaml:4: tenants.default.match: unknown key".to_owned(),
            ),
            (
                "  a: {match: 'uid:1', runs: 1}\n  b: {match: ['uid:2', 'uid:1'], runs: 1}\n",
                "p.yaml:5: tenants.b.match: `uid:1` is also in the tenant a; keep one".to_owned(),
            ),
            (
                "  a: {groups: ml, runs: 1}\n",
                "p.yaml:4: tenants.a.groups: must be a group with the name of its issuer in the configuration (such as `corp:ml`)"
                    .to_owned(),
            ),
            (
                "  a: {groups: [], runs: 1}\n",
                "p.yaml:4: tenants.a.groups: must list 1 to 256 groups".to_owned(),
            ),
            (
                "  a: {groups: 'corp:ml', runs: 1}\n  b: {groups: ['corp:a', 'corp:ml'], runs: 1}\n",
                "p.yaml:5: tenants.b.groups: `corp:ml` is also in the tenant a; keep one".to_owned(),
            ),
            (
                "  default: {groups: 'corp:ml', runs: 1}\n",
                "p.yaml:4: tenants.default.groups: unknown key".to_owned(),
            ),
            (
                "  A: {match: 'uid:1', runs: 1}\n",
                "p.yaml:4: tenants.A: the name of a tenant must be 1 to 64 characters".to_owned(),
            ),
        ] {
            let said = loaded(tenants).unwrap_err();
            assert!(said.len() == 1 && said[0].starts_with(&problem), "{tenants}: {said:?}");
        }
    }
}
