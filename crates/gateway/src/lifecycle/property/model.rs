//! The expected behaviour of the gateway, in as little code as possible.

use std::collections::BTreeSet;

use timestamp::UnixMillis;

/// Kind of a slot's call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Does {
    Write,
    Delete,
    MakeAll,
    MakeInstall,
    Shell,
    Wrapped,
    Commit,
    Local,
}

impl Does {
    pub(super) const ALL: [Self; super::SLOTS] = [
        Self::Write,
        Self::Delete,
        Self::MakeAll,
        Self::MakeInstall,
        Self::Shell,
        Self::Wrapped,
        Self::Commit,
        Self::Local,
    ];

    /// Approvers that are needed under the policies that ask.
    pub(super) fn needed(self) -> usize {
        if self == Self::Delete { 2 } else { 1 }
    }

    /// True if the form (0 once, 1 digest, 2 prefix) may be chosen under the policy that lets consent be remembered.
    pub(super) fn offers(self, form: usize) -> bool {
        match self {
            _ if form == 0 => true,
            Self::MakeAll | Self::MakeInstall => true,
            Self::Write | Self::Local => form == 1,
            Self::Delete | Self::Shell | Self::Wrapped | Self::Commit => false,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum State {
    Pending { votes: BTreeSet<usize> },
    Approved { at: UnixMillis },
    Over,
}

/// One approval that was asked for.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) id: String,
    pub(super) state: State,
    pub(super) policy: usize,
    pub(super) file: u64,
    pub(super) from: UnixMillis,
    pub(super) until: UnixMillis,
    pub(super) reminded: bool,
}

impl Asked {
    pub(super) fn is_open(&self) -> bool {
        self.state != State::Over
    }

    pub(super) fn half_time(&self) -> UnixMillis {
        UnixMillis(u64::midpoint(self.from.0, self.until.0))
    }
}

/// One consent that is remembered.
#[derive(Debug, Clone)]
pub(super) struct Remembered {
    pub(super) id: String,
    pub(super) run: usize,
    pub(super) policy: usize,
    pub(super) does: Does,
    /// The file as it was shown; `None` for a prefix.
    pub(super) file: Option<u64>,
}

impl Remembered {
    pub(super) fn covers(&self, does: Does, run: usize, policy: usize, file: u64) -> bool {
        self.run == run
            && self.policy == policy
            && match self.file {
                Some(shown) => shown == file && self.does == does,
                // A bare name is also that program in a directory of the system; a path is that path.
                None => self.does == does || self.does == Does::MakeAll && does == Does::MakeInstall,
            }
    }
}
