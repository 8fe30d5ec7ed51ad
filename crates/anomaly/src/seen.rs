//! The events that the rules see: small, parsed once, without a text that an agent could make long.

use std::sync::Arc;

use crate::alert::Whom;
use policy::AnomalyRule;
use sha2::{Digest as _, Sha256};

/// Milliseconds on a timeline that never goes back, see [`super::timeline`].
pub(super) type Moment = u64;

/// An agent: a name, and the principal that runs it, since two principals may use the same name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Agent {
    /// The principal that created its runs; empty where any principal matches.
    pub(crate) principal: Arc<str>,
    /// The agent's name.
    pub(crate) id: Arc<str>,
}

/// The subject of a rule's count.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Subject {
    Agent(Agent),
    Run(Arc<str>),
}

impl From<&Subject> for Whom {
    fn from(subject: &Subject) -> Self {
        match subject {
            Subject::Run(run) => Self::Run { run_id: run.to_string() },
            Subject::Agent(Agent { principal, id }) => {
                Self::Agent { principal: principal.to_string(), agent_id: id.to_string() }
            }
        }
    }
}

/// A group of agents that may be granted a permission.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Holder {
    Role(Arc<str>),
    Team(Arc<str>),
}

/// A stand-in for a text: the first half of its SHA-256. Finding two texts with the same mark is infeasible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Mark([u8; 16]);

impl Mark {
    pub(super) fn of(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let mut mark = [0; 16];
        mark.copy_from_slice(&hash.finalize()[..16]);
        Self(mark)
    }
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    /// Sequence number of its record.
    pub(super) sequence: u64,
    pub(super) at: Moment,
    pub(super) agent: Agent,
    /// Empty if no run is concerned.
    pub(super) run: Arc<str>,
    pub(super) what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
    /// A call was decided on.
    Asked,
    /// A call is over.
    Ended(Ended),
    /// The agent was granted a permission.
    Granted,
    /// A role or a team was granted a permission.
    GivenTo(Holder),
    /// The agent tried to use rights that it was not given.
    Escalated,
    /// Its run has used up its disk quota.
    DiskQuota,
    /// The disk has little free space, whatever uses it.
    DiskLow,
    /// A connection of its run is about to go out to this host.
    Connected(Mark),
    /// A connection of its run has ended, and had sent so many bytes.
    Sent(u64),
    /// A lookup of, or connections to, this host were refused.
    Unreached(Mark),
    /// A request of its run had a placeholder of a secret where it is worth nothing.
    Misplaced,
    /// A budget for models is used up to 80 %.
    Spending,
    /// An operator has acknowledged the alert of this rule: earlier events no longer count.
    Acknowledged(AnomalyRule, Subject),
}

/// A call that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) kind: Kind,
    pub(super) ending: Ending,
    /// Mark of operation and arguments. `None`: they are not known.
    pub(super) input: Option<Mark>,
    /// The files that the call names.
    pub(super) files: Vec<Mark>,
    /// True if the call concerns a probable secret.
    pub(super) secret: bool,
}

/// The kind of a call, as far as rules distinguish kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Reads the content of one or more files.
    Read,
    /// Reads names or states.
    Look,
    /// Writes a file or the repository.
    Change,
    Delete,
    /// A command that may do anything.
    Command,
    Other,
}

/// The ending of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Succeeded,
    Failed,
    Denied(Denial),
    /// Failed to leave the part of the system that the run may use.
    Escape,
    /// Refused by a rate limit or a throttle.
    OverLimit,
    /// Failed without the agent's fault: cancelled, frozen, a fault of the daemon.
    Excused,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Denial {
    /// Denial of the command.
    Command,
    /// Denial of the operation: the agent's role lacks it, or the agent was denied it or lost it.
    NotHeld,
    /// Denial by another rule of the profile or by a reviewer.
    Other,
}

impl Seen {
    /// Returns the call, if this is the end of one.
    pub(super) fn ended(&self) -> Option<&Ended> {
        match &self.what {
            What::Ended(ended) => Some(ended),
            _ => None,
        }
    }
}

impl Ended {
    pub(super) fn succeeded(&self) -> bool {
        self.ending == Ending::Succeeded
    }

    pub(super) fn was_refused(&self) -> bool {
        matches!(self.ending, Ending::Denied(_) | Ending::Escape)
    }

    /// Returns true for a command that ran, however it ended.
    pub(super) fn ran_command(&self) -> bool {
        self.kind == Kind::Command && matches!(self.ending, Ending::Succeeded | Ending::Failed)
    }
}
