//! Reasons why a sign-in fails, for the person who signs in.

use thiserror::Error;

/// Most characters of a text of the issuer.
const LONGEST: usize = 300;

/// Reason why a sign-in fails.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Failed {
    #[error("The console has no sign-in of this name.")]
    Unknown,
    /// The cookie is missing, over, or of another sign-in.
    #[error(
        "This sign-in is over, was begun in another browser, or another one was begun after it. Begin again on this page."
    )]
    Stale,
    #[error("Too many people sign in at this moment. Try again in a few seconds.")]
    Busy,
    /// The issuer did not answer as it must.
    #[error("The issuer cannot be used for a sign-in now: {0}. Try again later, or sign in another way.")]
    Issuer(String),
    /// The issuer has refused.
    #[error("The issuer has refused the sign-in: {0}")]
    Refused(String),
    /// The ID token is not for this sign-in.
    #[error("The issuer has sent a token that is not for this sign-in: {0}.")]
    Token(&'static str),
}

/// Returns a text of the issuer, which is bounded and on one line.
pub(crate) fn cut(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).take(LONGEST).collect()
}

/// Returns the code of an error, with its description if it has one.
pub(crate) fn refused(error: &str, description: &str) -> Failed {
    let both = match (error.trim(), description.trim()) {
        ("", _) => "it gives no reason".to_owned(),
        (error, "") => cut(error),
        (error, description) => format!("{} ({})", cut(error), cut(description)),
    };
    Failed::Refused(both)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_an_issuer_are_bounded_and_on_one_line() {
        let said = refused("access_denied", &format!("no\r\nSet-Cookie: a=b\u{1b}[2J{}", "x".repeat(9_000)));
        let said = said.to_string();
        assert!(
            said.starts_with("The issuer has refused the sign-in: access_denied (no  Set-Cookie"),
            "{said}"
        );
        assert!(said.len() < 400 && !said.contains(char::is_control), "{said}");
        assert_eq!(refused(" ", "x"), Failed::Refused("it gives no reason".to_owned()));
        assert_eq!(refused("server_error", ""), Failed::Refused("server_error".to_owned()));
    }
}
