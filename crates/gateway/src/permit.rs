//! The permit: proof that a call may happen, once.
//!
//! The executor takes nothing else, and only [`crate::Gateway`] makes one: the fields are private, there is no
//! constructor outside this crate, and it can be neither copied nor made from data.

use ops::{Bounds, Operation};

use crate::caller::Caller;
use crate::decision::Decision;
use crate::policy::McpServer;

/// Leave for one call to happen once. Spent by [`Permit::into_parts`].
///
/// It can be held and looked at:
///
/// ```
/// fn name(permit: &cofferdam_gateway::Permit) -> &str {
///     permit.operation().name()
/// }
/// ```
///
/// but not copied,
///
/// ```compile_fail,E0599
/// fn twice(permit: cofferdam_gateway::Permit) -> (cofferdam_gateway::Permit, cofferdam_gateway::Permit) {
///     (permit.clone(), permit)
/// }
/// ```
///
/// not made by hand,
///
/// ```compile_fail,E0451
/// fn forge(parts: Box<cofferdam_gateway::PermitParts>) -> cofferdam_gateway::Permit {
///     cofferdam_gateway::Permit { parts }
/// }
/// ```
///
/// and not asked for without a decision.
///
/// ```compile_fail,E0624
/// fn mint(parts: cofferdam_gateway::PermitParts) -> cofferdam_gateway::Permit {
///     cofferdam_gateway::Permit::mint(parts)
/// }
/// ```
#[derive(Debug)]
#[must_use = "a permit that is dropped is a call that never happens"]
pub struct Permit {
    parts: Box<PermitParts>,
}

/// What a permit covers, once it is spent.
#[derive(Debug, PartialEq, Eq)]
pub struct PermitParts {
    pub call_id: String,
    pub caller: Caller,
    /// Exactly what may be done.
    pub operation: Operation,
    pub bounds: Bounds,
    /// Of a call to an upstream server: the server, as the policy that decided has it.
    pub server: Option<McpServer>,
    /// Why it may be done.
    pub decision: Decision,
    /// The approval that it came from, where one was needed.
    pub approval_id: Option<String>,
}

impl Permit {
    pub(crate) fn mint(parts: PermitParts) -> Self {
        Self { parts: Box::new(parts) }
    }

    pub fn call_id(&self) -> &str {
        &self.parts.call_id
    }

    pub fn caller(&self) -> &Caller {
        &self.parts.caller
    }

    /// Exactly what may be done.
    pub fn operation(&self) -> &Operation {
        &self.parts.operation
    }

    pub fn bounds(&self) -> &Bounds {
        &self.parts.bounds
    }

    /// Limits a read to `bytes`, if it may return more.
    pub fn read_at_most(&mut self, bytes: u64) {
        let bounds = &mut self.parts.bounds;
        bounds.max_read_bytes = bounds.max_read_bytes.min(bytes);
    }

    /// Why it may be done.
    pub fn decision(&self) -> &Decision {
        &self.parts.decision
    }

    /// The approval that it came from, where one was needed.
    pub fn approval_id(&self) -> Option<&str> {
        self.parts.approval_id.as_deref()
    }

    /// Spends the permit.
    pub fn into_parts(self) -> PermitParts {
        *self.parts
    }
}
