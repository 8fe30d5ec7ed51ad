//! Tokens that a client sends in addition to its uid or certificate.

use node_id::{NODE_METADATA, NodeId};
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

/// The context of a trace, as `traceparent` of W3C Trace Context has it.
///
/// A caller with OpenTelemetry makes it of its active span. The daemon checks it.
#[derive(Clone, Debug)]
pub struct TraceContext(MetadataValue<Ascii>);

/// The error of a text that cannot be a `traceparent`.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("a traceparent looks like 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")]
pub struct BadTraceContext;

impl TraceContext {
    /// Takes a `traceparent`.
    pub fn new(traceparent: &str) -> Result<Self, BadTraceContext> {
        let lengths: Vec<usize> = traceparent.split('-').map(str::len).collect();
        let is_hex = traceparent.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-'));
        if lengths != [2, 32, 16, 2] || !is_hex {
            return Err(BadTraceContext);
        }
        MetadataValue::try_from(traceparent).map(Self).map_err(|_| BadTraceContext)
    }
}

/// Sends a token, a node and the context of a trace, if there are any, with every request.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    pub(crate) token: Option<Token>,
    pub(crate) node: Option<NodeId>,
    pub(crate) trace: Option<TraceContext>,
}

impl Interceptor for Credentials {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(Token(value)) = &self.token {
            request.metadata_mut().insert("authorization", value.clone());
        }
        if let Some(node) = self.node {
            request.metadata_mut().insert(NODE_METADATA, node.get().into());
        }
        if let Some(TraceContext(value)) = &self.trace {
            request.metadata_mut().insert("traceparent", value.clone());
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use tonic::Request;
    use tonic::service::Interceptor as _;

    use super::{BadToken, BadTraceContext, Credentials, NODE_METADATA, NodeId, Token, TraceContext};

    #[test]
    fn the_context_of_a_trace_goes_with_each_request() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let mut credentials =
            Credentials { trace: Some(TraceContext::new(text).unwrap()), ..Credentials::default() };
        let request = credentials.call(Request::new(())).unwrap();
        assert_eq!(request.metadata().get("traceparent").unwrap(), text);
        assert!(request.metadata().get("authorization").is_none());
        for bad in ["", "00-x-y-01", &text[1..], &text.to_uppercase()] {
            assert_eq!(TraceContext::new(bad).unwrap_err(), BadTraceContext, "{bad}");
        }
    }

    #[test]
    fn the_node_goes_with_each_request() {
        let node: NodeId = "7".parse().unwrap();
        let mut credentials = Credentials { node: Some(node), ..Credentials::default() };
        let request = credentials.call(Request::new(())).unwrap();
        assert_eq!(request.metadata().get(NODE_METADATA).unwrap(), "7");
        let request = Credentials::default().call(Request::new(())).unwrap();
        assert!(request.metadata().get(NODE_METADATA).is_none());
    }

    #[test]
    fn a_token_is_trimmed_and_never_shown() {
        let token = Token::new(" cfa_x \n").unwrap();
        assert_eq!(token.0.to_str().unwrap(), "Bearer cfa_x");
        assert!(!format!("{token:?}").contains("cfa_x"));
        assert_eq!(Token::new("a\nb").unwrap_err(), BadToken);
    }
}
