//! One thing that was looked at.

use std::borrow::Cow;

use serde::Serialize;

/// What a finding means for a daemon on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Good,
    /// The daemon runs, with something less.
    Limited,
    /// The daemon does not run.
    Missing,
}

/// What was found, and what follows from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at, in a word or two.
    pub topic: Cow<'static, str>,
    /// Whether it is enough.
    pub verdict: Verdict,
    pub found: String,
    /// What that means and how to mend it. Absent when nothing follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub follows: Option<String>,
}

impl Finding {
    pub fn good(topic: &'static str, found: impl Into<String>) -> Self {
        Self { topic: topic.into(), verdict: Verdict::Good, found: found.into(), follows: None }
    }

    pub fn limited(topic: &'static str, found: impl Into<String>, follows: impl Into<String>) -> Self {
        Self {
            topic: topic.into(),
            verdict: Verdict::Limited,
            found: found.into(),
            follows: Some(follows.into()),
        }
    }

    pub fn missing(topic: &'static str, found: impl Into<String>, follows: impl Into<String>) -> Self {
        Self {
            topic: topic.into(),
            verdict: Verdict::Missing,
            found: found.into(),
            follows: Some(follows.into()),
        }
    }
}
