//! Consent: how far an approver's word goes, and how much more than one call it may cover.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::clock::UnixMillis;

/// Consents that are remembered for one run.
pub(crate) const MAX_PER_RUN: usize = 64;
/// Words of a remembered prefix.
pub(crate) const MAX_WORDS: usize = 64;

/// How far an approver's word goes. Ordered: a higher level has what a lower one has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Decides on calls up to the risk that the profile leaves to approvers.
    Approver,
    /// Decides on critical calls, too.
    Director,
}

impl Level {
    /// As in a policy file and in the API.
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

/// A form of remembering that a reviewer may choose beside *once*.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// The same call again, while nothing that it is bound to changes.
    Digest,
    /// Commands that begin with these words.
    Prefix,
}

impl Form {
    /// As in a policy file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Digest => "digest",
            Self::Prefix => "prefix",
        }
    }
}

/// How much more than its call a consent covers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Remember {
    /// The consent covers its call alone.
    #[default]
    Once,
    /// For the same call again.
    Digest,
    /// For commands of this run that begin with these words.
    Prefix(Vec<String>),
}

/// Why a consent is not remembered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotRemembered {
    /// The profile or the nature of the call forbids it.
    #[error("the form `{}` is not among those that are offered for it ({offered})", .form.as_str())]
    NotOffered {
        form: Form,
        /// What may be chosen.
        offered: String,
    },
    /// Only consent is remembered.
    #[error("a denial is not")]
    Denied,
    /// The words are not how the command begins.
    #[error("the prefix must be the first words of this command, exactly, and at most {MAX_WORDS}")]
    NotItsPrefix,
    /// The run remembers as many consents as it may.
    #[error("{MAX_PER_RUN} consents are remembered for this run already; revoke some")]
    TooMany,
}

/// What a remembered consent lets through.
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
    /// The approval that it was given with.
    pub approval_id: String,
    /// The run that it is for.
    pub run_id: String,
    /// Such as `exec`.
    pub operation: String,
    /// What it lets through.
    pub covers: Covers,
    /// Digest of the policy under which it was given; it ends with it.
    pub policy_digest: String,
    pub given_by: String,
    pub given_at: UnixMillis,
}
