//! Levels of approvers, and forms in which a reviewer may have consent remembered.

use std::fmt;

use serde::{Deserialize, Serialize};

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
