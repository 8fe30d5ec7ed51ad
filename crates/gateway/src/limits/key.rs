//! A scope that borrows the names of a call, so that a lookup of its counter copies none of them.

use super::counter::{Agent, Scope};

/// A [`Scope`], borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Key<'k> {
    Operation { principal: &'k str, agent_id: &'k str, operation: &'k str },
    Run(&'k str),
    Principal(&'k str),
    Throttled { principal: &'k str, agent_id: &'k str },
}

impl Key<'_> {
    pub(super) fn to_scope(self) -> Scope {
        match self {
            Self::Operation { principal, agent_id, operation } => Scope::Operation {
                principal: principal.to_owned(),
                agent_id: agent_id.to_owned(),
                operation: operation.to_owned(),
            },
            Self::Run(run) => Scope::Run(run.to_owned()),
            Self::Principal(principal) => Scope::Principal(principal.to_owned()),
            Self::Throttled { principal, agent_id } => {
                Scope::Throttled(Agent { principal: principal.to_owned(), id: agent_id.to_owned() })
            }
        }
    }
}

impl Scope {
    pub(super) fn key(&self) -> Key<'_> {
        match self {
            Self::Operation { principal, agent_id, operation } => {
                Key::Operation { principal, agent_id, operation }
            }
            Self::Run(run) => Key::Run(run),
            Self::Principal(principal) => Key::Principal(principal),
            Self::Throttled(Agent { principal, id }) => Key::Throttled { principal, agent_id: id },
        }
    }
}
