//! Reasons why a token is refused, and the messages to its holder.

/// Reason why a token is refused. Details are only given to a holder whose token has a valid signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// It is malformed, not from a configured issuer, or not signed by it.
    Wrong,
    /// The issuer has no such key as far as is known. Its keys are fetched again.
    UnknownKey,
    /// None of the issuer's keys are available, or only old ones.
    NoKeys,
    Expired,
    NotYet,
    /// It is for another audience.
    Audience,
    /// It does not state when it was issued or when it expires.
    Undated,
    TooLong,
    Unnamed,
}

impl Refused {
    /// Returns the message to its holder.
    pub fn message(self) -> &'static str {
        match self {
            Self::Wrong => {
                "the token is of no issuer that the configuration names, or its signature does not hold"
            }
            Self::UnknownKey => {
                "the key of the token is not known yet, and its issuer is asked again: try again soon"
            }
            Self::NoKeys => "the keys of the token's issuer cannot be had now: try again later",
            Self::Expired => "the token has expired: get another one from its issuer",
            Self::NotYet => "the token does not count yet: compare the clocks of its issuer and of this host",
            Self::Audience => "the token is for another audience",
            Self::Undated => "the token does not say when it was issued and when it ends (iat, exp)",
            Self::TooLong => "the token lasts longer than the configuration lets tokens of its issuer last",
            Self::Unnamed => {
                "the token names nobody: its subject must be 1 to 256 visible ASCII characters, and an address verified"
            }
        }
    }
}
