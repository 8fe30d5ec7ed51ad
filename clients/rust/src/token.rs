//! What a client shows beside its uid or certificate.

use thiserror::Error;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::{Request, Status};

/// A bearer token, shown with every request. Debug output does not have it.
#[derive(Clone, Debug)]
pub struct Token(MetadataValue<Ascii>);

/// A token with characters that no token has.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("the token contains invalid characters")]
pub struct BadToken;

impl Token {
    /// An API token, a run's token, or a token of an issuer.
    pub fn new(token: &str) -> Result<Self, BadToken> {
        let mut value = MetadataValue::try_from(format!("Bearer {}", token.trim())).map_err(|_| BadToken)?;
        value.set_sensitive(true);
        Ok(Self(value))
    }
}

/// Shows a token, or nothing.
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
