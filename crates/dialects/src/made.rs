//! What a dialect is told of a call when it renders what became of it.

use ops::Operation;

/// A call, as far as renderings say something of it.
#[derive(Debug, Clone, Copy)]
pub struct Made<'a> {
    /// The tool as the model named it.
    pub tool: &'a str,
    /// What it meant; missing when the call did not parse.
    pub operation: Option<&'a Operation>,
    /// What else is known.
    pub facts: &'a Facts,
}

/// Facts about a call that are in no outcome. Empty and zero is "not known".
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// The id by which the API knows the call.
    pub call_id: String,
    /// For whom it was made.
    pub agent_id: String,
    /// Time in its lane, milliseconds.
    pub execution_ms: u64,
    /// CPU time of its command, milliseconds.
    pub cpu_time_ms: u64,
    /// Peak resident memory of its command, bytes.
    pub peak_memory_bytes: u64,
    /// The approval that it needed.
    pub approval_id: String,
    /// The reviewer who consented.
    pub approved_by: String,
    /// The time of the consent, RFC 3339.
    pub approved_at: String,
    /// When it was over, RFC 3339.
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
    /// A call of which nothing else is known.
    pub fn new(tool: &'a str, operation: Option<&'a Operation>) -> Self {
        Self { tool, operation, facts: &NOTHING }
    }

    /// The same with what is known.
    #[must_use]
    pub fn with(self, facts: &'a Facts) -> Self {
        Self { facts, ..self }
    }
}
