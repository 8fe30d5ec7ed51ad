//! The configuration of an issuer.

use std::time::Duration;

use crate::grant::Grant;
use crate::source::Source;

/// An issuer in the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issuer {
    /// Name of the issuer. Holders of its tokens are the principals `oidc:NAME:SUBJECT`.
    pub name: String,
    /// Value of the claim `iss` in its tokens.
    pub issuer: String,
    /// Accepted audiences. The claim `aud` has to contain one of them.
    pub audiences: Vec<String>,
    pub keys: Source,
    /// Name of the claim with the subject.
    pub principal_claim: String,
    /// Path of the claim with the groups of the subject, which tenants of the policy name.
    pub groups_claim: Vec<String>,
    /// Largest difference between its clock and this host's.
    pub leeway: Duration,
    /// Longest time from `iat` to `exp`.
    pub max_lifetime: Duration,
    pub grants: Vec<Grant>,
}
