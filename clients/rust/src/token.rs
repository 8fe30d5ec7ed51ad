//! Tokens that a client sends in addition to its uid or certificate.

use thiserror::Error;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::{Request, Status};

/// A bearer token, sent with every request. Debug output hides it.
#[derive(Clone, Debug)]
pub struct Token(MetadataValue<Ascii>);

/// The error of a token with invalid characters.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("the token contains invalid characters")]
pub struct BadToken;

impl Token {
    /// Takes an API token, a run's token, or a token of an issuer.
    pub fn new(token: &str) -> Result<Self, BadToken> {
        let mut value = MetadataValue::try_from(format!("Bearer {}", token.trim())).map_err(|_| BadToken)?;
        value.set_sensitive(true);
        Ok(Self(value))
    }
}

/// Sends a token, if there is one, with every request.
#[derive(Clone, Debug, Default)]
pub struct Credentials(pub(crate) Option<Token>);

impl Interceptor for Credentials {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(Token(value)) = &self.0 {
            request.metadata_mut().insert("authorization", value.clone());
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::{BadToken, Token};

    #[test]
    fn a_token_is_trimmed_and_never_shown() {
        let token = Token::new(" cfa_x \n").unwrap();
        assert_eq!(token.0.to_str().unwrap(), "Bearer cfa_x");
        assert!(!format!("{token:?}").contains("cfa_x"));
        assert_eq!(Token::new("a\nb").unwrap_err(), BadToken);
    }
}
