//! Test fixtures for the crates above.

use std::collections::BTreeMap;

use crate::record::{Limits, Record, Spec, Workspace};
use identity::RunId;

/// A run that is about to be made.
pub fn record() -> Record {
    let spec = Spec {
        profile: "review".into(),
        image: String::new(),
        workspace: Workspace::Managed,
        pkg_path: None,
        agent_id: "alice".into(),
        role: "worker".into(),
        limits: Limits::default(),
        ttl: None,
        idle_timeout: None,
        labels: BTreeMap::new(),
        principal: "uid:0".into(),
        token: None,
        env: BTreeMap::new(),
        secret_env: Vec::new(),
        lease: None,
        writable_paths: Vec::new(),
        forked_from: None,
        companions: Vec::new(),
        checkpoints: None,
    };
    Record::new(RunId::new(), spec)
}
