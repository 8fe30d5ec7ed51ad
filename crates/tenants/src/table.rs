//! Tenants, and the principals of each.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use crate::bounds::Bounds;

/// One tenant. Serialised, it is a policy section again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Tenant {
    /// Names of principals. A name that ends in `*` matches every name with that beginning.
    #[serde(rename = "match", skip_serializing_if = "Vec::is_empty")]
    pub principals: Vec<String>,
    /// Groups of issuers, as `ISSUER:GROUP`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    #[serde(flatten)]
    pub bounds: Bounds,
    /// Place in the order of the policy. If two tenants have groups of a principal, the first counts.
    #[serde(skip)]
    pub place: usize,
}

/// All tenants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tenants {
    by_name: BTreeMap<String, Tenant>,
    /// Names in the order of the policy, if a tenant has groups, and otherwise sorted.
    order: Vec<String>,
    /// Tenants of whole names of principals.
    exact: BTreeMap<String, String>,
    /// Tenants of groups.
    groups: BTreeMap<String, String>,
    /// Beginnings of names with their tenants, longest first.
    beginnings: Vec<(String, String)>,
}

/// A principal's tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member<'a> {
    /// Name of the tenant, or of the principal if it is one by itself.
    pub tenant: &'a str,
    /// Section of the policy with its bounds.
    pub section: &'a str,
    pub bounds: Bounds,
}

impl Tenants {
    /// Name of the section for principals that no tenant matches. Each is a tenant by itself.
    pub const DEFAULT: &'static str = "default";
    /// Most tenants, and most beginnings of names that they match together.
    pub const MOST: usize = 64;
    pub const MOST_BEGINNINGS: usize = 256;
    /// Most groups that they have together.
    pub const MOST_GROUPS: usize = 256;

    pub fn new(mut by_name: BTreeMap<String, Tenant>) -> Self {
        let mut order: Vec<String> = by_name.keys().cloned().collect();
        if by_name.values().any(|tenant| !tenant.groups.is_empty()) {
            order.sort_by_key(|name| by_name.get(name).map(|tenant| tenant.place));
        }
        let (mut exact, mut groups, mut beginnings) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        for (place, name) in order.iter().enumerate() {
            let Some(tenant) = by_name.get_mut(name) else { continue };
            tenant.place = place;
            for group in &tenant.groups {
                groups.entry(group.clone()).or_insert_with(|| name.clone());
            }
        }
        for (name, tenant) in &by_name {
            for principal in &tenant.principals {
                match principal.strip_suffix('*') {
                    Some(beginning) => beginnings.push((beginning.to_owned(), name.clone())),
                    None => drop(exact.insert(principal.clone(), name.clone())),
                }
            }
        }
        beginnings.sort_by(|(one, _), (other, _)| other.len().cmp(&one.len()).then(one.cmp(other)));
        Self { by_name, order, exact, groups, beginnings }
    }

    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Returns the tenants by name, without `default`.
    pub fn named(&self) -> impl Iterator<Item = (&str, &Tenant)> {
        let all = self.by_name.iter().map(|(name, tenant)| (name.as_str(), tenant));
        all.filter(|(name, _)| *name != Self::DEFAULT)
    }

    /// Returns the groups of a tenant. A principal that is one by itself has none.
    pub fn groups_of(&self, tenant: &str) -> &[String] {
        self.by_name.get(tenant).map_or(&[], |tenant| &tenant.groups)
    }

    /// Returns the group that decides the tenant of a principal which is in `groups`: that of the first tenant of the policy that has one.
    pub fn first<'g>(&self, groups: &'g [String]) -> Option<&'g str> {
        let place = |group: &str| self.by_name.get(self.groups.get(group)?).map(|tenant| tenant.place);
        let known = groups.iter().filter_map(|group| Some((place(group)?, group)));
        known.min_by_key(|(place, _)| *place).map(|(_, group)| group.as_str())
    }

    /// Returns the tenant of a principal, which may be in a group: that of its whole name, else of its group, else of the longest beginning.
    pub fn of<'a>(&'a self, principal: &'a str, group: Option<&str>) -> Member<'a> {
        let begun =
            || self.beginnings.iter().find(|(beginning, _)| principal.starts_with(beginning.as_str()));
        let named = self.exact.get(principal).or_else(|| self.groups.get(group?));
        let named = named.or_else(|| begun().map(|(_, name)| name));
        let bounds = |name: &str| self.by_name.get(name).map(|tenant| tenant.bounds).unwrap_or_default();
        match named {
            Some(name) => Member { tenant: name, section: name, bounds: bounds(name) },
            None => Member { tenant: principal, section: Self::DEFAULT, bounds: bounds(Self::DEFAULT) },
        }
    }
}

impl Serialize for Tenants {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.order.iter().filter_map(|name| Some((name, self.by_name.get(name)?))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_name_wins_then_the_longest_beginning_then_the_default() {
        let tenant = |principals: &[&str], runs| Tenant {
            principals: principals.iter().map(ToString::to_string).collect(),
            bounds: Bounds { runs: Some(runs), ..Bounds::default() },
            ..Tenant::default()
        };
        let tenants = Tenants::new(BTreeMap::from([
            ("all-oidc".to_owned(), tenant(&["oidc:corp:*"], 1)),
            ("ml".to_owned(), tenant(&["oidc:corp:ml-*", "token:ml-ci"], 2)),
            ("one".to_owned(), tenant(&["oidc:corp:ml-boss"], 3)),
            (Tenants::DEFAULT.to_owned(), tenant(&[], 4)),
        ]));
        let of = |principal| {
            let member = tenants.of(principal, None);
            (member.tenant.to_owned(), member.section.to_owned(), member.bounds.runs)
        };
        let named = |name: &str, runs| (name.to_owned(), name.to_owned(), Some(runs));
        assert_eq!(of("oidc:corp:ml-boss"), named("one", 3));
        assert_eq!(of("oidc:corp:ml-7"), named("ml", 2));
        assert_eq!(of("token:ml-ci"), named("ml", 2));
        assert_eq!(of("oidc:corp:eve"), named("all-oidc", 1));
        // A name that only begins like a whole one is not it.
        assert_eq!(of("token:ml-ci2"), ("token:ml-ci2".to_owned(), "default".to_owned(), Some(4)));
        assert_eq!(tenants.named().map(|(name, _)| name).collect::<Vec<_>>(), ["all-oidc", "ml", "one"]);
        let none = Tenants::default();
        assert!(none.is_empty() && none.of("uid:0", None).bounds.is_empty());
    }
    #[test]
    fn a_group_wins_over_a_beginning_and_the_first_tenant_of_the_policy_over_others() {
        let tenant = |place, principals: &[&str], groups: &[&str]| Tenant {
            principals: principals.iter().map(ToString::to_string).collect(),
            groups: groups.iter().map(ToString::to_string).collect(),
            place,
            ..Tenant::default()
        };
        let tenants = Tenants::new(BTreeMap::from([
            ("a-last".to_owned(), tenant(9, &["oidc:corp:*"], &["corp:all"])),
            ("b-first".to_owned(), tenant(3, &[], &["corp:ml", "lab:ml"])),
            ("c-one".to_owned(), tenant(5, &["oidc:corp:boss"], &[])),
        ]));
        let groups = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let first = |names: &[&str]| tenants.first(&groups(names)).map(str::to_owned);
        assert_eq!(first(&["corp:x", "corp:all", "corp:ml"]).as_deref(), Some("corp:ml"));
        assert_eq!(first(&["corp:all"]).as_deref(), Some("corp:all"));
        assert_eq!(first(&["corp:x", "ml", "corp:ML"]), None);
        let of = |principal, group| tenants.of(principal, group).tenant.to_owned();
        assert_eq!(of("oidc:corp:eve", Some("corp:ml")), "b-first");
        assert_eq!(of("oidc:corp:boss", Some("corp:ml")), "c-one");
        assert_eq!(of("oidc:corp:eve", Some("corp:gone")), "a-last");
        assert_eq!(of("oidc:lab:eve", None), "oidc:lab:eve");
        // The order is a part of the policy.
        let written = serde_json::to_string(&tenants).unwrap();
        let at = |name: &str| written.find(name).unwrap();
        assert!(at("b-first") < at("c-one") && at("c-one") < at("a-last"), "{written}");
    }
}
