//! Who asks, and for which run. Taken from the connection and the run's own record, never from the request.

/// Who makes a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub principal: String,
    /// For which agent: the run's, fixed when the run was made.
    pub agent_id: String,
    /// The agent's role in the policy.
    pub role: String,
    pub run_id: String,
}

/// What a decision has to know of a run beside the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunScope {
    /// Name of the policy profile.
    pub profile: String,
    /// Digest of the image that runs. An approval holds for this image alone.
    pub image_id: String,
}
