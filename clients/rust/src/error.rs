//! Why there is no connection.

use std::error::Error as _;
use std::fmt;
use std::io;
use std::path::PathBuf;

use thiserror::Error;
use tonic::transport;

use crate::endpoint::{BadEndpoint, Endpoint};
use crate::token::BadToken;

/// Why there is no connection.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// A variable of the environment names no endpoint.
    #[error("COFFERDAM_ENDPOINT is `{written}`: {cause}")]
    Variable {
        /// Its value.
        written: String,
        /// What is wrong with it.
        #[source]
        cause: BadEndpoint,
    },
    /// The token is none.
    #[error(transparent)]
    Token(#[from] BadToken),
    /// A certificate or key cannot be read.
    #[error("{} cannot be read: {cause}", .file.display())]
    File {
        /// Its path.
        file: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// They are there, and no certificates, or do not go together.
    #[error("the certificates or their key cannot be used")]
    Certificates(#[source] transport::Error),
    /// It was parsed, and gRPC does not take it.
    #[error("{0} is not a usable endpoint")]
    Unusable(Endpoint),
    /// Nobody answers.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
}

/// A daemon that cannot be reached.
#[derive(Debug)]
pub struct Unreachable {
    /// Where it should be.
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
    /// What went wrong in the end.
    pub fn cause(&self) -> String {
        let mut last: &dyn std::error::Error = &self.source;
        while let Some(next) = last.source() {
            last = next;
        }
        last.to_string()
    }

    /// The kind of the system's own error, where there is one.
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
