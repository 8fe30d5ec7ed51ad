//! What keeps a run paused.

use containers::Group;
use serde::{Deserialize, Serialize};
use wire::v1;

use crate::time::Timestamp;

/// Why a run is paused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hold {
    /// From `PauseRun` until `ResumeRun`.
    Operator,
    /// An approval with this id waits for its reviewers.
    Approval(String),
    Alert(String),
}

/// A hold, as the run's record has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    pub hold: Hold,
    /// Who asked for it; `None`: the daemon itself.
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

    /// Whether these commands stand still for it. What was approved goes on while a reviewer is asked about something else.
    pub fn stills(&self, group: Group) -> bool {
        match self {
            Self::Operator | Self::Alert(_) => true,
            Self::Approval(_) => group != Group::Alone,
        }
    }

    /// Whether it lets nothing go on at all.
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

    /// For the audit log.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "kind": self.hold.kind().as_str_name(), "cause_id": self.hold.cause(), "principal": self.by,
        })
    }
}
