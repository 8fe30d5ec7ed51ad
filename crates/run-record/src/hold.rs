//! The reasons for which a run is paused.

use containers::Group;
use serde::{Deserialize, Serialize};
use timestamp::Timestamp;
use wire::v1;

/// Reason why a run is paused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hold {
    /// From `PauseRun` until `ResumeRun`.
    Operator,
    /// An approval with this id waits for its reviewers.
    Approval(String),
    Alert(String),
    /// A terminal with this session id is open, and asked for that.
    Terminal(String),
    /// The checkpoint with this id is being copied.
    Checkpoint(String),
    /// The files of a checkpoint are being put back. The next daemon completes it.
    Restore {
        checkpoint: String,
        /// Checkpoint of the state before.
        before: String,
    },
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
            Self::Terminal(_) => v1::run_hold::Kind::Terminal,
            Self::Checkpoint(_) => v1::run_hold::Kind::Checkpoint,
            Self::Restore { .. } => v1::run_hold::Kind::Restore,
        }
    }

    /// Returns true if commands of this group are frozen by it.
    ///
    /// An approved command runs on while a reviewer decides about another call.
    pub fn stills(&self, group: Group) -> bool {
        match self {
            Self::Operator | Self::Alert(_) | Self::Checkpoint(_) | Self::Restore { .. } => true,
            Self::Approval(_) => group != Group::Alone,
            Self::Terminal(_) => group != Group::Terminal,
        }
    }

    /// Returns true if the run's companions are paused by it, too.
    ///
    /// They go on while a call is decided on or a checkpoint is copied, which ends by itself: no process of the run uses them meanwhile.
    pub fn pauses_companions(&self) -> bool {
        matches!(self, Self::Operator | Self::Alert(_))
    }

    /// Returns true if the run makes no call at all, not even one that only looks or that was approved.
    pub fn is_total(&self) -> bool {
        !matches!(self, Self::Approval(_))
    }

    /// Returns whether this hold is refused while the run has that other one.
    ///
    /// A terminal's is refused beside any other: its shell would be frozen from the start. An approval's is refused beside a
    /// terminal's, because the shell could change what a reviewer decides on, and each would wait for the other's end. A restore's is
    /// refused beside another one's and a checkpoint's, and beside it only the checkpoint of the state before is made.
    pub fn is_refused_beside(&self, other: &Self) -> bool {
        match self {
            Self::Operator | Self::Alert(_) => false,
            Self::Checkpoint(id) => matches!(other, Self::Restore { before, .. } if before != id),
            Self::Approval(_) => matches!(other, Self::Terminal(_)),
            Self::Terminal(_) => true,
            Self::Restore { .. } => matches!(other, Self::Restore { .. } | Self::Checkpoint(_)),
        }
    }

    fn cause(&self) -> &str {
        match self {
            Self::Operator => "",
            Self::Approval(id) | Self::Alert(id) | Self::Terminal(id) | Self::Checkpoint(id) => id,
            Self::Restore { checkpoint, .. } => checkpoint,
        }
    }
}

impl Held {
    pub(crate) fn to_wire(&self) -> v1::RunHold {
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

#[cfg(test)]
mod tests {
    use containers::Group;

    use super::Hold;

    #[test]
    fn each_hold_leaves_only_its_own_subject_running() {
        let running =
            |hold: &Hold| Group::ALL.into_iter().filter(|group| !hold.stills(*group)).collect::<Vec<_>>();
        let [operator, alert, approval, terminal, checkpoint, restore] = all();
        assert_eq!((running(&operator), running(&alert)), (vec![], vec![]));
        assert!(running(&checkpoint).is_empty() && checkpoint.is_total());
        assert!(running(&restore).is_empty() && restore.is_total());
        assert_eq!((running(&approval), running(&terminal)), (vec![Group::Alone], vec![Group::Terminal]));
        assert!(operator.is_total() && alert.is_total() && terminal.is_total() && !approval.is_total());
    }

    #[test]
    fn a_terminal_is_refused_beside_every_hold_and_an_approval_beside_a_terminal() {
        let [operator, alert, approval, terminal, checkpoint, restore] = all();
        assert!(!checkpoint.is_refused_beside(&terminal) && !checkpoint.is_refused_beside(&restore));
        assert!(Hold::Checkpoint("2".to_owned()).is_refused_beside(&restore));
        for other in all() {
            assert!(terminal.is_refused_beside(&other), "{other:?}");
            assert!(!operator.is_refused_beside(&other) && !alert.is_refused_beside(&other), "{other:?}");
            assert_eq!(
                restore.is_refused_beside(&other),
                other == restore || other == checkpoint,
                "{other:?}"
            );
            assert_eq!(approval.is_refused_beside(&other), other == terminal, "{other:?}");
        }
    }

    fn all() -> [Hold; 6] {
        let id = || "1".to_owned();
        [
            Hold::Operator,
            Hold::Alert(id()),
            Hold::Approval(id()),
            Hold::Terminal(id()),
            Hold::Checkpoint(id()),
            Hold::Restore { checkpoint: id(), before: id() },
        ]
    }
}
