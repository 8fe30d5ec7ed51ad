//! The policy in force, which a reload replaces.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::Policy;

/// The policy in force. Clones share it.
#[derive(Debug, Clone)]
pub struct InForce(Arc<RwLock<Arc<Policy>>>);

impl From<Policy> for InForce {
    fn from(policy: Policy) -> Self {
        Self::new(policy)
    }
}

impl InForce {
    pub fn new(policy: Policy) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(policy))))
    }

    /// Returns the policy in force now.
    pub fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.0.read())
    }

    /// Replaces the policy, at once and as a whole. Returns true if the new one differs.
    pub fn replace(&self, policy: Policy) -> bool {
        let next = Arc::new(policy);
        // The previous policy is dropped after the lock, so that no call waits for that.
        let before = std::mem::replace(&mut *self.0.write(), Arc::clone(&next));
        before.digest() != next.digest()
    }
}
