//! What the rules see of the record: small, parsed once, without a text that an agent could make long.

use std::sync::Arc;

use gateway::AnomalyRule;
use sha2::{Digest as _, Sha256};
use store::alert::Whom;

/// Milliseconds on a line of time that never goes back, see [`super::timeline`].
pub(super) type Moment = u64;

/// An agent: a name, and the principal that runs it, since two may use the same name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Agent {
    /// Who made its runs; empty where any would do.
    pub(crate) principal: Arc<str>,
    /// Its name.
    pub(crate) id: Arc<str>,
}

/// What a rule counts for, each by itself.
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

/// Who may be granted something beside one agent.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Holder {
    Role(Arc<str>),
    Team(Arc<str>),
}

/// Stands for a text: the first half of its SHA-256. Nobody can make two of the same.
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

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    /// Its record.
    pub(super) sequence: u64,
    pub(super) at: Moment,
    pub(super) agent: Agent,
    /// Empty where no run is concerned.
    pub(super) run: Arc<str>,
    pub(super) what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
    /// A call was decided on.
    Asked,
    /// A call is over.
    Ended(Ended),
    /// The agent was granted something.
    Granted,
    /// Whoever has this role or is of this team was.
    GivenTo(Holder),
    /// It tried to have what it was not given.
    Escalated,
    /// Its run has used up its quota of the disk.
    DiskQuota,
    /// The disk has little room left, whoever took it.
    DiskLow,
    /// An operator has seen the alert of this rule: what came before it counts no more.
    Acknowledged(AnomalyRule, Subject),
}

/// A call that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) kind: Kind,
    pub(super) ending: Ending,
    /// Of operation and arguments. None: they are not known.
    pub(super) input: Option<Mark>,
    /// The files that it was about, if it was about some.
    pub(super) files: Vec<Mark>,
    /// It was about something that looks like a secret.
    pub(super) secret: bool,
}

/// What a call was, as far as rules tell calls apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The content of a file or of many was read.
    Read,
    /// Names, states.
    Look,
    /// A file was written, or the repository was.
    Change,
    Delete,
    /// A command that may do anything.
    Command,
    Other,
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Succeeded,
    Failed,
    Denied(Denial),
    /// It tried to leave what the run may touch, and did not get there.
    Escape,
    /// It came too often: a rate limit or a throttle refused it.
    OverLimit,
    /// It did not come to anything, and the agent is not to blame: cancelled, frozen, a fault of ours.
    Excused,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Denial {
    /// The command.
    Command,
    /// The operation, which the agent's role does not have, or which was denied to or taken from the agent.
    NotHeld,
    /// What the profile denies, and what a reviewer did not want.
    Other,
}

impl Seen {
    /// The call that is over, if one is.
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

    /// It ran something: a command that was not refused, however it ended.
    pub(super) fn ran_command(&self) -> bool {
        self.kind == Kind::Command && matches!(self.ending, Ending::Succeeded | Ending::Failed)
    }
}
