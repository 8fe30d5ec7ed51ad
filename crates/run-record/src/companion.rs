//! The companions of a run, as they are stored and shown. Their variables are not stored.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use egress_rules::Rules;
use identity::RunId;
use serde::{Deserialize, Serialize};
use wire::v1;
use wire::v1::companion_status::State as WireState;

use crate::Place;

/// State of a companion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompanionState {
    /// It has not passed its check.
    Starting,
    /// It has passed its check.
    Ready,
    /// Its first process has ended, with this code.
    Exited(i64),
}

/// A companion of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Companion {
    pub name: String,
    /// Image reference, as it was requested.
    pub image: String,
    /// TCP ports that programs of the run may connect to.
    pub ports: BTreeSet<u16>,
    pub memory_mib: u64,
    pub state: CompanionState,
    /// Rules that its connections have to pass beside those of its profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub narrowed: Option<Rules>,
    /// Facts of its launch; `None` before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launched: Option<CompanionLaunch>,
}

/// Facts by which a later daemon recognises a companion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompanionLaunch {
    pub image_id: String,
    /// Id under which its container, its layer and its mounts were made.
    pub made_as: RunId,
    pub container_id: String,
    /// Start time of the container's first process, as the engine writes it.
    pub container_started: String,
    /// Its root.
    pub root: Place,
    /// Name server; `None` if it reaches nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolver: Option<Ipv4Addr>,
    /// Paths of the image's bundles of certificates, if some of its connections are opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundles: Option<Vec<String>>,
}

impl Companion {
    pub(crate) fn to_wire(&self) -> v1::CompanionStatus {
        let (state, code) = match self.state {
            CompanionState::Starting => (WireState::Starting, 0),
            CompanionState::Ready => (WireState::Ready, 0),
            CompanionState::Exited(code) => (WireState::Exited, code),
        };
        let launched = self.launched.as_ref();
        v1::CompanionStatus {
            name: self.name.clone(),
            image: self.image.clone(),
            image_digest: launched.map(|launched| launched.image_id.clone()).unwrap_or_default(),
            state: state.into(),
            exit_code: i32::try_from(code).unwrap_or(-1),
            ports: self.ports.iter().map(|port| u32::from(*port)).collect(),
            // Only the egress knows both; the caller adds them.
            address: String::new(),
            egress: String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_companion_that_has_ended_is_shown_with_its_code() {
        let mut companion = Companion {
            name: "db".to_owned(),
            image: "db:1".to_owned(),
            ports: BTreeSet::from([5432]),
            memory_mib: 64,
            state: CompanionState::Exited(3),
            narrowed: None,
            launched: None,
        };
        let shown = companion.to_wire();
        assert_eq!((shown.state(), shown.exit_code, shown.ports), (WireState::Exited, 3, vec![5432]));
        let stored = serde_json::to_string(&companion).unwrap();
        assert_eq!(serde_json::from_str::<Companion>(&stored).unwrap(), companion);
        companion.state = CompanionState::Ready;
        assert_eq!(companion.to_wire().exit_code, 0);
    }
}
