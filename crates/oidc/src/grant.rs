//! Maps the claims of a token to roles.

use std::sync::Arc;

use identity::{NOBODY, Principal, Roles, Scope};
use serde_json::{Map, Value};

/// The claims of a token whose signature is valid.
pub(crate) type Claims = Map<String, Value>;

/// Roles for the holders of tokens in which a claim contains `value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Path of the claim: its name, or the names of the enclosing objects, outermost first.
    pub claim: Vec<String>,
    /// Text that the claim is, or that its list contains.
    pub value: String,
    pub roles: Roles,
    /// Profiles whose runs the grant covers. Empty for all.
    pub profiles: Vec<String>,
    /// User and group whose rights on the host's files the holder has.
    pub user: Option<(u32, u32)>,
}

impl Grant {
    fn fits(&self, claims: &Claims) -> bool {
        texts(claims, &self.claim).any(|text| text == self.value)
    }

    fn scope(&self) -> Option<Arc<Scope>> {
        let scope = || Scope { runs: Vec::new(), profiles: self.profiles.clone() };
        (!self.profiles.is_empty()).then(|| Arc::new(scope()))
    }
}

/// Returns the text at the path of a claim, or the texts of its list.
pub(crate) fn texts<'a>(claims: &'a Claims, path: &[String]) -> impl Iterator<Item = &'a str> + use<'a> {
    let list = match at(claims, path) {
        Some(Value::Array(list)) => list.as_slice(),
        Some(text @ Value::String(_)) => std::slice::from_ref(text),
        _ => &[],
    };
    list.iter().filter_map(Value::as_str)
}

/// Returns true if the token says nothing at the path of a claim.
pub(crate) fn is_missing(claims: &Claims, path: &[String]) -> bool {
    at(claims, path).is_none_or(Value::is_null)
}

fn at<'a>(claims: &'a Claims, path: &[String]) -> Option<&'a Value> {
    let (first, within) = path.split_first()?;
    within.iter().try_fold(claims.get(first)?, |value, name| value.get(name))
}

/// Returns the principal of a token with these claims, under this name.
///
/// Only the first matching grant applies. Grants are not combined, because no operator has written down the sum of two.
pub(crate) fn principal(name: String, grants: &[Grant], claims: &Claims) -> Principal {
    let nobody = Principal { name, ..Principal::anonymous() };
    let Some(grant) = grants.iter().find(|grant| grant.fits(claims)) else { return nobody };
    let (uid, gid) = grant.user.unwrap_or((NOBODY, NOBODY));
    Principal { uid, gid, roles: grant.roles, scope: grant.scope(), ..nobody }
}

#[cfg(test)]
mod tests {
    use identity::{Role, Roles};
    use serde_json::json;

    use super::{Grant, principal};

    fn grant(claim: &[&str], value: &str, role: Role) -> Grant {
        Grant {
            claim: claim.iter().map(ToString::to_string).collect(),
            value: value.into(),
            roles: Roles::none().with(role),
            profiles: vec![],
            user: None,
        }
    }

    #[test]
    fn the_first_entry_that_fits_counts_and_no_other() {
        let narrow = Grant { profiles: vec!["open".into()], ..grant(&["groups"], "ops", Role::Operator) };
        let grants = [
            narrow,
            Grant { user: Some((7, 8)), ..grant(&["realm", "roles"], "ml", Role::Orchestrator) },
            grant(&["sub"], "alice", Role::Auditor),
        ];
        let of = |claims: serde_json::Value| {
            let found = principal("oidc:corp:x".into(), &grants, claims.as_object().unwrap());
            (found.roles.names(), found.scope.is_some(), found.uid)
        };
        let all = json!({ "groups": ["a", "ops"], "realm": { "roles": ["ml"] }, "sub": "alice" });
        assert_eq!(of(all), (vec!["operator"], true, 65_534));
        assert_eq!(of(json!({ "realm": { "roles": ["ml"] } })), (vec!["orchestrator"], false, 7));
        assert_eq!(of(json!({ "groups": "ops" })), (vec!["operator"], true, 65_534));
        assert_eq!(of(json!({ "sub": "alice" })), (vec!["auditor"], false, 65_534));
        for none in [
            json!({}),
            json!({ "groups": [] }),
            json!({ "groups": ["op", "ops ", "OPS", ["ops"], { "ops": 1 }, 1, null] }),
            json!({ "groups": { "ops": true }, "realm": ["ml"], "sub": ["bob"] }),
            json!({ "realm.roles": "ml", "realm": { "roles": { "ml": "ml" } }, "sub": 1 }),
        ] {
            assert_eq!(of(none.clone()), (vec![], false, 65_534), "{none}");
        }
    }
}
