//! Consent: the levels of approvers, and the forms in which consent may cover more than one call.

use std::fmt;

use serde::{Deserialize, Serialize};
use timestamp::UnixMillis;

/// Most consents that are remembered for one run.
pub(crate) const MAX_PER_RUN: usize = 64;
/// Most words of a remembered prefix.
pub(crate) const MAX_WORDS: usize = 64;

/// Level of an approver. Ordered: a higher level includes a lower one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Decides on calls up to the risk that the profile leaves to approvers.
    Approver,
    /// Decides on critical calls, too.
    Director,
}

impl Level {
    /// Returns the name used in a policy file and in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approver => "approver",
            Self::Director => "director",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A form, besides *once*, in which a reviewer may have consent remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// Covers the same call again, while nothing that it is bound to changes.
    Digest,
    /// Covers commands that begin with the same words.
    Prefix,
}

impl Form {
    /// Returns the name used in a policy file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Digest => "digest",
            Self::Prefix => "prefix",
        }
    }
}

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
