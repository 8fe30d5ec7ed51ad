//! The reasons why there is no connection.

use std::error::Error as _;
use std::fmt;
use std::io;
use std::path::PathBuf;

use thiserror::Error;
use tonic::transport;

use crate::endpoint::{BadEndpoint, Endpoint};
use crate::token::BadToken;

/// The reason why there is no connection.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// A variable of the environment that names no endpoint.
    #[error("COFFERDAM_ENDPOINT is `{written}`: {cause}")]
    Variable {
        /// Its value.
        written: String,
        /// Its fault.
        #[source]
        cause: BadEndpoint,
    },
    /// A malformed token.
    #[error(transparent)]
    Token(#[from] BadToken),
    /// A certificate or key that cannot be read.
    #[error("{} cannot be read: {cause}", .file.display())]
    File {
        /// Its path.
        file: PathBuf,
        /// The reason.
        #[source]
        cause: io::Error,
    },
    /// Files that are no certificates, or that do not match.
    #[error("the certificates or their key cannot be used")]
    Certificates(#[source] transport::Error),
    /// A valid endpoint that gRPC does not accept.
    #[error("{0} is not a usable endpoint")]
    Unusable(Endpoint),
    /// No answer from the daemon.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
}

/// A daemon that cannot be reached.
#[derive(Debug)]
pub struct Unreachable {
    /// Its address.
    pub endpoint: Endpoint,
    pub(crate) source: transport::Error,
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the daemon at {} cannot be reached: {}", self.endpoint, self.cause())
    }
}

impl std::error::Error for Unreachable {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

impl Unreachable {
    /// Returns the innermost cause.
    pub fn cause(&self) -> String {
        let mut last: &dyn std::error::Error = &self.source;
        while let Some(next) = last.source() {
            last = next;
        }
        last.to_string()
    }

    /// Returns the kind of the operating system's error, if there is one.
    pub fn kind(&self) -> Option<io::ErrorKind> {
        let mut next = self.source.source();
        while let Some(error) = next {
            if let Some(error) = error.downcast_ref::<io::Error>() {
                return Some(error.kind());
            }
            next = error.source();
        }
        None
    }
}
