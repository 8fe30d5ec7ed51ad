//! What tests of more than one module begin with.

use std::collections::BTreeMap;
use std::time::Duration;

use identity::RunId;
use store::OutcomeBounds;
use store::run::{Limits, Record, Spec, Workspace};

/// More outcomes than a test makes.
pub(crate) const WIDE: OutcomeBounds = OutcomeBounds {
    max_total: 1 << 30,
    max_age: Duration::from_secs(86_400),
    request_ids: Duration::from_secs(3_600),
};

/// A run that is about to be made.
pub(crate) fn record() -> Record {
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
    };
    Record::new(RunId::new(), spec)
}
