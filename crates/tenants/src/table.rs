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
    #[serde(flatten)]
    pub bounds: Bounds,
}

/// All tenants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tenants {
    by_name: BTreeMap<String, Tenant>,
    /// Tenants of whole names of principals.
    exact: BTreeMap<String, String>,
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

    pub fn new(by_name: BTreeMap<String, Tenant>) -> Self {
        let (mut exact, mut beginnings) = (BTreeMap::new(), Vec::new());
        for (name, tenant) in &by_name {
            for principal in &tenant.principals {
                match principal.strip_suffix('*') {
                    Some(beginning) => beginnings.push((beginning.to_owned(), name.clone())),
                    None => drop(exact.insert(principal.clone(), name.clone())),
                }
            }
        }
        beginnings.sort_by(|(one, _), (other, _)| other.len().cmp(&one.len()).then(one.cmp(other)));
        Self { by_name, exact, beginnings }
    }

    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Returns the tenants by name, without `default`.
    pub fn named(&self) -> impl Iterator<Item = (&str, &Tenant)> {
        let all = self.by_name.iter().map(|(name, tenant)| (name.as_str(), tenant));
        all.filter(|(name, _)| *name != Self::DEFAULT)
    }

    /// Returns the tenant of a principal.
    pub fn of<'a>(&'a self, principal: &'a str) -> Member<'a> {
        let begun =
            || self.beginnings.iter().find(|(beginning, _)| principal.starts_with(beginning.as_str()));
        let named = self.exact.get(principal).or_else(|| begun().map(|(_, name)| name));
        let bounds = |name: &str| self.by_name.get(name).map(|tenant| tenant.bounds).unwrap_or_default();
        match named {
            Some(name) => Member { tenant: name, section: name, bounds: bounds(name) },
            None => Member { tenant: principal, section: Self::DEFAULT, bounds: bounds(Self::DEFAULT) },
        }
    }
}

impl Serialize for Tenants {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.by_name.serialize(serializer)
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
        };
        let tenants = Tenants::new(BTreeMap::from([
            ("all-oidc".to_owned(), tenant(&["oidc:corp:*"], 1)),
            ("ml".to_owned(), tenant(&["oidc:corp:ml-*", "token:ml-ci"], 2)),
            ("one".to_owned(), tenant(&["oidc:corp:ml-boss"], 3)),
            (Tenants::DEFAULT.to_owned(), tenant(&[], 4)),
        ]));
        let of = |principal| {
            let member = tenants.of(principal);
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
        assert!(none.is_empty() && none.of("uid:0").bounds.is_empty());
    }
}
