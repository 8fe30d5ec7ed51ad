//! The reasons for which a run is paused.

use containers::Group;
use serde::{Deserialize, Serialize};
use wire::v1;

use crate::time::Timestamp;

/// Reason why a run is paused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hold {
    /// From `PauseRun` until `ResumeRun`.
    Operator,
    /// An approval with this id waits for its reviewers.
    Approval(String),
    Alert(String),
}

/// A hold in the run's record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    pub hold: Hold,
    /// Principal that asked for it, or `None` for the daemon itself.
    pub by: Option<String>,
    pub since: Timestamp,
}

impl Hold {
    fn kind(&self) -> v1::run_hold::Kind {
        match self {
            Self::Operator => v1::run_hold::Kind::Operator,
            Self::Approval(_) => v1::run_hold::Kind::Approval,
            Self::Alert(_) => v1::run_hold::Kind::Alert,
        }
    }

    /// Returns true if commands of this group are frozen by it.
    ///
    /// An approved command runs on while a reviewer decides about another call.
    pub fn stills(&self, group: Group) -> bool {
        match self {
            Self::Operator | Self::Alert(_) => true,
            Self::Approval(_) => group != Group::Alone,
        }
    }

    /// Returns true if it freezes every group.
    pub fn is_total(&self) -> bool {
        Group::ALL.into_iter().all(|group| self.stills(group))
    }

    fn cause(&self) -> &str {
        match self {
            Self::Operator => "",
            Self::Approval(id) | Self::Alert(id) => id,
        }
    }
}

impl Held {
    pub(super) fn to_wire(&self) -> v1::RunHold {
        v1::RunHold {
            kind: self.hold.kind().into(),
            cause_id: self.hold.cause().to_owned(),
            principal: self.by.clone().unwrap_or_default(),
            since: Some(self.since.to_wire()),
        }
    }

    /// Returns the hold in the format of the audit log.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "kind": self.hold.kind().as_str_name(), "cause_id": self.hold.cause(), "principal": self.by,
        })
    }
}
