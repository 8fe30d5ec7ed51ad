//! Problems of a policy, all of them at once.

use std::fmt;

use document::{Problem, list};

/// All problems of a policy; never empty. No part of such a policy comes into force.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(f, "the policy", &self.0)
    }
}
