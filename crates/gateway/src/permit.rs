//! The permit: proof that a call may happen, once.
//!
//! The executor takes nothing else, and only [`crate::Gateway`] makes one: the fields are private, there is no
//! constructor outside this crate, and it can be neither copied nor made from data.

use operations::{Bounds, Operation};

use crate::decision::Decision;
use policy::{Caller, McpServer};

/// Variable in which commands find the context of a trace, as OpenTelemetry names it.
const TRACEPARENT: &str = "TRACEPARENT";

/// Permission for one call to happen once. [`Permit::into_parts`] spends it.
///
/// It can be held and read:
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
/// and not minted without a decision.
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

/// Contents of a permit, once it is spent.
#[derive(Debug, PartialEq, Eq)]
pub struct PermitParts {
    pub call_id: String,
    pub caller: Caller,
    /// The exact operation that may run.
    pub operation: Operation,
    pub bounds: Bounds,
    /// For a call to an upstream server: the server, as the deciding policy defines it.
    pub server: Option<McpServer>,
    /// The decision that let the call through.
    pub decision: Decision,
    /// The approval that it came from, if one was needed.
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

    /// Returns the exact operation that may run.
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

    /// Gives the command of the call the context of its trace, unless the call sets that variable itself.
    ///
    /// The daemon adds it, so no rule for the variables of calls applies, and consent does not cover it.
    pub fn give_traceparent(&mut self, context: &str) {
        self.parts.operation.set_variable(TRACEPARENT, context);
    }

    /// Returns the decision that let the call through.
    pub fn decision(&self) -> &Decision {
        &self.parts.decision
    }

    /// Returns the approval that it came from, if one was needed.
    pub fn approval_id(&self) -> Option<&str> {
        self.parts.approval_id.as_deref()
    }

    /// Spends the permit.
    pub fn into_parts(self) -> PermitParts {
        *self.parts
    }
}
