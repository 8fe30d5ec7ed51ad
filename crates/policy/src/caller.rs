//! The caller of a call, and its run. Both come from the connection and the run's record, never from the request.

/// The principal, agent, role and run of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub principal: String,
    /// The run's agent, fixed when the run was made.
    pub agent_id: String,
    /// The agent's role in the policy.
    pub role: String,
    pub run_id: String,
}

/// Facts about a run, besides the caller, that a decision needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunScope {
    /// Name of the policy profile.
    pub profile: String,
    /// Digest of the run's image. An approval is valid for this image only.
    pub image_id: String,
}
