//! One thing that the doctor looked at.

use serde::Serialize;

/// What a finding means for a daemon on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// As it should be.
    Good,
    /// The daemon runs, with something less.
    Limited,
    /// The daemon does not run.
    Missing,
}

/// What was found, and what follows from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) topic: &'static str,
    pub(super) verdict: Verdict,
    pub(super) found: String,
    /// Absent when nothing does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) follows: Option<String>,
}

impl Finding {
    pub(super) fn good(topic: &'static str, found: impl Into<String>) -> Self {
        Self { topic, verdict: Verdict::Good, found: found.into(), follows: None }
    }

    pub(super) fn limited(topic: &'static str, found: impl Into<String>, follows: impl Into<String>) -> Self {
        Self { topic, verdict: Verdict::Limited, found: found.into(), follows: Some(follows.into()) }
    }

    pub(super) fn missing(topic: &'static str, found: impl Into<String>, follows: impl Into<String>) -> Self {
        Self { topic, verdict: Verdict::Missing, found: found.into(), follows: Some(follows.into()) }
    }
}
