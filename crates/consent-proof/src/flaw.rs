//! Reasons to refuse an answer of an authenticator.

/// Reason why a registration or a proof does not count. The messages contain nothing of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    #[error("a field is empty or too long")]
    Size,
    #[error("a field is not encoded as it must be")]
    Encoding,
    #[error("the client data are malformed")]
    ClientData,
    #[error("the client data are of another ceremony")]
    Ceremony,
    #[error("the challenge is not the one of this statement")]
    Challenge,
    #[error("the passkey was used on a page of another origin")]
    Origin,
    #[error("the passkey was used in a frame of another page")]
    Frame,
    #[error("the authenticator data are malformed")]
    AuthenticatorData,
    #[error("the passkey belongs to another relying party")]
    RelyingParty,
    #[error("the authenticator saw no user")]
    NotPresent,
    #[error("the authenticator did not verify the user: use a passkey with a PIN, a finger or a face")]
    NotVerified,
    #[error("the passkey has no key of ES256 or EdDSA")]
    Key,
    #[error("the signature is not of this passkey over this statement")]
    Signature,
}
