//! Teams: operations that agents have by their name, besides the role of their run.
//!
//! A team lists its agents, by name or by a prefix of names. Its members hold the operations of its `roles` and lists
//! as if their role gave them, and those of the teams that it inherits from. No member has an operation that the team
//! denies, whatever the role grants. Like a role, a team only determines which operations exist; the profile decides on
//! them.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::holding::{Grant, Holding, Lists, parents};
use crate::lineage::{Heir, lineage};
use crate::role::Role;
use document::{At, nearest};

/// Most names and prefixes of agents that one team may list.
const MAX_AGENTS: usize = 20_000;
/// Longest name of an agent.
const MAX_AGENT: usize = 128;

/// A team, with its inheritance resolved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Team {
    /// Text for people. May be missing.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Teams whose grants and denials this one has, too. Their members are not inherited.
    pub inherits: Vec<String>,
    /// Names of agents. A name that ends in `*` matches every name with that beginning.
    pub agents: Vec<String>,
    /// Roles that every member has besides its own.
    pub roles: Vec<String>,
    /// Held as [`Grant::AsProfile`].
    pub allow: Vec<String>,
    /// Held as [`Grant::Ask`].
    pub ask: Vec<String>,
    /// Held by no member, whatever else grants it.
    pub deny: Vec<String>,
    #[serde(skip)]
    holding: Holding,
}

impl Heir for Team {
    const KIND: &'static str = "team";

    fn parents(&self) -> &[String] {
        &self.inherits
    }
}

impl Team {
    /// Returns how its members hold `operation`, or `None` if they do not.
    pub fn grant(&self, operation: &str, read_only: bool) -> Option<Grant> {
        self.holding.grant(operation, read_only)
    }

    /// Returns true if no member has the operation.
    pub fn denies(&self, operation: &str, read_only: bool) -> bool {
        self.holding.denies(operation, read_only)
    }

    /// Returns the keys that its members hold by it, as they are written.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.holding.keys()
    }

    pub(super) fn read(at: &At<'_>) -> Self {
        let fields = at.fields(&["description", "inherits", "agents", "roles", "allow", "ask", "deny"]);
        let lists = Lists::read(at, &fields);
        if lists.is_empty() && fields.get("inherits").is_none() && fields.get("roles").is_none() {
            at.problem_hint(
                "the team changes nothing for its members",
                Some("list roles or operations, or inherit a team".to_owned()),
            );
        }
        let roles = fields.get("roles").map_or_else(Vec::new, At::one_or_more);
        Self {
            description: fields.text_or("description", ""),
            inherits: parents(&fields, "team"),
            agents: fields.get("agents").map_or_else(Vec::new, agents),
            roles: roles.iter().filter_map(At::text).map(str::to_owned).collect(),
            allow: lists.allow,
            ask: lists.ask,
            deny: lists.deny,
            holding: Holding::default(),
        }
    }
}

fn agents(at: &At<'_>) -> Vec<String> {
    let names = at.one_or_more();
    if names.len() > MAX_AGENTS {
        at.problem(format!("a team may list at most {MAX_AGENTS} agents; use a beginning such as `ci-*`"));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "._:@/-".contains(c);
    names
        .iter()
        .take(MAX_AGENTS)
        .filter_map(|item| {
            let name = item.text()?;
            if name.len() > MAX_AGENT || !name.strip_suffix('*').unwrap_or(name).chars().all(plain) {
                item.problem(format!(
                    "must be the name of an agent, at most {MAX_AGENT} characters of [A-Za-z0-9._:@/-], or the beginning of some, such as `ci-*`"
                ));
            }
            Some(name.to_owned())
        })
        .collect()
}

/// Fills in the operations that every team holds. `report` is called with a team's name, a key, a message and a
/// suggestion.
pub(super) fn resolve(
    teams: &mut BTreeMap<String, Team>,
    roles: &BTreeMap<String, Role>,
    mut report: impl FnMut(&str, &str, String, Option<String>),
) {
    let known: Vec<&str> = roles.keys().map(String::as_str).collect();
    let mut resolved = Vec::with_capacity(teams.len());
    for (name, team) in &*teams {
        for role in team.roles.iter().filter(|role| !roles.contains_key(*role)) {
            report(name, "roles", format!("there is no role `{role}`"), Some(nearest(role, &known)));
        }
        let mut holding = Holding::default();
        match lineage(teams, name) {
            Ok(line) => {
                for team in line {
                    holding.add(&Lists {
                        allow: team.allow.clone(),
                        ask: team.ask.clone(),
                        deny: team.deny.clone(),
                    });
                    for role in team.roles.iter().filter_map(|role| roles.get(role)) {
                        holding.merge(role.holding());
                    }
                }
            }
            Err(broken) => report(name, "inherits", broken.message, broken.suggestion),
        }
        resolved.push(holding);
    }
    for (team, holding) in teams.values_mut().zip(resolved) {
        team.holding = holding;
    }
}

/// The teams of each agent, indexed so that a lookup does not scan all teams.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Members {
    by_name: BTreeMap<String, Vec<String>>,
    /// Prefixes of names, with the team of each.
    by_prefix: Vec<(String, String)>,
}

impl Members {
    pub(super) fn of(teams: &BTreeMap<String, Team>) -> Self {
        let mut members = Self::default();
        for (name, team) in teams {
            for agent in &team.agents {
                match agent.strip_suffix('*') {
                    Some(prefix) => members.by_prefix.push((prefix.to_owned(), name.clone())),
                    None => members.by_name.entry(agent.clone()).or_default().push(name.clone()),
                }
            }
        }
        members
    }

    /// Returns the names of the teams. A name may appear twice.
    pub(super) fn teams_of<'m>(&'m self, agent: &'m str) -> impl Iterator<Item = &'m str> {
        let named = self.by_name.get(agent).into_iter().flatten();
        let begun = self.by_prefix.iter().filter(move |(prefix, _)| agent.starts_with(prefix.as_str()));
        named.chain(begun.map(|(_, team)| team)).map(String::as_str)
    }
}
