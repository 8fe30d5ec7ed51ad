//! The permissions in force, indexed so that a lookup does not scan all of them.

use std::collections::{BTreeMap, HashMap};
use std::hash::RandomState;
use std::sync::Arc;

use operations::Operation;
use timestamp::UnixMillis;

use super::about::About;
use super::permission::{Effect, Permission, Subject};
use crate::exec::Sight;

/// Most permissions that may be in force at the same time.
pub const MAX_IN_FORCE: usize = 4_096;

/// The table of permissions is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{MAX_IN_FORCE} permissions are in force already: end some first")]
pub struct TooMany;

/// A set of permissions. One that has ended or expired does not count; it is removed when the next one is added.
#[derive(Debug, Clone, Default)]
pub struct Permissions {
    by_id: BTreeMap<String, Arc<Permission>>,
    of_agents: HashMap<String, Vec<Entry>>,
    of_roles: HashMap<String, Vec<Entry>>,
    of_teams: HashMap<String, Vec<Entry>>,
    hasher: RandomState,
}

#[derive(Debug, Clone)]
struct Entry {
    about: About,
    permission: Arc<Permission>,
}

/// The caller of a call, as every subject that it is.
#[derive(Debug)]
pub(crate) struct Holders<'h, T> {
    pub(crate) agent: &'h str,
    pub(crate) role: &'h str,
    pub(crate) teams: T,
}

/// Effect of the permissions on a call.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    /// The revocation that takes the call away.
    pub(crate) taken: Option<Arc<Permission>>,
    /// A grant that gives the call, a preapproved one if there is any.
    pub(crate) given: Option<Arc<Permission>>,
    /// Other grants that give the call.
    pub(crate) also: Vec<Arc<Permission>>,
}

impl Standing {
    /// Removes grants of commands by their first words. If a run can replace programs, these grants give nothing.
    pub(crate) fn without_commands(mut self) -> Self {
        let grants = self.given.take().into_iter().chain(std::mem::take(&mut self.also));
        let mut grants: Vec<_> = grants.filter(|grant| grant.scope.command.is_empty()).collect();
        if !grants.is_empty() {
            let best = grants.iter().position(|grant| grant.preapproved).unwrap_or_default();
            self.given = Some(grants.remove(best));
        }
        Self { also: grants, ..self }
    }
}

impl Permissions {
    /// Makes a set of stored permissions. They were checked when they were given.
    pub fn of(permissions: impl IntoIterator<Item = Permission>) -> Self {
        let mut all = Self::default();
        permissions.into_iter().for_each(|permission| all.add(permission));
        all
    }

    fn add(&mut self, permission: Permission) {
        let permission = Arc::new(permission);
        let about = About::permission(&permission, &self.hasher);
        let entry = Entry { about, permission: permission.clone() };
        let (of_kind, name) = self.of_kind(&permission.subject);
        of_kind.entry(name.to_owned()).or_default().push(entry);
        self.by_id.insert(permission.id.clone(), permission);
    }

    /// Returns this set with one more permission, which has passed [`Permission::check`].
    pub fn with(&self, permission: Permission, now: UnixMillis) -> Result<Self, TooMany> {
        let mut kept = self.clone();
        let over: Vec<String> =
            kept.by_id.values().filter(|old| !old.is_in_force(now)).map(|old| old.id.clone()).collect();
        for id in &over {
            kept.remove(id);
        }
        if kept.by_id.len() >= MAX_IN_FORCE {
            return Err(TooMany);
        }
        kept.add(permission);
        Ok(kept)
    }

    /// Returns this set without one permission.
    #[must_use]
    pub fn without(&self, id: &str) -> Self {
        let mut kept = self.clone();
        kept.remove(id);
        kept
    }

    fn remove(&mut self, id: &str) {
        let Some(old) = self.by_id.remove(id) else { return };
        let (of_kind, name) = self.of_kind(&old.subject);
        if let Some(of_subject) = of_kind.get_mut(name) {
            of_subject.retain(|entry| entry.permission.id != id);
            if of_subject.is_empty() {
                of_kind.remove(name);
            }
        }
    }

    fn of_kind<'s>(&mut self, subject: &'s Subject) -> (&mut HashMap<String, Vec<Entry>>, &'s str) {
        match subject {
            Subject::Agent(name) => (&mut self.of_agents, name),
            Subject::Role(name) => (&mut self.of_roles, name),
            Subject::Team(name) => (&mut self.of_teams, name),
        }
    }

    /// Returns the permission with this id, if it is in force.
    pub fn get(&self, id: &str, now: UnixMillis) -> Option<&Permission> {
        self.by_id.get(id).map(Arc::as_ref).filter(|permission| permission.is_in_force(now))
    }

    /// Returns the permissions in force, by id.
    pub fn in_force(&self, now: UnixMillis) -> impl Iterator<Item = &Permission> {
        self.by_id.values().map(Arc::as_ref).filter(move |permission| permission.is_in_force(now))
    }

    /// Returns the effect on a call of these holders: first the agent's permissions, then its role's, then its teams'.
    pub(crate) fn standing<'h>(
        &self,
        holders: Holders<'h, impl Iterator<Item = &'h str>>,
        operation: &Operation,
        read_only: bool,
        now: UnixMillis,
    ) -> Standing {
        let mut standing = Standing::default();
        if self.by_id.is_empty() {
            return standing;
        }
        let (call, about) = (Sight::of(operation), About::call(operation, &self.hasher));
        let Holders { agent, role, teams } = holders;
        let of_teams = teams.filter_map(|team| self.of_teams.get(team));
        let own = [self.of_agents.get(agent), self.of_roles.get(role)];
        for of_subject in own.into_iter().flatten().chain(of_teams) {
            let may_speak = of_subject.iter().filter(|entry| entry.about.meets(about));
            for permission in may_speak.map(|entry| &entry.permission).filter(|one| one.is_in_force(now)) {
                match permission.effect {
                    Effect::Revocation if standing.taken.is_none() => {
                        if permission.takes(&call, read_only) {
                            standing.taken = Some(permission.clone());
                        }
                    }
                    Effect::Grant if permission.gives(&call, read_only) => {
                        let better = standing
                            .given
                            .as_ref()
                            .is_none_or(|given| permission.preapproved && !given.preapproved);
                        let other = if better {
                            standing.given.replace(permission.clone())
                        } else {
                            Some(permission.clone())
                        };
                        standing.also.extend(other);
                    }
                    Effect::Grant | Effect::Revocation => {}
                }
            }
        }
        standing
    }
}
