//! Consent: calls that it covers beyond the one that it was given for.

use policy::Form;
use serde::{Deserialize, Serialize};
use timestamp::UnixMillis;

/// Most consents that are remembered for one run.
pub(crate) const MAX_PER_RUN: usize = 64;
/// Most words of a remembered prefix.
pub(crate) const MAX_WORDS: usize = 64;

/// Coverage of a consent beyond its call.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Remember {
    /// Covers its call alone.
    #[default]
    Once,
    /// Covers the same call again.
    Digest,
    /// Covers commands of this run that begin with these words.
    Prefix(Vec<String>),
}

/// Reason why a consent is not remembered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotRemembered {
    /// The profile or the nature of the call forbids it.
    #[error("the form `{}` is not among those that are offered for it ({offered})", .form.as_str())]
    NotOffered {
        form: Form,
        /// The forms that may be chosen.
        offered: String,
    },
    /// The decision is a denial. Only consent is remembered.
    #[error("a denial is not")]
    Denied,
    /// The command does not begin with these words.
    #[error("the prefix must be the first words of this command, exactly, and at most {MAX_WORDS}")]
    NotItsPrefix,
    /// The run has as many remembered consents as it may.
    #[error("{MAX_PER_RUN} consents are remembered for this run already; revoke some")]
    TooMany,
}

/// Calls that a remembered consent lets through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Covers {
    /// Calls with this digest, lower-case hex.
    Digest(String),
    /// Commands that begin with these words.
    Prefix(Vec<String>),
}

/// A consent that is remembered for the rest of its run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consent {
    /// UUIDv7.
    pub consent_id: String,
    /// The approval that the consent was given with.
    pub approval_id: String,
    /// The run to which the consent is limited.
    pub run_id: String,
    /// Such as `exec`.
    pub operation: String,
    /// Calls that the consent lets through.
    pub covers: Covers,
    /// Digest of the policy under which the consent was given. A change of policy ends the consent.
    pub policy_digest: String,
    pub given_by: String,
    pub given_at: UnixMillis,
}
