//! The facts about a call that a dialect needs to render its outcome.

use operations::Operation;

/// Call, as far as renderings need it.
#[derive(Debug, Clone, Copy)]
pub struct Made<'a> {
    /// The tool as the model named it.
    pub tool: &'a str,
    /// Its operation; `None` if the call did not parse.
    pub operation: Option<&'a Operation>,
    /// Further facts.
    pub facts: &'a Facts,
}

/// Facts about a call that no outcome contains. Empty and zero mean "not known".
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// Id of the call in the API.
    pub call_id: String,
    /// Agent for which it was made.
    pub agent_id: String,
    /// Time in its lane, milliseconds.
    pub execution_ms: u64,
    /// CPU time of its command, milliseconds.
    pub cpu_time_ms: u64,
    /// Peak resident memory of its command, bytes.
    pub peak_memory_bytes: u64,
    /// Approval that it needed.
    pub approval_id: String,
    /// Reviewer who consented.
    pub approved_by: String,
    /// Time of the consent, RFC 3339.
    pub approved_at: String,
    /// Time of its end, RFC 3339.
    pub executed_at: String,
}

static NOTHING: Facts = Facts {
    call_id: String::new(),
    agent_id: String::new(),
    execution_ms: 0,
    cpu_time_ms: 0,
    peak_memory_bytes: 0,
    approval_id: String::new(),
    approved_by: String::new(),
    approved_at: String::new(),
    executed_at: String::new(),
};

impl<'a> Made<'a> {
    /// Creates a call without further facts.
    pub fn new(tool: &'a str, operation: Option<&'a Operation>) -> Self {
        Self { tool, operation, facts: &NOTHING }
    }

    /// Adds further facts.
    #[must_use]
    pub fn with(self, facts: &'a Facts) -> Self {
        Self { facts, ..self }
    }
}
