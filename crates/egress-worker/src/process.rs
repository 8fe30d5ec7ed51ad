//! The state that all connections of the process share, as the daemon gave it with the first frame.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use thiserror::Error;
use tokio::sync::Semaphore;
use tokio_rustls::rustls::Error as TlsError;
use wire::worker::v1::EgressStart;

use crate::authority::{Authority, AuthorityError};
use crate::estimate;
use crate::seek::Placeholders;
use crate::tls::{self, Servers};

/// The state that all connections share.
pub(crate) struct Process {
    /// The authority whose certificates programs see; `None` if no connection is opened.
    pub(crate) authority: Option<Authority>,
    /// The side of TLS towards servers.
    servers: RefCell<Arc<Servers>>,
    /// The placeholders of the run's secrets; `None` if it has none.
    pub(crate) placeholders: Option<Arc<Placeholders>>,
    /// Places for the bodies of requests that are read before they go out.
    pub(crate) bodies: Arc<Semaphore>,
}

/// The reason why the process cannot begin.
#[derive(Debug, Error)]
pub enum ProcessError {
    #[error("the authority: {0}")]
    Authority(String),
    #[error("TLS: {0}")]
    Tls(#[from] TlsError),
}

impl From<AuthorityError> for ProcessError {
    fn from(error: AuthorityError) -> Self {
        Self::Authority(error.to_string())
    }
}

impl Process {
    /// Takes the roots and the placeholders. Makes an authority if the daemon wants one.
    pub(crate) fn new(start: &mut EgressStart) -> Result<Self, ProcessError> {
        let authority = start.make_authority.then(Authority::new).transpose()?;
        let servers = tls::servers(std::mem::take(&mut start.roots), std::mem::take(&mut start.revoked))?;
        let placeholders = std::mem::take(&mut start.placeholders);
        let placeholders = (!placeholders.is_empty()).then(|| Arc::new(Placeholders::new(&placeholders)));
        Ok(Self {
            authority,
            servers: RefCell::new(Arc::new(servers)),
            placeholders,
            bodies: estimate::places(),
        })
    }

    /// Returns the side of TLS towards servers.
    pub(crate) fn servers(&self) -> Arc<Servers> {
        Arc::clone(&self.servers.borrow())
    }

    /// Takes the roots that servers have to be signed by from now on.
    pub(crate) fn trust(&self, roots: Vec<Vec<u8>>) -> Result<(), TlsError> {
        let servers = self.servers().with_roots(roots)?;
        self.servers.replace(Arc::new(servers));
        Ok(())
    }

    /// Returns the certificate of the authority, in DER; empty if there is none.
    pub(crate) fn certificate(&self) -> Vec<u8> {
        self.authority.as_ref().map(|authority| authority.certificate_der().to_vec()).unwrap_or_default()
    }
}

/// Prints no key.
impl fmt::Debug for Process {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Process").finish_non_exhaustive()
    }
}
