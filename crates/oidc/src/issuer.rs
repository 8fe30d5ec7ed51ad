//! What the configuration says of an issuer.

use std::time::Duration;

use crate::grant::Grant;
use crate::source::Source;

/// An issuer, as the configuration has it.
#[derive(Debug, Clone)]
pub struct Issuer {
    /// Its tokens' holders are the principals `oidc:NAME:SUBJECT`.
    pub name: String,
    /// The claim `iss` of its tokens.
    pub issuer: String,
    /// One of them is in the claim `aud`.
    pub audiences: Vec<String>,
    pub keys: Source,
    /// The claim with the subject.
    pub principal_claim: String,
    /// By how much its clock and this host's may differ.
    pub leeway: Duration,
    /// From `iat` to `exp`.
    pub max_lifetime: Duration,
    pub grants: Vec<Grant>,
}
