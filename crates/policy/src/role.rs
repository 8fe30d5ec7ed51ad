//! Roles: the operations that exist for an agent, and those of them that need consent.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::holding::{Grant, Holding, Lists, parents};
use crate::lineage::{Heir, lineage};
use crate::{Risk, read::RISKS};
use document::At;

/// A role, with its inheritance resolved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Role {
    /// Text for people. May be missing.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Roles whose grants and denials this one has, too.
    pub inherits: Vec<String>,
    /// Held as [`Grant::AsProfile`].
    pub allow: Vec<String>,
    /// Held as [`Grant::Ask`].
    pub ask: Vec<String>,
    /// Never held, even if inherited or granted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
    /// Calls of this risk or more need consent in profiles that are not `unattended`. Not inherited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consent_from: Option<Risk>,
    #[serde(skip)]
    holding: Holding,
}

impl Heir for Role {
    const KIND: &'static str = "role";

    fn parents(&self) -> &[String] {
        &self.inherits
    }
}

impl Role {
    /// Returns how the role holds `operation`, or `None` if it does not.
    ///
    /// `read_only` says that the read-only rule covers the command.
    pub fn grant(&self, operation: &str, read_only: bool) -> Option<Grant> {
        self.holding.grant(operation, read_only)
    }

    /// Returns true if the role denies the operation, so that no team and no grant gives it.
    pub fn denies(&self, operation: &str, read_only: bool) -> bool {
        self.holding.denies(operation, read_only)
    }

    /// Returns the keys that it holds by its own lists and by inheritance, as they are written.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.holding.keys()
    }

    pub(super) fn holding(&self) -> &Holding {
        &self.holding
    }

    pub(super) fn read(at: &At<'_>) -> Self {
        let fields = at.fields(&["description", "inherits", "allow", "ask", "deny", "consent_from"]);
        let lists = Lists::read(at, &fields);
        if lists.is_empty() && fields.get("inherits").is_none() {
            at.problem_hint(
                "the role can do nothing",
                Some("list operations under `allow` or `ask`, or inherit a role".to_owned()),
            );
        }
        Self {
            description: fields.text_or("description", ""),
            inherits: parents(&fields, "role"),
            allow: lists.allow,
            ask: lists.ask,
            deny: lists.deny,
            consent_from: fields.get("consent_from").and_then(|at| at.one_of(&RISKS)),
            holding: Holding::default(),
        }
    }

    fn lists(&self) -> Lists {
        Lists { allow: self.allow.clone(), ask: self.ask.clone(), deny: self.deny.clone() }
    }
}

/// Fills in the operations that every role holds. `report` is called with a role's name, a message and a suggestion.
pub(super) fn resolve(
    roles: &mut BTreeMap<String, Role>,
    mut report: impl FnMut(&str, String, Option<String>),
) {
    let mut resolved = Vec::with_capacity(roles.len());
    for name in roles.keys() {
        let mut holding = Holding::default();
        match lineage(roles, name) {
            Ok(line) => line.into_iter().for_each(|role| holding.add(&role.lists())),
            Err(broken) => report(name, broken.message, broken.suggestion),
        }
        resolved.push(holding);
    }
    for (role, holding) in roles.values_mut().zip(resolved) {
        role.holding = holding;
    }
}
