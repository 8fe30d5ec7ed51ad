//! The way from the console into the daemon: its services, and the identities that open them.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;

use serde_json::Value;
use timestamp::UnixMillis;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tonic::Status;
use tonic::codegen::http::Extensions;
use tonic::metadata::{Ascii, MetadataValue};

use api_access::Api;
use oidc_sign_in::SignIns;

/// Most bytes of a token. Tokens of issuers are the longest.
const MAX_TOKEN: usize = 8 * 1024;

/// A stream to a browser.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A TLS handshake: the stream, and the certificate that the browser has shown.
pub type Handshake = Pin<Box<dyn Future<Output = io::Result<(Box<dyn Stream>, Option<Certificate>)>> + Send>>;

/// The write of a record, which is on disk when it completes.
pub type Recorded = Pin<Box<dyn Future<Output = Result<(), Status>> + Send>>;

type Record = Box<dyn Fn(&str, Value) -> Recorded + Send + Sync>;
type Present = Box<dyn Fn(&Identity, IpAddr) -> Extensions + Send + Sync>;
/// The credential of a link in a notice.
type Found = Pin<Box<dyn Future<Output = Option<Identity>> + Send>>;
type Linked = Box<dyn Fn(String, String, UnixMillis) -> Found + Send + Sync>;
type Tls = Box<dyn Fn(TcpStream) -> Handshake + Send + Sync>;

/// Access to the daemon.
pub struct Access {
    /// The services of the API, after the same guard that all other clients pass.
    pub(crate) api: Api,
    present: Present,
    linked: Option<Linked>,
    record: Record,
    tls: Option<Tls>,
    /// Issuers at which people sign in.
    pub(crate) issuers: Option<SignIns>,
}

impl Access {
    /// Returns an access to `api`.
    ///
    /// `present` makes the extensions by which its guard knows an identity at an address. `record` writes the details of a session of a
    /// principal into the audit log.
    pub fn new(
        api: Api,
        present: impl Fn(&Identity, IpAddr) -> Extensions + Send + Sync + 'static,
        record: impl Fn(&str, Value) -> Recorded + Send + Sync + 'static,
    ) -> Self {
        Self {
            api,
            present: Box::new(present),
            record: Box::new(record),
            linked: None,
            tls: None,
            issuers: None,
        }
    }

    /// Opens links in notices. `linked` returns the credential with which a principal decides on approvals of a run, if it still has one
    /// that it had when the link was made.
    #[must_use]
    pub fn linked(
        mut self,
        linked: impl Fn(String, String, UnixMillis) -> Pin<Box<dyn Future<Output = Option<Identity>> + Send>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.linked = Some(Box::new(linked));
        self
    }

    /// Returns the credential of a link in a notice.
    pub(crate) async fn identify(&self, principal: &str, run: &str, made_at: UnixMillis) -> Option<Identity> {
        let linked = self.linked.as_ref()?;
        linked(principal.to_owned(), run.to_owned(), made_at).await
    }

    /// Signs people in at issuers.
    #[must_use]
    pub fn issuers(mut self, issuers: Option<SignIns>) -> Self {
        self.issuers = issuers;
        self
    }

    /// Serves TLS.
    #[must_use]
    pub fn tls(mut self, handshake: impl Fn(TcpStream) -> Handshake + Send + Sync + 'static) -> Self {
        self.tls = Some(Box::new(handshake));
        self
    }

    pub(crate) fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns what the guard needs to know the identity.
    pub(crate) fn present(&self, identity: &Identity, from: IpAddr) -> Extensions {
        (self.present)(identity, from)
    }

    /// Records the sign-in or the end of a session.
    pub(crate) async fn record(&self, principal: &str, details: Value) -> Result<(), Status> {
        (self.record)(principal, details).await
    }

    /// Makes a connection confidential, if the console has TLS.
    pub(crate) async fn open(&self, stream: TcpStream) -> io::Result<(Box<dyn Stream>, Option<Certificate>)> {
        match &self.tls {
            Some(tls) => tls(stream).await,
            None => Ok((Box::new(stream), None)),
        }
    }
}

/// The credential of a session. Each request of the session shows it to the guard of the API.
#[derive(Debug, Clone)]
pub enum Identity {
    /// User of this host who made a link over the Unix socket.
    User { uid: u32, gid: u32 },
    /// Holder of a token.
    Token(Token),
    /// Holder of a client certificate.
    Certificate(Certificate),
}

/// A verified client certificate.
#[derive(Clone)]
pub struct Certificate {
    /// Its subject.
    pub name: String,
    /// The certificate in the form that the daemon's guard knows.
    pub shown: Extensions,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Certificate({:?})", self.name)
    }
}

/// A token, as it is sent. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(MetadataValue<Ascii>);

impl Token {
    /// Parses a token as it was printed. Ignores white space around it.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.is_empty() || text.len() > MAX_TOKEN || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return None;
        }
        Self::sent(format!("Bearer {text}").parse().ok()?)
    }

    /// Takes the value of an `authorization` header.
    pub fn sent(mut value: MetadataValue<Ascii>) -> Option<Self> {
        value.set_sensitive(true);
        (value.as_encoded_bytes().len() <= MAX_TOKEN + 16).then_some(Self(value))
    }

    pub(crate) fn authorization(&self) -> MetadataValue<Ascii> {
        self.0.clone()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::Token;

    #[test]
    fn a_token_is_one_word_and_never_printed() {
        let token = Token::parse(" cfa_abc \n").unwrap();
        assert_eq!(token.authorization().to_str().unwrap(), "Bearer cfa_abc");
        assert!(!format!("{token:?} {:?}", token.authorization()).contains("abc"));
        for bad in ["", "  ", "two words", "line\nbreak", "bj\u{f6}rn", &"a".repeat(9_000)] {
            assert!(Token::parse(bad).is_none(), "{bad}");
        }
    }
}
