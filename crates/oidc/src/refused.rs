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
            Self::Wrong => "the token's issuer is not in the configuration, or its signature is invalid",
            Self::UnknownKey => {
                "the key of the token is not known yet; its issuer is being asked again: try again soon"
            }
            Self::NoKeys => "the keys of the token's issuer are not available now: try again later",
            Self::Expired => "the token has expired: get another one from its issuer",
            Self::NotYet => "the token is not valid yet: compare the clocks of its issuer and of this host",
            Self::Audience => "the token is for another audience",
            Self::Undated => "the token lacks its time of issue or expiry (iat, exp)",
            Self::TooLong => "the token's lifetime is longer than the configuration allows for its issuer",
            Self::Unnamed => {
                "the token has no usable subject: it must be 1 to 256 visible ASCII characters, and an \
                 e-mail address must be verified"
            }
        }
    }
}
